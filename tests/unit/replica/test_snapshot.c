/* Snapshots: training goes on from one as if nothing had happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "fixture.h"

static void restored_replica_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"sgd", "sgd,momentum=0.9", "adam", "adamw"};
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++) {
        Fixture fixture;
        fixture_start(&fixture, optimizers[o]);
        for (uint64_t step = 0; step < 4; step++)
            (void)fixture_train(&fixture, fixture.replica, step);
        Snapshot *middle = fixture_snapshot(&fixture, fixture.replica);
        for (uint64_t step = 4; step < 8; step++)
            (void)fixture_train(&fixture, fixture.replica, step);
        Snapshot *end = fixture_snapshot(&fixture, fixture.replica);

        Replica *fresh;
        assert_int_equal(replica_new(fixture.engine, 0, &fresh, NULL), 0);
        Replica *both[] = {fresh, fixture.replica}; /* one that is new, one that is ahead */
        for (int i = 0; i < 2; i++) {
            assert_int_equal(replica_restore(both[i], middle), 0);
            for (uint64_t step = 4; step < 8; step++)
                (void)fixture_train(&fixture, both[i], step);
            Snapshot *again = fixture_snapshot(&fixture, both[i]);
            fixture_assert_same(end, again);
            snapshot_free(again);
        }
        replica_free(fresh);
        snapshot_free(middle);
        snapshot_free(end);
        fixture_stop(&fixture);
    }
}

static void restore_makes_open_contexts_stale(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[FIXTURE_BATCH * FIXTURE_CLASSES] = {0};
    double norm;
    Context *context;
    Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
    (void)fixture_train(&fixture, fixture.replica, 0);
    assert_int_equal(replica_forward(fixture.replica, &fixture.batch, 1, 0, output, &context, NULL),
                     0);
    assert_int_equal(replica_restore(fixture.replica, start), 0);
    assert_int_equal(replica_version(fixture.replica), 2);
    assert_int_equal(replica_backward(fixture.replica, context, output, &norm, NULL), -ESTALE);
    context_free(context);
    snapshot_free(start);
    fixture_stop(&fixture);
}

static void another_models_snapshot_is_refused(void **state)
{
    (void)state;
    Fixture a, b;
    fixture_start(&a, "sgd");
    fixture_start(&b, "adam");
    Snapshot *of_a = fixture_snapshot(&a, a.replica), *of_b = fixture_snapshot(&b, b.replica);
    assert_int_equal(replica_restore(a.replica, of_b), -EINVAL);
    assert_int_equal(replica_snapshot(b.replica, of_a), -EINVAL);
    const Snapshot *mixed[] = {of_a, of_b};
    Snapshot *mean;
    assert_int_equal(snapshot_mean(mixed, 2, &mean), -EINVAL);
    assert_int_equal(snapshot_mean(mixed, 0, &mean), -EINVAL);
    snapshot_free(of_a);
    snapshot_free(of_b);
    assert_null(snapshot_free(NULL));
    fixture_stop(&a);
    fixture_stop(&b);
}

static void checksum_is_xxh3_in_name_order(void **state)
{
    (void)state;
    static const char *const names[] = {"bn.bias",    "bn.weight",    "conv1.bias", "conv1.weight",
                                        "conv2.bias", "conv2.weight", "fc.bias",    "fc.weight"};
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Snapshot *snapshot = fixture_snapshot(&fixture, fixture.replica);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        for (int i = 0; i < graph_param_count(fixture.graph); i++) {
            const ParamInfo *info = graph_param(fixture.graph, i);
            if (strcmp(info->name, names[n]) == 0)
                XXH3_64bits_update(&hash, snapshot->params + info->offset,
                                   (size_t)info->elements * sizeof(float));
        }
    }
    assert_int_equal(snapshot_checksum(fixture.graph, snapshot), XXH3_64bits_digest(&hash));
    uint64_t before = snapshot_checksum(fixture.graph, snapshot);
    snapshot->params[graph_param(fixture.graph, 1)->offset + 4] = 1; /* a gap: 4 biases of 16 */
    assert_int_equal(snapshot_checksum(fixture.graph, snapshot), before);
    snapshot->params[0] += 1;
    assert_int_not_equal(snapshot_checksum(fixture.graph, snapshot), before);
    snapshot_free(snapshot);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_replica_goes_on_with_the_same_bits),
        cmocka_unit_test(restore_makes_open_contexts_stale),
        cmocka_unit_test(another_models_snapshot_is_refused),
        cmocka_unit_test(checksum_is_xxh3_in_name_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
