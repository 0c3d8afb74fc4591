/* Meetings with a centre: elastic averaging and the outer optimizer, each against its formula; and
 * what must not change a bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "group.h"
#include "model/zoo.h"
#include "replica/centre.h"

static Centre *new_centre(const Group *group, bool momentum)
{
    Centre *centre;
    Error err = {0};
    if (centre_new(group->fixture.engine, momentum, &centre, &err) < 0)
        fail_msg("%s", err.message);
    return centre;
}

static Snapshot *centre_copy(const Group *group, Centre *centre, bool momentum)
{
    Snapshot *snapshot;
    assert_int_equal(centre_snapshot_new(group->fixture.graph, momentum, &snapshot), 0);
    assert_int_equal(centre_snapshot(centre, snapshot), 0);
    return snapshot;
}

static MeanResult elastic(Group *group, const bool *contributes, Centre *centre, float alpha)
{
    MeanResult result;
    Error err = {0};
    if (replicas_elastic(group->replicas, contributes, GROUP, centre, alpha, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static MeanResult outer(Group *group, Centre *centre, float lr, float momentum,
                        const MeanSpec *spec)
{
    const OuterRule rule = {.lr = lr, .momentum = momentum};
    MeanResult result;
    Error err = {0};
    if (replicas_outer(group->replicas, group_all, GROUP, centre, &rule, spec, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

static void assert_near(float got, double want, double scale)
{
    if (fabs((double)got - want) > 1e-6 * scale)
        fail_msg("%.9g, not %.9g", (double)got, want);
}

/* ---- elastic -------------------------------------------------------------------------------- */

static void elastic_follows_its_formula_in_rank_order(void **state)
{
    (void)state;
    const float alpha = 0.3F;
    Group group;
    Snapshot *before[GROUP], *after[GROUP];
    group_start(&group, "sgd,momentum=0.9");
    Centre *centre = new_centre(&group, false);
    Snapshot *old = centre_copy(&group, centre, false);
    group_snapshots(&group, before);
    MeanResult result = elastic(&group, group_all, centre, alpha);
    Snapshot *new = centre_copy(&group, centre, false);
    group_snapshots(&group, after);
    for (size_t i = 0; i < old->n_params; i++) {
        float sum = old->params[i];
        for (int r = 0; r < GROUP; r++) {
            float d = before[r]->params[i] - old->params[i], part = alpha * d;
            sum = sum + part;
            assert_true(after[r]->params[i] == before[r]->params[i] - part);
        }
        assert_true(new->params[i] == sum);
    }
    for (size_t i = 0; i < old->n_buffers; i++) {
        float sum = before[0]->buffers[i] + before[1]->buffers[i] + before[2]->buffers[i];
        assert_true(new->buffers[i] == sum / GROUP);
        for (int r = 0; r < GROUP; r++)
            assert_true(after[r]->buffers[i] == sum / GROUP);
    }
    assert_int_equal(new->counters[0], 3);
    assert_int_equal(result.contributors, GROUP);
    assert_int_equal(result.checksum, snapshot_checksum(group.fixture.graph, new));
    for (int r = 0; r < GROUP; r++) {
        assert_int_equal(after[r]->counters[0], 3);
        assert_int_equal(after[r]->version, before[r]->version + 1);
        assert_memory_equal(after[r]->states[0], before[r]->states[0],
                            before[r]->n_params * sizeof(float));
    }
    snapshot_free(old);
    snapshot_free(new);
    group_drop(before);
    group_drop(after);
    centre_free(centre);
    group_stop(&group);
}

/* Even of a replica that is not finite, and of versions, so that contexts stay good. */
static void elastic_with_alpha_0_changes_no_bit(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[GROUP], *after[GROUP];
    group_start(&group, "adam");
    Centre *centre = new_centre(&group, false);
    Snapshot *old = centre_copy(&group, centre, false);
    replica_weights(group.replicas[0])->params[3] = -0.0F;
    group_spoil(group.replicas[2], NAN);
    group_snapshots(&group, before);
    MeanResult result = elastic(&group, group_all, centre, 0);
    Snapshot *new = centre_copy(&group, centre, false);
    group_snapshots(&group, after);
    for (int r = 0; r < GROUP; r++) {
        fixture_assert_same(before[r], after[r]);
        assert_int_equal(before[r]->version, after[r]->version);
    }
    fixture_assert_same(old, new);
    assert_true(result.finite[0] && result.finite[1] && !result.finite[2]);
    assert_int_equal(result.contributors, 2);
    snapshot_free(old);
    snapshot_free(new);
    group_drop(before);
    group_drop(after);
    centre_free(centre);
    group_stop(&group);
}

static void elastic_heals_the_sick_and_leaves_the_absent(void **state)
{
    (void)state;
    const bool contributes[GROUP] = {true, true, false};
    Group group;
    Snapshot *before[GROUP], *after[GROUP];
    group_start(&group, "sgd,momentum=0.9");
    Centre *centre = new_centre(&group, false);
    Snapshot *old = centre_copy(&group, centre, false);
    group_spoil(group.replicas[1], INFINITY);
    replica_weights(group.replicas[1])->states[0][2] = NAN;
    group_snapshots(&group, before);
    MeanResult result = elastic(&group, contributes, centre, 0.5F);
    Snapshot *new = centre_copy(&group, centre, false);
    group_snapshots(&group, after);
    assert_int_equal(result.contributors, 1);
    assert_false(result.finite[1]);
    assert_memory_equal(after[2]->params, before[2]->params, old->n_params * sizeof(float));
    assert_int_equal(after[2]->version, before[2]->version);
    assert_memory_equal(after[1]->params, new->params, old->n_params * sizeof(float));
    assert_int_equal(after[1]->version, before[1]->version + 1);
    for (size_t i = 0; i < old->n_params; i++) {
        assert_true(after[1]->states[0][i] == 0);
        assert_true(new->params[i] ==
                    old->params[i] + 0.5F * (before[0]->params[i] - old->params[i]));
    }
    snapshot_free(old);
    snapshot_free(new);
    group_drop(before);
    group_drop(after);
    centre_free(centre);
    group_stop(&group);
}

/* Replicas that are where the centre is stay there: no rounding drives them away. */
static void elastic_at_rest_stays_at_rest(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd");
    Centre *centre = new_centre(&group, false);
    assert_int_equal(centre_set(centre, group.replicas[1], NULL), 0);
    for (int r = 0; r < GROUP; r++)
        assert_int_equal(replica_take_centre(group.replicas[r], centre, NULL), 0);
    Snapshot *before = centre_copy(&group, centre, false);
    for (int round = 0; round < 5; round++)
        (void)elastic(&group, group_all, centre, 0.37F);
    Snapshot *after = centre_copy(&group, centre, false);
    assert_memory_equal(before->params, after->params, before->n_params * sizeof(float));
    for (int r = 0; r < GROUP; r++)
        assert_memory_equal(replica_weights(group.replicas[r])->params, before->params,
                            before->n_params * sizeof(float));
    snapshot_free(before);
    snapshot_free(after);
    centre_free(centre);
    group_stop(&group);
}

/* ---- outer ---------------------------------------------------------------------------------- */

static void assert_outer_is_mean(Group *group, const MeanSpec *spec)
{
    Snapshot *before[GROUP], *by_mean[GROUP], *by_outer[GROUP];
    MeanResult mean;
    Centre *centre = new_centre(group, true);
    group_snapshots(group, before);
    assert_int_equal(replicas_mean(group->replicas, group_all, GROUP, spec, &mean, NULL), 0);
    group_snapshots(group, by_mean);
    group_restore(group, before);
    for (int i = 0; i < GROUP; i++) /* a restore keeps what is not finite */
        assert_int_equal(replica_weights(group->replicas[i])->updates, before[i]->updates);
    MeanResult result = outer(group, centre, 1, 0, spec);
    group_snapshots(group, by_outer);
    for (int r = 0; r < GROUP; r++)
        fixture_assert_same(by_mean[r], by_outer[r]);
    Snapshot *model = centre_copy(group, centre, true);
    assert_memory_equal(model->params, by_mean[0]->params, model->n_params * sizeof(float));
    assert_memory_equal(model->buffers, by_mean[0]->buffers, model->n_buffers * sizeof(float));
    assert_int_equal(model->counters[0], by_mean[0]->counters[0]);
    assert_int_equal(result.checksum, mean.checksum);
    assert_int_equal(result.contributors, mean.contributors);
    snapshot_free(model);
    group_drop(before);
    group_drop(by_mean);
    group_drop(by_outer);
    centre_free(centre);
}

static void outer_with_lr_1_and_no_momentum_is_the_mean(void **state)
{
    (void)state;
    static const uint64_t samples[GROUP] = {5, 6, 11};
    static const MeanSpec specs[] = {{0},
                                     {.samples = samples},
                                     {.states = MEAN_STATES_AVERAGE},
                                     {.samples = samples, .states = MEAN_STATES_RESET}};
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        for (int sick = 0; sick < 2; sick++) {
            Group group;
            group_start(&group, "adam");
            for (int i = 0; i < GROUP; i++) /* a mean of −0 is −0 */
                replica_weights(group.replicas[i])->params[2] = -0.0F;
            if (sick)
                group_spoil(group.replicas[0], NAN);
            assert_outer_is_mean(&group, &specs[k]);
            group_stop(&group);
        }
    }
}

/* Three rounds beside torch's SGD with Nesterov momentum, in double. */
static void outer_is_nesterov_sgd_on_the_mean_change(void **state)
{
    (void)state;
    const float lr = 0.7F, momentum = 0.9F;
    enum { MAX = 4096 };
    static double c[MAX], buf[MAX];
    Group group;
    group_start(&group, "sgd");
    Centre *centre = new_centre(&group, true);
    Snapshot *start = centre_copy(&group, centre, true);
    size_t n = start->n_params;
    assert_true(n <= MAX);
    for (size_t i = 0; i < n; i++) {
        c[i] = (double)start->params[i];
        buf[i] = 0;
    }
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < n; i++) {
            double mean = 0;
            for (int r = 0; r < GROUP; r++)
                mean += (double)replica_weights(group.replicas[r])->params[i] / GROUP;
            double gradient = c[i] - mean;
            buf[i] = (double)momentum * buf[i] + gradient;
            c[i] -= (double)lr * (gradient + (double)momentum * buf[i]);
        }
        (void)outer(&group, centre, lr, momentum, NULL);
        Snapshot *now = centre_copy(&group, centre, true);
        for (size_t i = 0; i < n; i++) {
            assert_near(now->params[i], c[i], fabs(c[i]) + 1);
            assert_near(now->states[0][i], buf[i], fabs(buf[i]) + 1);
            for (int r = 0; r < GROUP; r++)
                assert_true(replica_weights(group.replicas[r])->params[i] == now->params[i]);
        }
        snapshot_free(now);
        for (int r = 0; r < GROUP; r++)
            (void)fixture_train(&group.fixture, group.replicas[r], 10U * (unsigned)round + 5);
    }
    snapshot_free(start);
    centre_free(centre);
    group_stop(&group);
}

static void outer_without_contributors_changes_nothing(void **state)
{
    (void)state;
    Group group;
    Snapshot *before[GROUP], *after[GROUP];
    group_start(&group, "sgd");
    Centre *centre = new_centre(&group, true);
    Snapshot *old = centre_copy(&group, centre, true);
    for (int r = 0; r < GROUP; r++)
        group_spoil(group.replicas[r], NAN);
    group_snapshots(&group, before);
    MeanResult result = outer(&group, centre, 0.5F, 0.9F, NULL);
    assert_int_equal(result.contributors, 0);
    result = elastic(&group, group_all, centre, 0.5F);
    assert_int_equal(result.contributors, 0);
    group_snapshots(&group, after);
    Snapshot *new = centre_copy(&group, centre, true);
    fixture_assert_same(old, new);
    for (int r = 0; r < GROUP; r++)
        fixture_assert_same(before[r], after[r]);
    snapshot_free(old);
    snapshot_free(new);
    group_drop(before);
    group_drop(after);
    centre_free(centre);
    group_stop(&group);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void centre_comes_back_from_its_snapshot(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd");
    Centre *centre = new_centre(&group, true), *other = new_centre(&group, true);
    (void)outer(&group, centre, 0.7F, 0.9F, NULL);
    Snapshot *taken = centre_copy(&group, centre, true);
    assert_int_equal(centre_restore(other, taken), 0);
    Snapshot *again = centre_copy(&group, other, true);
    fixture_assert_same(taken, again);
    assert_true(taken->n_states == 1 && taken->states[0][0] != 0);
    /* the next round is the same too */
    Snapshot *before[GROUP];
    (void)fixture_train(&group.fixture, group.replicas[1], 7);
    group_snapshots(&group, before);
    uint64_t checksum = outer(&group, centre, 0.7F, 0.9F, NULL).checksum;
    group_restore(&group, before);
    assert_int_equal(outer(&group, other, 0.7F, 0.9F, NULL).checksum, checksum);
    Centre *elastics = new_centre(&group, false);
    assert_int_equal(centre_restore(elastics, taken), -EINVAL); /* no place for the momentum */
    snapshot_free(taken);
    snapshot_free(again);
    group_drop(before);
    centre_free(centre);
    centre_free(other);
    centre_free(elastics);
    group_stop(&group);
}

static void centre_is_set_and_taken(void **state)
{
    (void)state;
    Group group;
    group_start(&group, "sgd,momentum=0.9");
    size_t before_bytes = engine_bytes(group.fixture.engine);
    Centre *centre = new_centre(&group, true);
    assert_true(engine_bytes(group.fixture.engine) > before_bytes);
    (void)outer(&group, centre, 0.7F, 0.9F, NULL);
    (void)fixture_train(&group.fixture, group.replicas[2], 7);
    assert_int_equal(centre_set(centre, group.replicas[2], NULL), 0);
    Snapshot *model = centre_copy(&group, centre, true);
    Snapshot *from = fixture_snapshot(&group.fixture, group.replicas[2]);
    assert_memory_equal(model->params, from->params, from->n_params * sizeof(float));
    assert_memory_equal(model->buffers, from->buffers, from->n_buffers * sizeof(float));
    assert_int_equal(model->counters[0], from->counters[0]);
    for (size_t i = 0; i < model->n_params; i++)
        assert_true(model->states[0][i] == 0);
    uint64_t version = replica_version(group.replicas[0]);
    assert_int_equal(replica_take_centre(group.replicas[0], centre, NULL), 0);
    Snapshot *taken = fixture_snapshot(&group.fixture, group.replicas[0]);
    assert_memory_equal(taken->params, from->params, from->n_params * sizeof(float));
    assert_int_equal(taken->updates, 0);
    assert_int_equal(taken->version, version + 1);
    for (size_t i = 0; i < taken->n_params; i++)
        assert_true(taken->states[0][i] == 0);
    snapshot_free(model);
    snapshot_free(from);
    snapshot_free(taken);
    centre_free(centre);
    assert_null(centre_free(NULL));
    assert_int_equal(engine_bytes(group.fixture.engine), before_bytes);
    group_stop(&group);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    Group group;
    const OuterRule rule = {.lr = 1};
    MeanResult result;
    Error err = {0};
    group_start(&group, "sgd");
    Centre *centre = new_centre(&group, false);
    assert_int_equal(
        replicas_outer(group.replicas, group_all, GROUP, centre, &rule, NULL, &result, &err),
        -EINVAL);
    assert_string_equal(err.message, "the centre has no momentum for an outer step");
    assert_int_equal(replicas_elastic(group.replicas, group_all, 0, centre, 1, &result, &err),
                     -EINVAL);
    centre_free(centre);
    group_stop(&group);
}

/* ---- a model of several blocks -------------------------------------------------------------- */

typedef struct Big {
    Graph *graph;
    Engine *engine;
    Replica *replicas[GROUP];
    Centre *centre;
} Big;

/* mlp has 101,770 parameters: three blocks and a rest. */
static void big_start(Big *big)
{
    const ModelEntry *model;
    assert_int_equal(zoo_find("mlp", &model, NULL), 0);
    assert_int_equal(model->build(NULL, 0, &big->graph, NULL), 0);
    EngineSpec spec = {.graph = big->graph,
                       .threads = 1,
                       .loss = LOSS_CROSS_ENTROPY,
                       .seed = 3,
                       .optimizer = {.lr = 0.1F}};
    assert_int_equal(backend_find("ref", &spec.backend, NULL), 0);
    assert_int_equal(engine_new(&spec, &big->engine, NULL), 0);
    engine_bind(big->engine);
    for (int r = 0; r < GROUP; r++) {
        assert_int_equal(replica_new(big->engine, r, &big->replicas[r], NULL), 0);
        Weights *weights = replica_weights(big->replicas[r]);
        RngKey key = {.seed = 8, .a = (uint32_t)r};
        for (size_t i = 0; i < weights->n_params; i++)
            weights->params[i] += 0.1F * rng_to_unit(rng_word(&key, i));
    }
    assert_int_equal(centre_new(big->engine, true, &big->centre, NULL), 0);
}

static void big_stop(Big *big)
{
    centre_free(big->centre);
    for (int r = 0; r < GROUP; r++)
        replica_free(big->replicas[r]);
    engine_free(big->engine);
    graph_free(big->graph);
}

static void blocks_join_without_a_seam(void **state)
{
    (void)state;
    Big big;
    Snapshot *old, *new, *x[GROUP];
    const Optimizer sgd = {.lr = 0.1F};
    MeanResult mean, result;
    big_start(&big);
    assert_int_equal(centre_snapshot_new(big.graph, true, &old), 0);
    assert_int_equal(centre_snapshot_new(big.graph, true, &new), 0);
    assert_int_equal(centre_snapshot(big.centre, old), 0);
    assert_true(old->n_params > 100000);
    for (int r = 0; r < GROUP; r++) {
        assert_int_equal(snapshot_new(big.graph, &sgd, &x[r]), 0);
        assert_int_equal(replica_snapshot(big.replicas[r], x[r]), 0);
    }
    assert_int_equal(
        replicas_elastic(big.replicas, group_all, GROUP, big.centre, 0.25F, &result, NULL), 0);
    assert_int_equal(centre_snapshot(big.centre, new), 0);
    for (size_t i = 0; i < old->n_params; i++) {
        float sum = old->params[i];
        for (int r = 0; r < GROUP; r++) {
            float part = 0.25F * (x[r]->params[i] - old->params[i]);
            sum = sum + part;
            assert_true(replica_weights(big.replicas[r])->params[i] == x[r]->params[i] - part);
        }
        assert_true(new->params[i] == sum);
    }
    for (int r = 0; r < GROUP; r++)
        assert_int_equal(replica_restore(big.replicas[r], x[r]), 0);
    assert_int_equal(replicas_mean(big.replicas, group_all, GROUP, NULL, &mean, NULL), 0);
    for (int r = 0; r < GROUP; r++)
        assert_int_equal(replica_restore(big.replicas[r], x[r]), 0);
    const OuterRule rule = {.lr = 1};
    assert_int_equal(
        replicas_outer(big.replicas, group_all, GROUP, big.centre, &rule, NULL, &result, NULL), 0);
    assert_int_equal(result.checksum, mean.checksum);
    for (int r = 0; r < GROUP; r++)
        snapshot_free(x[r]);
    snapshot_free(old);
    snapshot_free(new);
    big_stop(&big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elastic_follows_its_formula_in_rank_order),
        cmocka_unit_test(elastic_with_alpha_0_changes_no_bit),
        cmocka_unit_test(elastic_heals_the_sick_and_leaves_the_absent),
        cmocka_unit_test(elastic_at_rest_stays_at_rest),
        cmocka_unit_test(outer_with_lr_1_and_no_momentum_is_the_mean),
        cmocka_unit_test(outer_is_nesterov_sgd_on_the_mean_change),
        cmocka_unit_test(outer_without_contributors_changes_nothing),
        cmocka_unit_test(centre_comes_back_from_its_snapshot),
        cmocka_unit_test(centre_is_set_and_taken),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(blocks_join_without_a_seam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
