/* Placing blocks: never two at one place at one time, and no more room than must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>

#include "base/rng.h"
#include "replica/arena.h"

static void assert_apart(const ArenaBlock *blocks, int count, size_t total)
{
    for (int i = 0; i < count; i++) {
        const ArenaBlock *a = &blocks[i];
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->offset + a->bytes <= total);
        for (int k = 0; k < i; k++) {
            const ArenaBlock *b = &blocks[k];
            bool same_time = a->from <= b->to && b->from <= a->to;
            bool same_place = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            assert_false(a->bytes > 0 && b->bytes > 0 && same_time && same_place);
        }
    }
}

static void blocks_of_one_time_lie_apart(void **state)
{
    (void)state;
    RngKey key = {.seed = 3};
    uint64_t word = 0;
    for (int round = 0; round < 50; round++) {
        ArenaBlock blocks[60];
        for (int i = 0; i < 60; i++) {
            int from = (int)(rng_word(&key, word++) % 40);
            int length = (int)(rng_word(&key, word++) % 8);
            size_t bytes = rng_word(&key, word++) % 5 == 0 ? 0 : rng_word(&key, word++) % 5000;
            blocks[i] = (ArenaBlock){bytes, from, from + length, 0};
        }
        size_t total;
        assert_int_equal(arena_place(blocks, 60, &total), 0);
        assert_apart(blocks, 60, total);
    }
}

static void a_chain_takes_two_places(void **state)
{
    (void)state;
    ArenaBlock blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = (ArenaBlock){1000, i, i + 1, 0};
    size_t total;
    assert_int_equal(arena_place(blocks, 10, &total), 0);
    assert_int_equal(total, 2 * 1024);
}

static void a_gap_in_between_is_used(void **state)
{
    (void)state;
    /* 640 | 320 | 128 at time 0; at time 1 the middle is free again for what fits into it */
    ArenaBlock blocks[] = {{640, 0, 1, 0}, {320, 0, 0, 0}, {128, 0, 1, 0}, {256, 1, 1, 0}};
    size_t total;
    assert_int_equal(arena_place(blocks, 4, &total), 0);
    assert_int_equal(total, 640 + 320 + 128);
    assert_apart(blocks, 4, total);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    ArenaBlock huge[] = {{SIZE_MAX / 2 + 1, 0, 0, 0}, {SIZE_MAX / 2 + 1, 0, 0, 0}};
    size_t total;
    assert_int_equal(arena_place(huge, 2, &total), -EOVERFLOW);
    ArenaBlock one = {SIZE_MAX, 0, 0, 0};
    assert_int_equal(arena_place(&one, 1, &total), -EOVERFLOW);
    assert_int_equal(arena_place(&one, 0, &total), 0);
    assert_int_equal(total, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_one_time_lie_apart),
        cmocka_unit_test(a_chain_takes_two_places),
        cmocka_unit_test(a_gap_in_between_is_used),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
