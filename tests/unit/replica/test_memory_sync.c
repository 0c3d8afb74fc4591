/* Centres, shared parameters and gathering with every allocation and every call to the device
 * failing once: the right error comes back, nothing leaks (under ASan), what was there still works.
 * And none of it allocates once it has been done before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc_faults.h"
#include "group.h"
#include "replica/centre.h"
#include "replica/gather.h"
#include "shared_world.h"

static const StepRule rule = {.lr = 0.1F, .want_norm = true, .clip_norm = 0.01F};
static const StepRule hold = {.lr = 0.1F, .hold = true};
static const OuterRule outer = {.lr = 0.7F, .momentum = 0.9F};

static int meet_with_centre(void *data)
{
    Group *group = data;
    static const uint64_t samples[GROUP] = {1, 2, 3};
    const MeanSpec spec = {.samples = samples, .states = MEAN_STATES_AVERAGE};
    Centre *centre = NULL;
    Snapshot *snapshot = NULL;
    MeanResult result;
    Error err = {0};
    int r = centre_new(group->fixture.engine, true, &centre, &err);
    if (r == 0)
        r = centre_set(centre, group->replicas[1], &err);
    if (r == 0)
        r = replicas_outer(group->replicas, group_all, GROUP, centre, &outer, &spec, &result, &err);
    if (r == 0)
        r = replicas_elastic(group->replicas, group_all, GROUP, centre, 0.5F, &result, &err);
    if (r == 0)
        r = replica_take_centre(group->replicas[0], centre, &err);
    assert_true(r == 0 || err.message[0]);
    if (r == 0)
        r = centre_snapshot_new(group->fixture.graph, true, &snapshot);
    if (r == 0)
        r = centre_snapshot(centre, snapshot);
    if (r == 0)
        r = centre_restore(centre, snapshot);
    snapshot_free(snapshot);
    centre_free(centre);
    return r;
}

static int gather_and_take(void *data)
{
    Group *group = data;
    Snapshot *copy = NULL;
    MeanResult result;
    Error err = {0};
    int r = gather_copy_new(group->fixture.graph, &copy);
    if (r == 0) {
        r = gather_copies(&group->replicas[1], &copy, 1, &err);
        if (r == 0)
            r = replica_take_mean(group->replicas[0], (const Snapshot *const[]){copy}, NULL, 1,
                                  &result, &err);
        assert_true(r == 0 || err.message[0]);
    }
    snapshot_free(copy);
    return r;
}

/* A step of two gradients beside a pin, so that it makes a version. */
static int update(SharedParams *shared, Engine *engine, const Replica *member, Error *err)
{
    SharedUpdate update;
    SharedResult result;
    SharedVersion *pin = shared_params_pin(shared);
    const SharedGradient given[] = {{replica_gradients(member), 3}, {replica_gradients(member), 1}};
    uint64_t version = shared_params_version(shared);
    assert_int_equal(shared_params_prepare_update(shared, engine, true, &update), 0);
    int r = shared_params_update(&update, given, 2, &rule, &result, err);
    shared_params_publish(&update);
    assert_int_equal(shared_params_version(shared), version + (r == 0));
    shared_params_unpin(shared, pin);
    return r;
}

static int train_member(Engine *engine, Replica *member, SharedParams *shared, const Batch *batch,
                        Error *err)
{
    StepResult result;
    SharedVersion *version = shared_params_pin(shared);
    replica_attach(member, version);
    int r = replica_gradient(member, batch, 0, &hold, &result, err);
    if (r == 0)
        r = replica_gradient(member, batch, 1, &rule, &result, err);
    replica_attach(member, NULL);
    shared_params_unpin(shared, version);
    return r == 0 ? update(shared, engine, member, err) : r;
}

static int make_shared(void *data)
{
    Fixture *fixture = data;
    Engine *engine = NULL;
    SharedParams *shared = NULL;
    Replica *member = NULL;
    Error err = {0};
    int r = engine_new(engine_spec(fixture->engine), &engine, &err);
    if (r == 0)
        r = shared_params_new(engine, &shared, &err);
    if (r == 0)
        r = replica_new_shared(engine, 0, &member, &err);
    if (r == 0)
        r = train_member(engine, member, shared, &fixture->batch, &err);
    assert_true(r == 0 || err.message[0]);
    replica_free(member);
    shared_params_free(shared);
    if (engine)
        assert_true(engine_bytes(engine) < 1000000);
    engine_free(engine);
    return r;
}

static int copy_shared(void *data)
{
    SharedWorld *world = data;
    Snapshot *shared = NULL, *member = NULL, *model = NULL;
    int r = shared_snapshot_new(world->fixture.graph, &engine_spec(world->engines[0])->optimizer,
                                &shared);
    if (r == 0)
        r = member_snapshot_new(world->fixture.graph, &member);
    if (r == 0)
        r = shared_params_snapshot(world->shared, shared);
    if (r == 0)
        r = replica_snapshot(world->members[1], member);
    if (r == 0)
        r = shared_snapshot_join(shared, (const Snapshot *const[]){member}, 1, &model);
    snapshot_free(shared);
    snapshot_free(member);
    snapshot_free(model);
    return r;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void meetings_survive_failures(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "adam");
    size_t bytes = engine_bytes(group.fixture.engine);
    assert_true(fail_each_allocation(meet_with_centre, &group) >= 8);
    assert_true(fail_each_device_call(meet_with_centre, &group) >= 40);
    assert_true(fail_each_allocation(gather_and_take, &group) >= 3);
    assert_true(fail_each_device_call(gather_and_take, &group) >= 5);
    assert_int_equal(engine_bytes(group.fixture.engine), bytes);
    group_stop(&group);
}

static void shared_parameters_survive_failures(void **state)
{
    (void)state;
    SharedWorld world;
    shared_start(&world, "adam");
    assert_true(fail_each_allocation(make_shared, &world.fixture) >= 20);
    assert_true(fail_each_device_call(make_shared, &world.fixture) >= 40);
    assert_true(fail_each_allocation(copy_shared, &world) >= 10);
    assert_true(fail_each_device_call(copy_shared, &world) >= 3);
    shared_stop(&world);
}

/* An update by copy that fails leaves the version that others read as it was. */
static void failed_update_leaves_the_version_alone(void **state)
{
    (void)state;
    SharedWorld world;
    shared_start(&world, "sgd");
    (void)shared_gradient(&world, 0, 0, &rule);
    Snapshot *before = shared_copy(&world);
    int failures = 0;
    for (unsigned n = 1;; n++) {
        Error err = {0};
        backend_fail_after(n);
        int r = update(world.shared, world.engines[0], world.members[0], &err);
        backend_fail_after(0);
        if (r == 0)
            break;
        assert_string_not_equal(err.message, "");
        shared_assert_at(&world, before);
        failures++;
    }
    assert_true(failures >= 6);
    assert_int_equal(shared_params_versions(world.shared), 2);
    snapshot_free(before);
    shared_stop(&world);
}

static void shared_round(SharedWorld *world, uint64_t step)
{
    SharedGradient given[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        (void)shared_gradient(world, i, 2 * step, &hold);
        (void)shared_gradient(world, i, 2 * step + 1, &rule);
        given[i] = (SharedGradient){replica_gradients(world->members[i]), (uint64_t)i + 1};
    }
    (void)shared_update(world, given, MEMBERS, &rule, false);
    SharedVersion *pins[2];
    for (int i = 0; i < 2; i++) {
        pins[i] = shared_params_pin(world->shared);
        (void)shared_update(world, &given[i], 1, &rule, true);
    }
    for (int i = 0; i < 2; i++)
        shared_params_unpin(world->shared, pins[i]);
}

static void repeated_shared_steps_allocate_nothing(void **state)
{
    (void)state;
    SharedWorld world;
    shared_start(&world, "adam");
    for (uint64_t step = 0; step < 3; step++)
        shared_round(&world, step);
    alloc_count = 0;
    for (uint64_t step = 3; step < 10; step++)
        shared_round(&world, step);
    assert_int_equal(alloc_count, 0);
    shared_stop(&world);
}

static void meetings_allocate_nothing(void **state)
{
    (void)state;
    static const uint64_t samples[GROUP] = {1, 2, 3};
    const MeanSpec spec = {.samples = samples, .states = MEAN_STATES_AVERAGE};
    Group group;
    Centre *centre;
    Snapshot *copies[GROUP];
    MeanResult result;
    group_start(&group, "adam");
    assert_int_equal(centre_new(group.fixture.engine, true, &centre, NULL), 0);
    for (int i = 0; i < GROUP; i++)
        assert_int_equal(gather_copy_new(group.fixture.graph, &copies[i]), 0);
    alloc_count = 0;
    Replica *const *replicas = group.replicas;
    assert_int_equal(replicas_mean(replicas, group_all, GROUP, &spec, &result, NULL), 0);
    assert_int_equal(replicas_elastic(replicas, group_all, GROUP, centre, 0.5F, &result, NULL), 0);
    assert_int_equal(
        replicas_outer(replicas, group_all, GROUP, centre, &outer, &spec, &result, NULL), 0);
    assert_int_equal(gather_copies(replicas, copies, GROUP, NULL), 0);
    assert_int_equal(replica_take_mean(replicas[1], (const Snapshot *const *)copies, samples, GROUP,
                                       &result, NULL),
                     0);
    assert_int_equal(alloc_count, 0);
    group_drop(copies);
    centre_free(centre);
    group_stop(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meetings_survive_failures),
        cmocka_unit_test(shared_parameters_survive_failures),
        cmocka_unit_test(failed_update_leaves_the_version_alone),
        cmocka_unit_test(repeated_shared_steps_allocate_nothing),
        cmocka_unit_test(meetings_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
