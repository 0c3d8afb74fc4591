/* Averaging without a meeting: copies of replicas as they stand, and their mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "group.h"
#include "replica/gather.h"

static void gather(Group *group, Snapshot **copies)
{
    Error err = {0};
    for (int i = 0; i < GROUP; i++)
        assert_int_equal(gather_copy_new(group->fixture.graph, &copies[i]), 0);
    if (gather_copies(group->replicas, copies, GROUP, &err) < 0)
        fail_msg("%s", err.message);
}

static MeanResult take(Group *group, int taker, Snapshot *const *copies, const uint64_t *samples)
{
    MeanResult result;
    Error err = {0};
    if (replica_take_mean(group->replicas[taker], (const Snapshot *const *)copies, samples, GROUP,
                          &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

/* The taker gets the bits of a meeting of all; nobody else changes, and nobody's optimizer. */
static void taker_gets_what_a_meeting_would_give(void **state)
{
    (void)state;
    static const uint64_t weights[GROUP] = {4, 1, 7};
    for (int weighted = 0; weighted < 2; weighted++) {
        const uint64_t *samples = weighted ? weights : NULL;
        const MeanSpec spec = {.samples = samples};
        Group group;
        Snapshot *before[GROUP], *after[GROUP], *met[GROUP], *copies[GROUP];
        MeanResult mean;
        group_start(&group, "adam");
        group_snapshots(&group, before);
        gather(&group, copies);
        MeanResult result = take(&group, 1, copies, samples);
        group_snapshots(&group, after);
        fixture_assert_same(before[0], after[0]);
        fixture_assert_same(before[2], after[2]);
        assert_int_equal(after[1]->version, before[1]->version + 1);
        group_restore(&group, before);
        assert_int_equal(replicas_mean(group.replicas, group_all, GROUP, &spec, &mean, NULL), 0);
        group_snapshots(&group, met);
        fixture_assert_same(after[1], met[1]);
        assert_int_equal(result.checksum, mean.checksum);
        assert_int_equal(result.contributors, GROUP);
        group_drop(before);
        group_drop(after);
        group_drop(met);
        group_drop(copies);
        group_stop(&group);
    }
}

/* What the others do after they were copied does not matter. */
static void copies_are_of_the_moment(void **state)
{
    (void)state;
    Group group;
    Snapshot *copies[GROUP];
    group_start(&group, "sgd");
    gather(&group, copies);
    float want = (copies[0]->params[0] + copies[1]->params[0] + copies[2]->params[0]) / GROUP;
    (void)fixture_train(&group.fixture, group.replicas[0], 4);
    (void)fixture_train(&group.fixture, group.replicas[2], 4);
    (void)take(&group, 1, copies, NULL);
    assert_true(replica_weights(group.replicas[1])->params[0] == want);
    group_drop(copies);
    group_stop(&group);
}

static void sick_copies_are_left_out_and_a_sick_taker_healed(void **state)
{
    (void)state;
    Group group;
    Snapshot *copies[GROUP];
    group_start(&group, "sgd,momentum=0.9");
    group_spoil(group.replicas[0], NAN);
    replica_weights(group.replicas[0])->states[0][1] = INFINITY;
    replica_weights(group.replicas[2])->buffers[0] = INFINITY;
    gather(&group, copies);
    MeanResult result = take(&group, 0, copies, NULL);
    assert_true(!result.finite[0] && result.finite[1] && !result.finite[2]);
    assert_int_equal(result.contributors, 1);
    for (size_t i = 0; i < copies[1]->n_params; i++) {
        assert_true(replica_weights(group.replicas[0])->params[i] == copies[1]->params[i]);
        assert_true(replica_weights(group.replicas[0])->states[0][i] == 0);
    }
    assert_int_equal(replica_weights(group.replicas[0])->counters[0], 2);
    group_drop(copies);
    group_stop(&group);
}

static void with_nothing_left_nothing_changes(void **state)
{
    (void)state;
    Group group;
    Snapshot *copies[GROUP];
    group_start(&group, "sgd");
    for (int r = 0; r < GROUP; r++)
        group_spoil(group.replicas[r], NAN);
    gather(&group, copies);
    Snapshot *before = fixture_snapshot(&group.fixture, group.replicas[1]);
    assert_int_equal(take(&group, 1, copies, NULL).contributors, 0);
    Snapshot *after = fixture_snapshot(&group.fixture, group.replicas[1]);
    fixture_assert_same(before, after);
    assert_int_equal(before->version, after->version);
    snapshot_free(before);
    snapshot_free(after);
    group_drop(copies);
    group_stop(&group);
}

static void wrong_copies_are_refused(void **state)
{
    (void)state;
    Group group;
    Shape input = {2, {DIM_BATCH, 3}};
    Graph *other;
    Snapshot *copy;
    MeanResult result;
    Error err = {0};
    group_start(&group, "sgd");
    assert_int_equal(graph_new(&input, &other), 0);
    assert_int_equal(graph_finish(other, graph_linear(other, "fc", 0, 2, true), NULL), 0);
    assert_int_equal(gather_copy_new(other, &copy), 0);
    assert_int_equal(gather_copies(group.replicas, &copy, 1, &err), -EINVAL);
    assert_string_equal(err.message, "the copy is not one of the model of replica 0");
    assert_int_equal(replica_take_mean(group.replicas[0], (const Snapshot *const *)&copy, NULL, 1,
                                       &result, &err),
                     -EINVAL);
    assert_int_equal(replica_take_mean(group.replicas[0], NULL, NULL, 0, &result, &err), -EINVAL);
    snapshot_free(copy);
    graph_free(other);
    group_stop(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taker_gets_what_a_meeting_would_give),
        cmocka_unit_test(copies_are_of_the_moment),
        cmocka_unit_test(sick_copies_are_left_out_and_a_sick_taker_healed),
        cmocka_unit_test(with_nothing_left_nothing_changes),
        cmocka_unit_test(wrong_copies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
