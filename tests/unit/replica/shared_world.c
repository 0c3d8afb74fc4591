#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "backend/cpu_math.h"
#include "shared_world.h"

enum { OUTPUT = 2 * FIXTURE_BATCH * FIXTURE_CLASSES };

void shared_start(SharedWorld *world, const char *optimizer)
{
    Error err = {0};
    fixture_start(&world->fixture, optimizer);
    for (int i = 0; i < MEMBERS; i++) {
        fixture_engine(world->fixture.graph, optimizer, &world->engines[i]);
        if (replica_new_shared(world->engines[i], i, &world->members[i], &err) < 0)
            fail_msg("%s", err.message);
    }
    if (shared_params_new(world->engines[0], &world->shared, &err) < 0)
        fail_msg("%s", err.message);
}

void shared_stop(SharedWorld *world)
{
    for (int i = 0; i < MEMBERS; i++)
        replica_free(world->members[i]);
    shared_params_free(world->shared);
    for (int i = 0; i < MEMBERS; i++)
        engine_free(world->engines[i]);
    fixture_stop(&world->fixture);
}

StepResult shared_gradient(SharedWorld *world, int member, uint64_t step, const StepRule *rule)
{
    StepResult result = {0};
    Error err = {0};
    Replica *replica = world->members[member];
    SharedVersion *version = shared_params_pin(world->shared);
    assert_non_null(version);
    replica_attach(replica, version);
    if (replica_gradient(replica, &world->fixture.batch, step, rule, &result, &err) < 0)
        fail_msg("%s", err.message);
    replica_attach(replica, NULL);
    shared_params_unpin(world->shared, version);
    return result;
}

SharedResult shared_update(SharedWorld *world, const SharedGradient *gradients, int count,
                           const StepRule *rule, bool may_wait)
{
    SharedUpdate update;
    SharedResult result;
    Error err = {0};
    assert_int_equal(
        shared_params_prepare_update(world->shared, world->engines[1], may_wait, &update), 0);
    if (shared_params_update(&update, gradients, count, rule, &result, &err) < 0)
        fail_msg("%s", err.message);
    shared_params_publish(&update);
    return result;
}

Context *shared_forward(SharedWorld *world, int member, uint64_t step)
{
    static float output[OUTPUT];
    Context *context;
    Error err = {0};
    SharedVersion *version = shared_params_pin(world->shared);
    replica_attach(world->members[member], version);
    if (replica_forward(world->members[member], &world->fixture.batch, step, 0, output, &context,
                        &err) < 0)
        fail_msg("%s", err.message);
    replica_attach(world->members[member], NULL);
    assert_ptr_equal(context_pinned(context), version);
    return context; /* the task's pin has become the context's */
}

double shared_backward(SharedWorld *world, int member, Context *context)
{
    static float by[OUTPUT];
    double norm;
    Error err = {0};
    SharedVersion *version = context_pinned(context);
    fixture_nll_gradient(world->fixture.batch.y, context_samples(context), by);
    if (replica_backward(world->members[member], context, by, &norm, &err) < 0)
        fail_msg("%s", err.message);
    assert_null(context_pinned(context));
    shared_params_unpin(world->shared, version);
    return norm;
}

Snapshot *shared_copy(const SharedWorld *world)
{
    Snapshot *snapshot;
    const Optimizer *optimizer = &engine_spec(world->engines[0])->optimizer;
    assert_int_equal(shared_snapshot_new(world->fixture.graph, optimizer, &snapshot), 0);
    assert_int_equal(shared_params_snapshot(world->shared, snapshot), 0);
    return snapshot;
}

void shared_plain_gradient(const SharedWorld *world, const Snapshot *at, int rank, uint64_t step,
                           float *gradient)
{
    static float output[OUTPUT], by[OUTPUT];
    Replica *plain;
    Context *context;
    double norm;
    const Batch *batch = &world->fixture.batch;
    assert_int_equal(replica_new(world->fixture.engine, rank, &plain, NULL), 0);
    memcpy(replica_weights(plain)->params, at->params, at->n_params * sizeof(float));
    fixture_nll_gradient(batch->y, batch->samples, by);
    assert_int_equal(replica_forward(plain, batch, step, 0, output, &context, NULL), 0);
    assert_int_equal(replica_backward(plain, context, by, &norm, NULL), 0);
    memcpy(gradient, context_gradients(context), at->n_params * sizeof *gradient);
    context_free(context);
    replica_free(plain);
}

void shared_step_copy(const SharedWorld *world, Snapshot *snapshot, const float *gradient, float lr)
{
    Optimizer optimizer = engine_spec(world->engines[0])->optimizer;
    optimizer.lr = lr;
    cpu_optimizer_step(&optimizer, ++snapshot->updates, snapshot->params, gradient,
                       snapshot->states, snapshot->n_params);
}

void shared_assert_at(const SharedWorld *world, const Snapshot *want)
{
    Snapshot *got = shared_copy(world);
    fixture_assert_same(want, got);
    snapshot_free(got);
}
