/* Every allocation and every call to the device on the way fails once: the right error comes back,
 * nothing leaks (under ASan), and what was there before still works. And a repeated step allocates
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "fixture.h"
#include "replica/lane.h"

/* ---- allocations that fail ------------------------------------------------------------------- */

static int allocations, fail_at; /* 0: none fails */

static bool fails(void)
{
    return ++allocations == fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* Runs `attempt` with its first, second, … allocation failing, until all are through. */
static int fail_each_allocation(int (*attempt)(void *data), void *data)
{
    for (int n = 1;; n++) {
        allocations = 0;
        fail_at = n;
        int r = attempt(data);
        fail_at = 0;
        if (allocations < n) {
            assert_int_equal(r, 0);
            return n - 1;
        }
        assert_int_equal(r, -ENOMEM);
    }
}

/* The same for calls to the device; which error comes depends on the call. */
static int fail_each_device_call(int (*attempt)(void *data), void *data)
{
    for (unsigned n = 1; n < 1000; n++) {
        backend_fail_after(n);
        int r = attempt(data);
        backend_fail_after(0);
        if (r == 0)
            return (int)n - 1;
        assert_true(r == -EIO || r == -ENOMEM);
    }
    fail_msg("no end of failures");
    return 0;
}

/* ---- what is attempted ----------------------------------------------------------------------- */

static int build_graph(void *data)
{
    (void)data;
    static const ConvAttrs conv = {4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};
    Shape input = {4, {DIM_BATCH, 1, 6, 6}};
    Graph *graph;
    Error err = {0};
    int r = graph_new(&input, &graph);
    if (r < 0)
        return r;
    ValueId v = 0;
    for (int i = 0; i < 20; i++) {
        char name[] = {'c', (char)('a' + i), '\0'};
        v = graph_conv2d(graph, name, v, &conv);
    }
    r = graph_finish(graph, v, &err);
    assert_true(r == 0 || err.message[0]);
    graph_free(graph);
    return r;
}

static int make_everything(void *data)
{
    Fixture *fixture = data;
    EngineSpec spec = *engine_spec(fixture->engine);
    Engine *engine = NULL;
    Replica *replica = NULL;
    Error err = {0};
    StepResult result;
    int r = engine_new(&spec, &engine, &err);
    if (r == 0)
        r = replica_new(engine, 0, &replica, &err);
    if (r == 0)
        r = replica_train(replica, &fixture->batch, 0, 0.1F, &result, &err);
    assert_true(r == 0 || err.message[0]);
    replica_free(replica);
    engine_free(engine);
    return r;
}

static int step_by_calls(void *data)
{
    Fixture *fixture = data;
    Engine *engine = NULL;
    Replica *replica = NULL;
    Context *context = NULL;
    float output[FIXTURE_BATCH * FIXTURE_CLASSES], gradient[FIXTURE_BATCH * FIXTURE_CLASSES];
    double norm;
    Error err = {0};
    fixture_nll_gradient(fixture->y, FIXTURE_BATCH, gradient);
    int r = engine_new(engine_spec(fixture->engine), &engine, &err);
    if (r == 0)
        r = replica_new(engine, 0, &replica, &err);
    if (r == 0)
        r = replica_forward(replica, &fixture->batch, 0, 0, output, &context, &err);
    if (r == 0)
        r = replica_backward(replica, context, gradient, &norm, &err);
    if (r == 0)
        r = replica_step(replica, context, 0.1F, &err);
    assert_true(r == 0 || err.message[0]);
    context_free(context);
    replica_free(replica);
    engine_free(engine);
    return r;
}

static int evaluate_and_copy(void *data)
{
    Fixture *fixture = data;
    Snapshot *snapshot = NULL, *mean = NULL;
    Evaluation total = {0};
    MeanResult result;
    const bool contributes = true;
    int r = replica_evaluate(fixture->replica, &fixture->batch, &total, NULL);
    if (r == 0)
        r = snapshot_new(fixture->graph, &engine_spec(fixture->engine)->optimizer, &snapshot);
    if (r == 0)
        r = replica_snapshot(fixture->replica, snapshot);
    if (r == 0)
        r = snapshot_mean((const Snapshot *const[]){snapshot}, 1, &mean);
    if (r == 0)
        r = replica_restore(fixture->replica, snapshot);
    if (r == 0)
        r = replicas_mean(&fixture->replica, &contributes, 1, &result, NULL);
    snapshot_free(snapshot);
    snapshot_free(mean);
    return r;
}

static int make_lane(void *data)
{
    Lane *lane;
    int r = lane_new("cpu:0", 0, data, &lane);
    if (r == 0)
        lane_free(lane);
    return r;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void graph_survives_failing_allocations(void **state)
{
    (void)state;
    assert_true(fail_each_allocation(build_graph, NULL) >= 8);
}

static void engine_survives_failing_allocations(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "adam");
    assert_true(fail_each_allocation(make_everything, &fixture) >= 20);
    assert_true(fail_each_allocation(step_by_calls, &fixture) >= 20);
    assert_true(isfinite(fixture_train(&fixture, fixture.replica, 0)));
    fixture_stop(&fixture);
}

static void snapshots_survive_failing_allocations(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "adam");
    (void)fixture_train(&fixture, fixture.replica, 0);
    Snapshot *before = fixture_snapshot(&fixture, fixture.replica);
    assert_true(fail_each_allocation(evaluate_and_copy, &fixture) >= 8);
    Snapshot *after = fixture_snapshot(&fixture, fixture.replica);
    fixture_assert_same(before, after);
    snapshot_free(before);
    snapshot_free(after);
    fixture_stop(&fixture);
}

static void lane_survives_failing_allocations(void **state)
{
    (void)state;
    Mailbox *loop;
    assert_int_equal(mailbox_new(&loop), 0);
    assert_true(fail_each_allocation(make_lane, loop) >= 3);
    mailbox_free(loop);
}

static void failing_device_is_reported(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "adam");
    assert_true(fail_each_device_call(make_everything, &fixture) >= 40);
    assert_true(fail_each_device_call(step_by_calls, &fixture) >= 40);
    assert_true(fail_each_device_call(evaluate_and_copy, &fixture) >= 20);
    fixture_stop(&fixture);
}

static void repeated_step_allocates_nothing(void **state)
{
    (void)state;
    for (int b = 0; b < backend_count(); b++) {
        Fixture fixture;
        fixture_start(&fixture, "sgd,momentum=0.9");
        EngineSpec spec = *engine_spec(fixture.engine);
        Engine *engine;
        Replica *replica;
        spec.backend = backend_entry(b);
        assert_int_equal(engine_new(&spec, &engine, NULL), 0);
        engine_bind(engine);
        assert_int_equal(replica_new(engine, 0, &replica, NULL), 0);
        for (uint64_t step = 0; step < 4; step++) {
            fixture.batch.samples = step % 2 ? FIXTURE_BATCH : 2;
            (void)fixture_train(&fixture, replica, step);
        }
        allocations = 0;
        for (uint64_t step = 4; step < 10; step++) {
            fixture.batch.samples = step % 2 ? FIXTURE_BATCH : 2;
            (void)fixture_train(&fixture, replica, step);
        }
        if (allocations > 0)
            fail_msg("%s: %d allocations in 6 steps", spec.backend->name, allocations);
        replica_free(replica);
        engine_free(engine);
        fixture_stop(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_survives_failing_allocations),
        cmocka_unit_test(engine_survives_failing_allocations),
        cmocka_unit_test(snapshots_survive_failing_allocations),
        cmocka_unit_test(lane_survives_failing_allocations),
        cmocka_unit_test(failing_device_is_reported),
        cmocka_unit_test(repeated_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
