/* Shared parameters: versions that stay what they were, gradients that are right for the version
 * that their forward read, and the equivalences of barrier and async. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "shared_world.h"

enum { MAX_PARAMS = 4096 };

static const StepRule plain_step = {.lr = 0.1F};

static SharedGradient gradient_of(const SharedWorld *world, int member, uint64_t samples)
{
    return (SharedGradient){replica_gradients(world->members[member]), samples};
}

/* ---- equivalences --------------------------------------------------------------------------- */

/* In place and by copies in turn. */
static void async_with_one_member_is_plain_training(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"sgd", "sgd,momentum=0.9,nesterov=true", "adam"};
    for (size_t k = 0; k < sizeof optimizers / sizeof optimizers[0]; k++) {
        SharedWorld world;
        Snapshot *member, *model;
        shared_start(&world, optimizers[k]);
        assert_int_equal(member_snapshot_new(world.fixture.graph, &member), 0);
        for (uint64_t step = 0; step < 6; step++) {
            fixture_fill(&world.fixture, (int)step);
            world.fixture.batch.samples = step == 3 ? 4 : FIXTURE_BATCH;
            float loss = fixture_train(&world.fixture, world.fixture.replica, step);
            StepResult result = shared_gradient(&world, 0, step, &plain_step);
            assert_true(result.loss == loss);
            SharedGradient gradient = gradient_of(&world, 0, (uint64_t)result.samples);
            SharedResult done = shared_update(&world, &gradient, 1, &plain_step, step % 2);
            assert_int_equal(done.contributors, 1);
            assert_int_equal(shared_params_version(world.shared), step + 1);
        }
        Snapshot *want = fixture_snapshot(&world.fixture, world.fixture.replica);
        Snapshot *shared = shared_copy(&world);
        assert_int_equal(replica_snapshot(world.members[0], member), 0);
        assert_int_equal(shared_snapshot_join(shared, (const Snapshot *const[]){member}, 1, &model),
                         0);
        fixture_assert_same(want, model);
        assert_int_equal(model->version, want->version);
        snapshot_free(want);
        snapshot_free(shared);
        snapshot_free(member);
        snapshot_free(model);
        shared_stop(&world);
    }
}

/* Bit for bit: gradients of plain engines at the same parameters, their weighted mean in rank order,
 * one step of the optimizer. */
static void barrier_is_one_step_with_the_mean_gradient(void **state)
{
    (void)state;
    static const int64_t samples[MEMBERS] = {FIXTURE_BATCH, 3, 2 * FIXTURE_BATCH};
    static float gradients[MEMBERS][MAX_PARAMS], mean[MAX_PARAMS];
    SharedWorld world;
    shared_start(&world, "sgd,momentum=0.9");
    Snapshot *want = shared_copy(&world);
    for (uint64_t round = 0; round < 4; round++) {
        SharedGradient given[MEMBERS];
        bool equal = round % 2;
        double sum = 0;
        for (int i = 0; i < MEMBERS; i++) {
            fixture_fill(&world.fixture, 10 * (int)round + i);
            world.fixture.batch.samples = equal ? FIXTURE_BATCH : samples[i];
            sum += (double)world.fixture.batch.samples;
            shared_plain_gradient(&world, want, i, round, gradients[i]);
            StepResult result = shared_gradient(&world, i, round, &plain_step);
            given[i] = gradient_of(&world, i, (uint64_t)result.samples);
            assert_memory_equal(given[i].gradients, gradients[i], want->n_params * sizeof(float));
        }
        for (size_t p = 0; p < want->n_params; p++) {
            mean[p] = 0;
            for (int i = 0; i < MEMBERS; i++) {
                float share = equal ? 1 : (float)((double)samples[i] / sum);
                float part = share * gradients[i][p];
                mean[p] = i == 0 ? part : mean[p] + part;
            }
            if (equal)
                mean[p] /= MEMBERS;
        }
        shared_step_copy(&world, want, mean, 0.1F);
        SharedResult result = shared_update(&world, given, MEMBERS, &plain_step, true);
        assert_int_equal(result.contributors, MEMBERS);
        shared_assert_at(&world, want);
    }
    assert_int_equal(shared_params_version(world.shared), 4);
    assert_int_equal(shared_params_versions(world.shared), 1); /* all in place */
    snapshot_free(want);
    shared_stop(&world);
}

/* The same numbers up to rounding: mean(x − lr·g) beside x − lr·mean(g). */
static void average_of_every_step_with_plain_sgd_is_barrier(void **state)
{
    (void)state;
    const bool contributes[MEMBERS] = {true, true, true};
    SharedWorld world;
    Replica *replicas[MEMBERS];
    shared_start(&world, "sgd");
    for (int i = 0; i < MEMBERS; i++)
        assert_int_equal(replica_new(world.fixture.engine, i, &replicas[i], NULL), 0);
    for (uint64_t step = 0; step < 10; step++) {
        SharedGradient given[MEMBERS];
        MeanResult result;
        for (int i = 0; i < MEMBERS; i++) {
            fixture_fill(&world.fixture, 10 * (int)step + i);
            (void)fixture_train(&world.fixture, replicas[i], step);
            (void)shared_gradient(&world, i, step, &plain_step);
            given[i] = gradient_of(&world, i, FIXTURE_BATCH);
        }
        (void)shared_update(&world, given, MEMBERS, &plain_step, true);
        assert_int_equal(replicas_mean(replicas, contributes, MEMBERS, NULL, &result, NULL), 0);
        assert_int_equal(replicas_mean(world.members, contributes, MEMBERS, NULL, &result, NULL),
                         0);
    }
    Snapshot *shared = shared_copy(&world);
    for (size_t p = 0; p < shared->n_params; p++)
        assert_true(fabsf(shared->params[p] - replica_weights(replicas[0])->params[p]) < 1e-5F);
    for (size_t b = 0; b < replica_weights(replicas[0])->n_buffers; b++)
        assert_true(fabsf(replica_weights(world.members[1])->buffers[b] -
                          replica_weights(replicas[1])->buffers[b]) < 1e-5F);
    assert_int_equal(replica_weights(world.members[2])->counters[0], 10);
    snapshot_free(shared);
    for (int i = 0; i < MEMBERS; i++)
        replica_free(replicas[i]);
    shared_stop(&world);
}

/* ---- the case that kills the original example ----------------------------------------------- */

/* A forward, B forward, A backward and step, B backward and step. */
static void interleaved_gradients_are_those_of_a_plain_engine(void **state)
{
    (void)state;
    static float plain_a[MAX_PARAMS], plain_b[MAX_PARAMS];
    enum { A = 1, B = 2 };
    for (int early = 0; early < 28; early += 27) {
        SharedWorld world;
        Error err = {0};
        shared_start(&world, "sgd,momentum=0.9");
        for (int i = 0; i < early; i++) {
            (void)shared_gradient(&world, 0, (uint64_t)i, &plain_step);
            SharedGradient gradient = gradient_of(&world, 0, FIXTURE_BATCH);
            (void)shared_update(&world, &gradient, 1, &plain_step, true);
        }
        Snapshot *want = shared_copy(&world);
        fixture_fill(&world.fixture, 5);
        shared_plain_gradient(&world, want, A, 40, plain_a);
        Context *a = shared_forward(&world, A, 40);
        fixture_fill(&world.fixture, 6);
        shared_plain_gradient(&world, want, B, 41, plain_b);
        Context *b = shared_forward(&world, B, 41);

        fixture_fill(&world.fixture, 5);
        (void)shared_backward(&world, A, a);
        SharedGradient of_a = {context_gradients(a), (uint64_t)context_samples(a)};
        assert_int_equal(shared_params_check(world.shared, context_version(a), 0, &err), 0);
        (void)shared_update(&world, &of_a, 1, &plain_step, true);
        fixture_fill(&world.fixture, 6);
        (void)shared_backward(&world, B, b);
        SharedGradient of_b = {context_gradients(b), (uint64_t)context_samples(b)};
        size_t bytes = want->n_params * sizeof(float);
        assert_memory_equal(of_a.gradients, plain_a, bytes);
        assert_memory_equal(of_b.gradients, plain_b, bytes);
        assert_int_equal(shared_params_check(world.shared, context_version(b), 0, &err), -ESTALE);
        if (early)
            assert_string_equal(err.message,
                                "conv1.weight is at version 28; this gradient was computed at "
                                "version 27 (max_staleness 0)");
        assert_int_equal(shared_params_check(world.shared, context_version(b), 1, &err), 0);
        (void)shared_update(&world, &of_b, 1, &plain_step, true);
        shared_step_copy(&world, want, plain_a, 0.1F);
        shared_step_copy(&world, want, plain_b, 0.1F);
        shared_assert_at(&world, want);
        assert_int_equal(shared_params_version(world.shared), early + 2);
        assert_int_equal(shared_params_versions(world.shared), 2);
        context_free(a);
        context_free(b);
        snapshot_free(want);
        shared_stop(&world);
    }
}

static void context_outlives_any_number_of_updates(void **state)
{
    (void)state;
    static float plain[MAX_PARAMS];
    SharedWorld world;
    shared_start(&world, "adam");
    Snapshot *start = shared_copy(&world);
    shared_plain_gradient(&world, start, 2, 9, plain);
    Context *context = shared_forward(&world, 2, 9);
    for (uint64_t step = 0; step < 8; step++) {
        int member = (int)step % MEMBERS; /* the context's own one too */
        fixture_fill(&world.fixture, (int)step + 1);
        (void)shared_gradient(&world, member, step, &plain_step);
        SharedGradient gradient = gradient_of(&world, member, FIXTURE_BATCH);
        (void)shared_update(&world, &gradient, 1, &plain_step, true);
        assert_int_equal(shared_params_versions(world.shared), 2); /* one copy, not one each */
    }
    fixture_fill(&world.fixture, 0);
    (void)shared_backward(&world, 2, context);
    assert_memory_equal(context_gradients(context), plain, start->n_params * sizeof(float));
    assert_int_equal(context_version(context), 0);
    assert_int_equal(shared_params_version(world.shared), 8);
    context_free(context);
    snapshot_free(start);
    shared_stop(&world);
}

/* ---- versions ------------------------------------------------------------------------------- */

static void update_is_in_place_only_where_nobody_holds_the_version(void **state)
{
    (void)state;
    SharedWorld world;
    SharedUpdate update, second;
    SharedResult result;
    shared_start(&world, "sgd");
    (void)shared_gradient(&world, 0, 0, &plain_step);
    SharedGradient gradient = gradient_of(&world, 0, 1);
    SharedVersion *pin = shared_params_pin(world.shared);
    assert_int_equal(shared_params_prepare_update(world.shared, world.engines[0], true, &update),
                     0);
    assert_false(update.in_place);
    assert_int_equal(shared_params_prepare_update(world.shared, world.engines[0], true, &second),
                     -EBUSY);
    SharedVersion *other = shared_params_pin(world.shared); /* as it was, meanwhile */
    assert_ptr_equal(other, pin);
    Snapshot *before = shared_copy(&world);
    uint64_t checksum = 0, again = 1;
    assert_int_equal(shared_version_checksum(world.shared, pin, &checksum), 0);
    assert_int_equal(shared_params_update(&update, &gradient, 1, &plain_step, &result, NULL), 0);
    assert_int_equal(shared_params_version(world.shared), 0);
    shared_params_publish(&update);
    assert_int_equal(shared_params_version(world.shared), 1);
    assert_int_equal(shared_version_number(pin), 0);
    assert_int_equal(shared_version_checksum(world.shared, pin, &again), 0);
    assert_int_equal(checksum, again);
    assert_int_equal(checksum, snapshot_checksum(world.fixture.graph, before));
    shared_version_hold(pin);
    for (int i = 0; i < 3; i++)
        shared_params_unpin(world.shared, pin);

    assert_int_equal(shared_params_prepare_update(world.shared, world.engines[0], false, &update),
                     0);
    assert_false(update.in_place);
    shared_params_publish(&update); /* it was never run */
    assert_int_equal(shared_params_version(world.shared), 1);
    assert_int_equal(shared_params_prepare_update(world.shared, world.engines[0], true, &update),
                     0);
    assert_true(update.in_place);
    assert_null(shared_params_pin(world.shared));
    assert_int_equal(shared_params_update(&update, &gradient, 1, &plain_step, &result, NULL), 0);
    shared_params_publish(&update);
    pin = shared_params_pin(world.shared);
    assert_int_equal(shared_version_number(pin), 2);
    shared_params_unpin(world.shared, pin);
    shared_params_unpin(world.shared, NULL);
    assert_int_equal(shared_params_versions(world.shared), 2);
    snapshot_free(before);
    shared_stop(&world);
}

static size_t all_bytes(const SharedWorld *world)
{
    size_t bytes = 0;
    for (int i = 0; i < MEMBERS; i++)
        bytes += engine_bytes(world->engines[i]);
    return bytes;
}

static void versions_that_nobody_needs_are_freed_bit_by_bit(void **state)
{
    (void)state;
    enum { PINS = 12 };
    SharedWorld world;
    SharedVersion *pins[PINS];
    shared_start(&world, "sgd");
    (void)shared_gradient(&world, 0, 0, &plain_step);
    SharedGradient gradient = gradient_of(&world, 0, 1);
    size_t before = all_bytes(&world);
    for (int i = 0; i < PINS; i++) {
        pins[i] = shared_params_pin(world.shared);
        (void)shared_update(&world, &gradient, 1, &plain_step, true);
    }
    assert_int_equal(shared_params_versions(world.shared), PINS + 1);
    size_t array = graph_params_length(world.fixture.graph) * sizeof(float);
    assert_int_equal(all_bytes(&world), before + PINS * array);
    for (int i = 0; i < PINS; i++)
        shared_params_unpin(world.shared, pins[i]);
    SharedUpdate given_up; /* one that is published without having run loses nothing */
    assert_int_equal(shared_params_prepare_update(world.shared, world.engines[1], true, &given_up),
                     0);
    shared_params_publish(&given_up);
    for (int i = 0; i < 2 * PINS; i++) {
        pins[0] = shared_params_pin(world.shared);
        (void)shared_update(&world, &gradient, 1, &plain_step, true);
        shared_params_unpin(world.shared, pins[0]);
    }
    assert_true(shared_params_versions(world.shared) <= 6);
    assert_int_equal(all_bytes(&world),
                     before + (size_t)(shared_params_versions(world.shared) - 1) * array);
    shared_stop(&world);
}

/* ---- gradients that are left out, and clipping ---------------------------------------------- */

static void bad_gradients_are_left_out_and_named(void **state)
{
    (void)state;
    static float good[MAX_PARAMS], bad[MAX_PARAMS], long_one[MAX_PARAMS];
    SharedWorld world;
    shared_start(&world, "sgd");
    Snapshot *want = shared_copy(&world);
    shared_plain_gradient(&world, want, 0, 0, good);
    memcpy(bad, good, sizeof bad);
    bad[7] = NAN;
    double norm2 = 0;
    for (size_t i = 0; i < want->n_params; i++) {
        long_one[i] = 100 * good[i];
        norm2 += (double)good[i] * (double)good[i];
    }
    const SharedGradient given[] = {{bad, 9}, {good, 3}, {long_one, 9}};
    const StepRule rule = {.lr = 0.1F, .norm_limit = 2 * sqrt(norm2), .want_norm = true};
    SharedResult result = shared_update(&world, given, 3, &rule, true);
    assert_int_equal(result.verdicts[0], STEP_NOT_FINITE);
    assert_int_equal(result.verdicts[1], STEP_APPLIED);
    assert_int_equal(result.verdicts[2], STEP_OVER_LIMIT);
    assert_int_equal(result.contributors, 1);
    assert_true(fabs(result.norms[2] - 100 * sqrt(norm2)) < 1e-3 * result.norms[2]);
    assert_true(result.norm == result.norms[1]);
    shared_step_copy(&world, want, good, 0.1F);
    shared_assert_at(&world, want);

    /* NaN is found even where no norm is asked for; without any gradient there is no step */
    for (int may_wait = 0; may_wait < 2; may_wait++) {
        result = shared_update(&world, given, 1, &plain_step, may_wait);
        assert_int_equal(result.verdicts[0], STEP_NOT_FINITE);
        assert_int_equal(result.contributors, 0);
        assert_int_equal(shared_params_version(world.shared), 1);
        shared_assert_at(&world, want);
    }
    snapshot_free(want);
    shared_stop(&world);
}

static void shared_steps_are_clipped_and_gradients_only_read(void **state)
{
    (void)state;
    static float a[MAX_PARAMS], b[MAX_PARAMS], copy[MAX_PARAMS], mean[MAX_PARAMS];
    for (int count = 1; count <= 2; count++) {
        SharedWorld world;
        shared_start(&world, "sgd");
        Snapshot *want = shared_copy(&world);
        size_t n = want->n_params;
        shared_plain_gradient(&world, want, 0, 0, a);
        shared_plain_gradient(&world, want, 1, 0, b);
        memcpy(copy, a, sizeof copy);
        double norm2 = 0;
        for (size_t i = 0; i < n; i++) {
            mean[i] = count == 1 ? a[i] : (a[i] + b[i]) / 2;
            norm2 += (double)mean[i] * (double)mean[i];
        }
        const float clip = (float)(sqrt(norm2) / 4);
        const SharedGradient given[] = {{a, 6}, {b, 6}};
        const StepRule rule = {.lr = 0.1F, .clip_norm = clip};
        SharedResult result = shared_update(&world, given, count, &rule, true);
        assert_true(fabs(result.norm - sqrt(norm2)) < 1e-9 * result.norm);
        float factor = (float)((double)clip / (result.norm + 1e-6));
        for (size_t i = 0; i < n; i++)
            mean[i] *= factor;
        shared_step_copy(&world, want, mean, 0.1F);
        shared_assert_at(&world, want);
        assert_memory_equal(a, copy, sizeof copy);
        snapshot_free(want);
        shared_stop(&world);
    }
}

/* ---- members -------------------------------------------------------------------------------- */

static void members_accumulate_like_plain_replicas(void **state)
{
    (void)state;
    static float first[MAX_PARAMS], second[MAX_PARAMS];
    const StepRule hold = {.lr = 0.1F, .hold = true};
    SharedWorld world;
    StepResult result;
    Error err = {0};
    shared_start(&world, "sgd");
    Snapshot *at = shared_copy(&world);
    shared_plain_gradient(&world, at, 1, 0, first);
    result = shared_gradient(&world, 1, 0, &hold);
    assert_int_equal(result.verdict, STEP_HELD);
    world.fixture.batch.samples = 2;
    shared_plain_gradient(&world, at, 1, 1, second);
    /* the second by a context: the two ways share what is held */
    Context *context = shared_forward(&world, 1, 1);
    assert_int_equal(replica_take_gradient(world.members[1], context, &plain_step, &result, &err),
                     -ENODATA);
    (void)shared_backward(&world, 1, context);
    assert_int_equal(replica_take_gradient(world.members[1], context, &plain_step, &result, &err),
                     0);
    context_free(context);
    assert_int_equal(result.verdict, STEP_APPLIED);
    assert_int_equal(result.samples, FIXTURE_BATCH + 2);
    const float *got = replica_gradients(world.members[1]);
    for (size_t i = 0; i < at->n_params; i++) {
        float sum = (float)FIXTURE_BATCH * first[i];
        float part = 2 * second[i];
        sum = sum + part;
        assert_true(got[i] == (float)(1.0 / (FIXTURE_BATCH + 2)) * sum);
    }
    snapshot_free(at);
    shared_stop(&world);
}

static void members_evaluate_what_they_are_given(void **state)
{
    (void)state;
    SharedWorld world;
    Evaluation plain = {0}, shared = {0};
    shared_start(&world, "sgd");
    SharedVersion *version = shared_params_pin(world.shared);
    replica_attach(world.members[2], version);
    assert_int_equal(replica_evaluate(world.members[2], &world.fixture.batch, &shared, NULL), 0);
    replica_attach(world.members[2], NULL);
    shared_params_unpin(world.shared, version);
    assert_int_equal(replica_evaluate(world.fixture.replica, &world.fixture.batch, &plain, NULL),
                     0);
    assert_true(plain.loss_sum == shared.loss_sum && plain.correct == shared.correct);
    shared_stop(&world);
}

static void wrong_uses_are_refused(void **state)
{
    (void)state;
    SharedWorld world;
    StepResult result;
    MeanResult mean;
    Error err = {0};
    const bool contributes[MEMBERS] = {true, true, true};
    shared_start(&world, "sgd");
    const Batch *batch = &world.fixture.batch;
    Replica *member = world.members[0];
    assert_true(replica_is_shared(member) && !replica_is_shared(world.fixture.replica));
    assert_int_equal(replica_train(member, batch, 0, &plain_step, &result, &err), -EINVAL);
    assert_int_equal(replica_gradient(member, batch, 0, &plain_step, &result, &err), -EINVAL);
    assert_string_equal(err.message, "no parameters are attached to replica 0");
    assert_int_equal(replica_gradient(world.fixture.replica, batch, 0, &plain_step, &result, &err),
                     -EINVAL);
    Replica *mixed[] = {world.members[0], world.fixture.replica};
    assert_int_equal(replicas_mean(mixed, contributes, 2, NULL, &mean, &err), -EINVAL);
    SharedVersion *version = shared_params_pin(world.shared);
    replica_attach(member, version);
    assert_int_equal(replicas_mean(world.members, contributes, MEMBERS, NULL, &mean, &err),
                     -EINVAL);
    replica_attach(member, NULL);
    Snapshot *snapshot = shared_copy(&world);
    assert_int_equal(shared_params_restore(world.shared, snapshot), -EINVAL); /* it is pinned */
    shared_params_unpin(world.shared, version);
    assert_int_equal(shared_params_restore(world.shared, snapshot), 0);
    assert_int_equal(shared_params_check(world.shared, 77, 5, &err), -ESTALE); /* of the future */
    snapshot_free(snapshot);
    shared_stop(&world);
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static void one_more_step(SharedWorld *world, uint64_t step)
{
    SharedGradient given[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        fixture_fill(&world->fixture, 20 + i);
        (void)shared_gradient(world, i, step, &plain_step);
        given[i] = gradient_of(world, i, FIXTURE_BATCH);
    }
    (void)shared_update(world, given, MEMBERS, &plain_step, true);
}

static void shared_job_goes_on_from_its_snapshots(void **state)
{
    (void)state;
    SharedWorld a, b;
    Snapshot *members[MEMBERS], *again;
    shared_start(&a, "adam");
    shared_start(&b, "adam");
    for (uint64_t step = 0; step < 3; step++)
        one_more_step(&a, step);
    Snapshot *shared = shared_copy(&a);
    assert_int_equal(shared->version, 3);
    assert_int_equal(shared->n_buffers + shared->n_counters, 0);
    assert_int_equal(shared_params_restore(b.shared, shared), 0);
    assert_int_equal(shared_params_version(b.shared), 4);
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(member_snapshot_new(a.fixture.graph, &members[i]), 0);
        assert_int_equal(members[i]->n_params, 0);
        assert_int_equal(replica_snapshot(a.members[i], members[i]), 0);
        assert_int_equal(replica_restore(b.members[i], members[i]), 0);
    }
    one_more_step(&a, 3);
    one_more_step(&b, 3);
    again = shared_copy(&a);
    shared_assert_at(&b, again);
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(replica_weights(b.members[i])->counters[0], 4);
        assert_memory_equal(replica_weights(a.members[i])->buffers,
                            replica_weights(b.members[i])->buffers,
                            members[i]->n_buffers * sizeof(float));
        snapshot_free(members[i]);
    }
    snapshot_free(shared);
    snapshot_free(again);
    shared_stop(&a);
    shared_stop(&b);
}

/* A job that changes its policy: full snapshots serve both kinds. */
static void full_snapshots_move_between_plain_and_shared(void **state)
{
    (void)state;
    SharedWorld world;
    shared_start(&world, "sgd,momentum=0.9");
    for (uint64_t step = 0; step < 3; step++)
        (void)fixture_train(&world.fixture, world.fixture.replica, step);
    Snapshot *plain = fixture_snapshot(&world.fixture, world.fixture.replica);
    assert_int_equal(shared_params_restore(world.shared, plain), 0);
    assert_int_equal(replica_restore(world.members[1], plain), 0);
    Snapshot *full = fixture_snapshot(&world.fixture, world.fixture.replica);
    memset(full->params, 0, full->n_params * sizeof(float));
    memset(full->states[0], 0, full->n_params * sizeof(float));
    memset(full->buffers, 0, full->n_buffers * sizeof(float));
    full->updates = 0;
    assert_int_equal(shared_params_snapshot(world.shared, full), 0);
    assert_int_equal(replica_snapshot(world.members[1], full), 0);
    fixture_assert_same(plain, full);
    snapshot_free(plain);
    snapshot_free(full);
    shared_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(async_with_one_member_is_plain_training),
        cmocka_unit_test(barrier_is_one_step_with_the_mean_gradient),
        cmocka_unit_test(average_of_every_step_with_plain_sgd_is_barrier),
        cmocka_unit_test(interleaved_gradients_are_those_of_a_plain_engine),
        cmocka_unit_test(context_outlives_any_number_of_updates),
        cmocka_unit_test(update_is_in_place_only_where_nobody_holds_the_version),
        cmocka_unit_test(versions_that_nobody_needs_are_freed_bit_by_bit),
        cmocka_unit_test(bad_gradients_are_left_out_and_named),
        cmocka_unit_test(shared_steps_are_clipped_and_gradients_only_read),
        cmocka_unit_test(members_accumulate_like_plain_replicas),
        cmocka_unit_test(members_evaluate_what_they_are_given),
        cmocka_unit_test(wrong_uses_are_refused),
        cmocka_unit_test(shared_job_goes_on_from_its_snapshots),
        cmocka_unit_test(full_snapshots_move_between_plain_and_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
