/* The mean of replicas: rank order, the sick kept out and healed, counters, checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "fixture.h"

enum { N = 3 };

static const bool all_contribute[N] = {true, true, true};

typedef struct Group {
    Fixture fixture;
    Replica *replicas[N];
} Group;

/* Three replicas that trained on different data for 1, 2 and 3 steps. */
static void start(Group *group, const char *optimizer)
{
    fixture_start(&group->fixture, optimizer);
    group->replicas[0] = group->fixture.replica;
    for (int i = 1; i < N; i++)
        assert_int_equal(replica_new(group->fixture.engine, i, &group->replicas[i], NULL), 0);
    for (int i = 0; i < N; i++) {
        fixture_fill(&group->fixture, i);
        for (int step = 0; step <= i; step++)
            (void)fixture_train(&group->fixture, group->replicas[i], (uint64_t)step);
    }
}

static void stop(Group *group)
{
    for (int i = 1; i < N; i++)
        replica_free(group->replicas[i]);
    fixture_stop(&group->fixture);
}

static MeanResult mean(Group *group, const bool *contributes)
{
    MeanResult result;
    Error err = {0};
    if (replicas_mean(group->replicas, contributes, N, NULL, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static void snapshots(Group *group, Snapshot **ret)
{
    for (int i = 0; i < N; i++)
        ret[i] = fixture_snapshot(&group->fixture, group->replicas[i]);
}

static void drop(Snapshot **taken)
{
    for (int i = 0; i < N; i++)
        snapshot_free(taken[i]);
}

/* `ref` computes on host memory, so that a test can put anything into a replica. */
static void spoil(Replica *replica, float value)
{
    replica_weights(replica)->params[5] = value;
}

static void all_get_the_mean_in_rank_order(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    start(&group, "sgd,momentum=0.9");
    snapshots(&group, before);
    MeanResult result = mean(&group, all_contribute);
    snapshots(&group, after);
    assert_int_equal(result.contributors, N);
    for (size_t i = 0; i < before[0]->n_params; i++) {
        float sum = before[0]->params[i] + before[1]->params[i] + before[2]->params[i];
        for (int r = 0; r < N; r++)
            assert_true(after[r]->params[i] == sum / N);
    }
    for (size_t i = 0; i < before[0]->n_buffers; i++) {
        float sum = before[0]->buffers[i] + before[1]->buffers[i] + before[2]->buffers[i];
        for (int r = 0; r < N; r++)
            assert_true(after[r]->buffers[i] == sum / N);
    }
    for (int r = 0; r < N; r++) {
        assert_true(result.finite[r]);
        assert_int_equal(after[r]->counters[0], 3); /* the most that one has counted */
        assert_int_equal(after[r]->version, before[r]->version + 1);
        assert_int_equal(after[r]->updates, before[r]->updates);
        assert_memory_equal(after[r]->states[0], before[r]->states[0],
                            before[r]->n_params * sizeof(float));
        assert_int_equal(snapshot_checksum(group.fixture.graph, after[r]), result.checksum);
    }
    drop(before);
    drop(after);
    stop(&group);
}

static void snapshot_mean_is_the_same_arithmetic(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *of_snapshots;
    start(&group, "sgd,momentum=0.9");
    snapshots(&group, before);
    assert_int_equal(snapshot_mean((const Snapshot *const *)before, N, &of_snapshots), 0);
    MeanResult result = mean(&group, all_contribute);
    Snapshot *of_replicas = fixture_snapshot(&group.fixture, group.replicas[2]);
    assert_memory_equal(of_snapshots->params, of_replicas->params,
                        of_replicas->n_params * sizeof(float));
    assert_memory_equal(of_snapshots->buffers, of_replicas->buffers,
                        of_replicas->n_buffers * sizeof(float));
    assert_int_equal(of_snapshots->counters[0], of_replicas->counters[0]);
    assert_int_equal(snapshot_checksum(group.fixture.graph, of_snapshots), result.checksum);
    for (size_t i = 0; i < of_snapshots->n_params; i++)
        assert_true(of_snapshots->states[0][i] == 0);
    snapshot_free(of_snapshots);
    snapshot_free(of_replicas);
    drop(before);
    stop(&group);
}

static void sick_replica_is_kept_out_and_healed(void **state)
{
    (void)state;
    static const float sick[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < sizeof sick / sizeof sick[0]; k++) {
        Group group;
        Snapshot *before[N], *after[N];
        start(&group, "sgd,momentum=0.9");
        snapshots(&group, before);
        spoil(group.replicas[1], sick[k]);
        replica_weights(group.replicas[1])->states[0][3] = NAN;
        MeanResult result = mean(&group, all_contribute);
        snapshots(&group, after);
        assert_int_equal(result.contributors, 2);
        assert_true(result.finite[0] && !result.finite[1] && result.finite[2]);
        for (size_t i = 0; i < before[0]->n_params; i++) {
            float expected = (before[0]->params[i] + before[2]->params[i]) / 2;
            for (int r = 0; r < N; r++)
                assert_true(after[r]->params[i] == expected);
            assert_true(after[1]->states[0][i] == 0);
        }
        assert_int_equal(after[1]->updates, 0);
        assert_true(isfinite(fixture_train(&group.fixture, group.replicas[1], 9)));
        drop(before);
        drop(after);
        stop(&group);
    }
}

static void sick_buffer_keeps_a_replica_out(void **state)
{
    (void)state;
    Group group;
    start(&group, "sgd");
    replica_weights(group.replicas[2])->buffers[0] = INFINITY;
    MeanResult result = mean(&group, all_contribute);
    assert_int_equal(result.contributors, 2);
    assert_false(result.finite[2]);
    assert_true(isfinite(replica_weights(group.replicas[2])->buffers[0]));
    stop(&group);
}

static void absent_replica_gets_the_mean_but_does_not_give(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    const bool contributes[N] = {false, true, false};
    start(&group, "sgd");
    snapshots(&group, before);
    MeanResult result = mean(&group, contributes);
    snapshots(&group, after);
    assert_int_equal(result.contributors, 1);
    assert_true(result.finite[0] && result.finite[2]);
    for (int r = 0; r < N; r++) {
        assert_memory_equal(after[r]->params, before[1]->params,
                            before[1]->n_params * sizeof(float));
        assert_int_equal(after[r]->counters[0], 2);
    }
    drop(before);
    drop(after);
    stop(&group);
}

static void without_contributors_nothing_changes(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    start(&group, "sgd");
    for (int i = 0; i < N; i++)
        spoil(group.replicas[i], NAN);
    snapshots(&group, before);
    MeanResult result = mean(&group, all_contribute);
    snapshots(&group, after);
    assert_int_equal(result.contributors, 0);
    for (int i = 0; i < N; i++) {
        assert_false(result.finite[i]);
        fixture_assert_same(before[i], after[i]);
        assert_int_equal(before[i]->version, after[i]->version);
    }
    drop(before);
    drop(after);
    stop(&group);
}

static void mean_of_one_changes_no_bit(void **state)
{
    (void)state;
    Group group;
    start(&group, "sgd");
    Snapshot *before = fixture_snapshot(&group.fixture, group.replicas[0]);
    MeanResult result;
    assert_int_equal(replicas_mean(group.replicas, all_contribute, 1, NULL, &result, NULL), 0);
    Snapshot *after = fixture_snapshot(&group.fixture, group.replicas[0]);
    fixture_assert_same(before, after);
    assert_int_equal(result.checksum, snapshot_checksum(group.fixture.graph, before));
    snapshot_free(before);
    snapshot_free(after);
    stop(&group);
}

static void wrong_groups_are_refused(void **state)
{
    (void)state;
    Group a, b;
    start(&a, "sgd");
    start(&b, "sgd,momentum=0.9");
    Replica *mixed[] = {a.replicas[0], b.replicas[0]};
    MeanResult result;
    Error err = {0};
    assert_int_equal(replicas_mean(mixed, all_contribute, 2, NULL, &result, &err), -EINVAL);
    assert_int_equal(replicas_mean(mixed, all_contribute, 0, NULL, &result, &err), -EINVAL);
    assert_int_equal(replicas_mean(mixed, NULL, MEAN_MAX_REPLICAS + 1, NULL, &result, &err),
                     -EINVAL);
    stop(&a);
    stop(&b);
}

/* K = 1 with plain SGD is training on the mean of the gradients. */
static void mean_of_every_step_averages_gradients(void **state)
{
    (void)state;
    Group group;
    start(&group, "sgd");
    (void)mean(&group, all_contribute);
    Snapshot *base = fixture_snapshot(&group.fixture, group.replicas[0]);
    for (int i = 0; i < N; i++) {
        fixture_fill(&group.fixture, 10 + i);
        (void)fixture_train(&group.fixture, group.replicas[i], 5);
    }
    double gradients[4096] = {0};
    assert_true(base->n_params <= 4096);
    for (int i = 0; i < N; i++) {
        for (size_t k = 0; k < base->n_params; k++) /* change = −lr · gradient */
            gradients[k] +=
                (double)replica_weights(group.replicas[i])->params[k] - (double)base->params[k];
    }
    (void)mean(&group, all_contribute);
    for (size_t k = 0; k < base->n_params; k++) {
        double expected = (double)base->params[k] + gradients[k] / N;
        assert_true(fabs((double)replica_weights(group.replicas[0])->params[k] - expected) < 1e-6);
    }
    snapshot_free(base);
    stop(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_get_the_mean_in_rank_order),
        cmocka_unit_test(snapshot_mean_is_the_same_arithmetic),
        cmocka_unit_test(sick_replica_is_kept_out_and_healed),
        cmocka_unit_test(sick_buffer_keeps_a_replica_out),
        cmocka_unit_test(absent_replica_gets_the_mean_but_does_not_give),
        cmocka_unit_test(without_contributors_nothing_changes),
        cmocka_unit_test(mean_of_one_changes_no_bit),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(mean_of_every_step_averages_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
