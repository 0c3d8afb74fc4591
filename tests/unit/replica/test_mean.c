/* The mean of replicas: rank order, the sick kept out and healed, counters, checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "group.h"

enum { N = GROUP };

static MeanResult mean_by(Group *group, const bool *contributes, const MeanSpec *spec)
{
    MeanResult result;
    Error err = {0};
    if (replicas_mean(group->replicas, contributes, N, spec, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static MeanResult mean(Group *group, const bool *contributes)
{
    return mean_by(group, contributes, NULL);
}

static void all_get_the_mean_in_rank_order(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    group_start(&group, "sgd,momentum=0.9");
    group_snapshots(&group, before);
    MeanResult result = mean(&group, group_all);
    group_snapshots(&group, after);
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
    group_drop(before);
    group_drop(after);
    group_stop(&group);
}

static void snapshot_mean_is_the_same_arithmetic(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *of_snapshots;
    group_start(&group, "sgd,momentum=0.9");
    group_snapshots(&group, before);
    assert_int_equal(snapshot_mean((const Snapshot *const *)before, N, &of_snapshots), 0);
    MeanResult result = mean(&group, group_all);
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
    group_drop(before);
    group_stop(&group);
}

static void sick_replica_is_kept_out_and_healed(void **state)
{
    (void)state;
    static const float sick[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < sizeof sick / sizeof sick[0]; k++) {
        Group group;
        Snapshot *before[N], *after[N];
        group_start(&group, "sgd,momentum=0.9");
        group_snapshots(&group, before);
        group_spoil(group.replicas[1], sick[k]);
        replica_weights(group.replicas[1])->states[0][3] = NAN;
        MeanResult result = mean(&group, group_all);
        group_snapshots(&group, after);
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
        group_drop(before);
        group_drop(after);
        group_stop(&group);
    }
}

static void sick_buffer_keeps_a_replica_out(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd");
    replica_weights(group.replicas[2])->buffers[0] = INFINITY;
    MeanResult result = mean(&group, group_all);
    assert_int_equal(result.contributors, 2);
    assert_false(result.finite[2]);
    assert_true(isfinite(replica_weights(group.replicas[2])->buffers[0]));
    group_stop(&group);
}

static void absent_replica_gets_the_mean_but_does_not_give(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    const bool contributes[N] = {false, true, false};
    group_start(&group, "sgd");
    group_snapshots(&group, before);
    MeanResult result = mean(&group, contributes);
    group_snapshots(&group, after);
    assert_int_equal(result.contributors, 1);
    assert_true(result.finite[0] && result.finite[2]);
    for (int r = 0; r < N; r++) {
        assert_memory_equal(after[r]->params, before[1]->params,
                            before[1]->n_params * sizeof(float));
        assert_int_equal(after[r]->counters[0], 2);
    }
    group_drop(before);
    group_drop(after);
    group_stop(&group);
}

static void without_contributors_nothing_changes(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[N], *after[N];
    group_start(&group, "sgd");
    for (int i = 0; i < N; i++)
        group_spoil(group.replicas[i], NAN);
    group_snapshots(&group, before);
    MeanResult result = mean(&group, group_all);
    group_snapshots(&group, after);
    assert_int_equal(result.contributors, 0);
    for (int i = 0; i < N; i++) {
        assert_false(result.finite[i]);
        fixture_assert_same(before[i], after[i]);
        assert_int_equal(before[i]->version, after[i]->version);
    }
    group_drop(before);
    group_drop(after);
    group_stop(&group);
}

static void mean_of_one_changes_no_bit(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd");
    Snapshot *before = fixture_snapshot(&group.fixture, group.replicas[0]);
    MeanResult result;
    assert_int_equal(replicas_mean(group.replicas, group_all, 1, NULL, &result, NULL), 0);
    Snapshot *after = fixture_snapshot(&group.fixture, group.replicas[0]);
    fixture_assert_same(before, after);
    assert_int_equal(result.checksum, snapshot_checksum(group.fixture.graph, before));
    snapshot_free(before);
    snapshot_free(after);
    group_stop(&group);
}

static void wrong_groups_are_refused(void **state)
{
    (void)state;
    Group a, b;
    group_start(&a, "sgd");
    group_start(&b, "sgd,momentum=0.9");
    Replica *mixed[] = {a.replicas[0], b.replicas[0]};
    MeanResult result;
    Error err = {0};
    assert_int_equal(replicas_mean(mixed, group_all, 2, NULL, &result, &err), -EINVAL);
    assert_int_equal(replicas_mean(mixed, group_all, 0, NULL, &result, &err), -EINVAL);
    assert_int_equal(replicas_mean(mixed, NULL, MEAN_MAX_REPLICAS + 1, NULL, &result, &err),
                     -EINVAL);
    group_stop(&a);
    group_stop(&b);
}

/* K = 1 with plain SGD is training on the mean of the gradients. */
static void mean_of_every_step_averages_gradients(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd");
    (void)mean(&group, group_all);
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
    (void)mean(&group, group_all);
    for (size_t k = 0; k < base->n_params; k++) {
        double expected = (double)base->params[k] + gradients[k] / N;
        assert_true(fabs((double)replica_weights(group.replicas[0])->params[k] - expected) < 1e-6);
    }
    snapshot_free(base);
    group_stop(&group);
}

/* ---- by samples ----------------------------------------------------------------------------- */

static void samples_weigh_replicas(void **state)
{
    (void)state;
    static const uint64_t samples[N] = {32, 0, 96};
    const MeanSpec spec = {.samples = samples};
    Group group;
    Snapshot *before[N], *after[N];
    group_start(&group, "sgd,momentum=0.9");
    group_snapshots(&group, before);
    MeanResult result = mean_by(&group, group_all, &spec);
    group_snapshots(&group, after);
    assert_int_equal(result.contributors, N);
    for (size_t i = 0; i < before[0]->n_params; i++) {
        float want = 0.25F * before[0]->params[i] + 0.75F * before[2]->params[i];
        for (int r = 0; r < N; r++)
            assert_true(after[r]->params[i] == want);
    }
    for (size_t i = 0; i < before[0]->n_buffers; i++)
        assert_true(after[1]->buffers[i] ==
                    0.25F * before[0]->buffers[i] + 0.75F * before[2]->buffers[i]);
    assert_int_equal(result.checksum, snapshot_checksum(group.fixture.graph, after[1]));
    group_drop(before);
    group_drop(after);
    group_stop(&group);
}

/* Only those count that contribute: the first here weighs 3 / (3 + 5). */
static void samples_of_who_stays_out_do_not_count(void **state)
{
    (void)state;
    static const uint64_t samples[N] = {3, 1000, 5};
    static const bool contributes[N] = {true, false, true};
    const MeanSpec spec = {.samples = samples};
    Group group;
    group_start(&group, "sgd");
    float first = replica_weights(group.replicas[0])->params[0];
    float last = replica_weights(group.replicas[2])->params[0];
    (void)mean_by(&group, contributes, &spec);
    assert_true(replica_weights(group.replicas[1])->params[0] == 0.375F * first + 0.625F * last);
    group_stop(&group);
}

static void equal_samples_are_the_uniform_mean(void **state)
{
    (void)state;
    static const uint64_t equal[][N] = {{7, 7, 7}, {0, 0, 0}};
    Group group;
    Snapshot *before[N], *uniform[N], *weighted[N];
    group_start(&group, "sgd");
    group_snapshots(&group, before);
    MeanResult want = mean(&group, group_all);
    group_snapshots(&group, uniform);
    for (int k = 0; k < 2; k++) {
        const MeanSpec spec = {.samples = equal[k]};
        group_restore(&group, before);
        assert_int_equal(mean_by(&group, group_all, &spec).checksum, want.checksum);
        group_snapshots(&group, weighted);
        for (int r = 0; r < N; r++)
            fixture_assert_same(uniform[r], weighted[r]);
        group_drop(weighted);
    }
    group_drop(before);
    group_drop(uniform);
    group_stop(&group);
}

/* ---- optimizer state ------------------------------------------------------------------------ */

static void states_are_averaged_if_asked(void **state)
{
    (void)state;
    const MeanSpec spec = {.states = MEAN_STATES_AVERAGE};
    Group group;
    Snapshot *before[N], *after[N];
    group_start(&group, "adam");
    group_snapshots(&group, before);
    (void)mean_by(&group, group_all, &spec);
    group_snapshots(&group, after);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < before[0]->n_params; i++) {
            float sum = before[0]->states[s][i] + before[1]->states[s][i] + before[2]->states[s][i];
            for (int r = 0; r < N; r++)
                assert_true(after[r]->states[s][i] == sum / N);
        }
    }
    for (int r = 0; r < N; r++)
        assert_int_equal(after[r]->updates, 3);
    group_drop(before);
    group_drop(after);
    group_stop(&group);
}

static void spoilt_state_keeps_a_replica_out_where_states_are_averaged(void **state)
{
    (void)state;
    const MeanSpec spec = {.states = MEAN_STATES_AVERAGE};
    Group group;
    group_start(&group, "adam");
    replica_weights(group.replicas[1])->states[1][4] = INFINITY;
    MeanResult result = mean_by(&group, group_all, &spec);
    assert_int_equal(result.contributors, 2);
    assert_false(result.finite[1]);
    for (int r = 0; r < N; r++)
        assert_true(isfinite(replica_weights(group.replicas[r])->states[1][4]));
    group_stop(&group);
}

static void states_are_reset_if_asked(void **state)
{
    (void)state;
    const MeanSpec spec = {.states = MEAN_STATES_RESET};
    Group group;
    Snapshot *after[N];
    group_start(&group, "adam");
    (void)mean_by(&group, group_all, &spec);
    group_snapshots(&group, after);
    for (int r = 0; r < N; r++) {
        assert_int_equal(after[r]->updates, 0);
        for (int s = 0; s < 2; s++)
            for (size_t i = 0; i < after[r]->n_params; i++)
                assert_true(after[r]->states[s][i] == 0);
    }
    group_drop(after);
    group_stop(&group);
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
        cmocka_unit_test(samples_weigh_replicas),
        cmocka_unit_test(samples_of_who_stays_out_do_not_count),
        cmocka_unit_test(equal_samples_are_the_uniform_mean),
        cmocka_unit_test(states_are_averaged_if_asked),
        cmocka_unit_test(spoilt_state_keeps_a_replica_out_where_states_are_averaged),
        cmocka_unit_test(states_are_reset_if_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
