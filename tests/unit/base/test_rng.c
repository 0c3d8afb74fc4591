#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

/* The known answers that come with the authors' own implementation (Random123, kat_vectors). */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } vectors[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t counter[4];
        memcpy(counter, vectors[i].counter, sizeof counter);
        rng_philox4x32(counter, vectors[i].key);
        assert_memory_equal(counter, vectors[i].want, sizeof counter);
    }
}

static const RngKey base_key = {
    .seed = 0x123456789abcdef0, .purpose = RNG_DROPOUT, .a = 3, .b = 5, .c = 7};

static void words_are_the_blocks_in_order(void **state)
{
    (void)state;
    enum { N = 41 };
    uint32_t words[N], block[4];
    for (uint64_t first = 0; first < 9; first++) {
        rng_words(&base_key, first, N, words);
        for (uint64_t i = 0; i < N; i++) {
            rng_block(&base_key, (uint32_t)((first + i) / 4), block);
            assert_int_equal(words[i], block[(first + i) % 4]);
            assert_int_equal(words[i], rng_word(&base_key, first + i));
        }
    }
    rng_words(&base_key, 0, 0, words); /* nothing is nothing */
}

static void every_part_of_the_key_gives_another_stream(void **state)
{
    (void)state;
    RngKey keys[] = {base_key, base_key, base_key, base_key,
                     base_key, base_key, base_key, base_key};
    enum { N = sizeof keys / sizeof *keys };
    keys[1].seed++;
    keys[2].seed += UINT64_C(1) << 32;
    keys[3].purpose = RNG_INIT;
    keys[4].a++;
    keys[5].b++;
    keys[6].b += UINT64_C(1) << 32;
    keys[7].c++;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            assert_true(rng_word(&keys[i], 0) != rng_word(&keys[j], 0));
}

static void units_are_uniform_in_0_1(void **state)
{
    (void)state;
    enum { N = 100000, BINS = 10 };
    int bins[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float unit = rng_to_unit(rng_word(&base_key, i));
        assert_true(unit >= 0 && unit < 1);
        bins[(int)(unit * BINS)]++;
    }
    for (int i = 0; i < BINS; i++) /* 10,000 each, standard deviation 95 */
        assert_in_range(bins[i], N / BINS - 475, N / BINS + 475);
    assert_true(rng_to_unit(UINT32_MAX) < 1);
}

static void permutations_have_every_index_once(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 2, 3, 10, 1000};
    uint64_t out[1000];
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        unsigned char seen[1000] = {0};
        uint64_t n = lengths[l];
        RngKey key = {.seed = 1, .purpose = RNG_PERMUTATION, .a = 4};
        rng_permutation(&key, n, out);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(out[i] < n);
            assert_false(seen[out[i]]++);
        }
    }
    rng_permutation(&base_key, 0, out);
}

static void permutations_depend_on_the_epoch_and_repeat(void **state)
{
    (void)state;
    uint64_t first[50], again[50], other[50];
    RngKey key = {.seed = 1, .purpose = RNG_PERMUTATION, .a = 4};
    rng_permutation(&key, 50, first);
    rng_permutation(&key, 50, again);
    key.a = 5;
    rng_permutation(&key, 50, other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

/* Of three things there are six orders; each comes up a sixth of the time. */
static void permutations_are_unbiased(void **state)
{
    (void)state;
    enum { N = 6000 };
    int seen[9] = {0};
    uint64_t out[3];
    for (uint32_t i = 0; i < N; i++) {
        RngKey key = {.seed = 9, .purpose = RNG_PERMUTATION, .a = i};
        rng_permutation(&key, 3, out);
        seen[out[0] * 3 + out[1]]++;
    }
    for (int i = 0; i < 9; i++)
        if (i / 3 != i % 3) /* 1,000 each, standard deviation 29 */
            assert_in_range(seen[i], 1000 - 145, 1000 + 145);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(words_are_the_blocks_in_order),
        cmocka_unit_test(every_part_of_the_key_gives_another_stream),
        cmocka_unit_test(units_are_uniform_in_0_1),
        cmocka_unit_test(permutations_have_every_index_once),
        cmocka_unit_test(permutations_depend_on_the_epoch_and_repeat),
        cmocka_unit_test(permutations_are_unbiased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
