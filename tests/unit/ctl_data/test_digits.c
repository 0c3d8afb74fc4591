/* Drawn digits: the same bytes everywhere, for ever. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/data/dataset.h"

enum { PIXELS = 28 * 28, MANY = 2000 };

static Dataset *open_digits(const char *path, DatasetSplit split, uint64_t seed)
{
    char problem[512] = "";
    Dataset *dataset;

    if (dataset_open(path, split, seed, &dataset, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
    return dataset;
}

/* FNV-1a over the first n samples and their classes. */
static uint64_t fingerprint(const char *path, DatasetSplit split, uint64_t seed, uint64_t n)
{
    Dataset *dataset = open_digits(path, split, seed);
    uint64_t hash = 0xcbf29ce484222325U;
    uint8_t x[PIXELS];
    int64_t y;

    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(dataset_read(dataset, &i, 1, x, &y), 0);
        for (int k = 0; k < PIXELS; k++)
            hash = (hash ^ x[k]) * 0x100000001b3U;
        hash = (hash ^ (uint64_t)y) * 0x100000001b3U;
    }
    dataset_free(dataset);
    return hash;
}

/* A change of this number is a change of everybody's data set: jobs that recover would see others
 * than they had. */
static void the_bytes_are_pinned(void **state)
{
    (void)state;
    assert_int_equal(fingerprint("synthetic", DATASET_TRAIN, 0, 200), 0x241f4a9d887aaea4U);
}

static void seeds_and_splits_differ(void **state)
{
    uint64_t base = fingerprint("synthetic", DATASET_TRAIN, 0, 50);

    (void)state;
    assert_int_equal(fingerprint("synthetic:0", DATASET_TRAIN, 9, 50), base);
    assert_int_equal(fingerprint("synthetic:0:64", DATASET_TRAIN, 9, 50), base);
    assert_int_not_equal(fingerprint("synthetic", DATASET_TRAIN, 1, 50), base);
    assert_int_not_equal(fingerprint("synthetic", DATASET_TEST, 0, 50), base);
    assert_int_equal(fingerprint("synthetic:1", DATASET_TRAIN, 0, 50),
                     fingerprint("synthetic", DATASET_TRAIN, 1, 50));
}

static void a_sample_does_not_depend_on_what_was_read_before(void **state)
{
    Dataset *dataset = open_digits("synthetic", DATASET_TRAIN, 3);
    uint64_t indices[3] = {7999, 5, 7999};
    uint8_t x[3 * PIXELS], alone[PIXELS];
    int64_t y[3], y_alone;

    (void)state;
    assert_int_equal(dataset_read(dataset, indices, 3, x, y), 0);
    assert_int_equal(dataset_read(dataset, &indices[1], 1, alone, &y_alone), 0);
    assert_memory_equal(x, x + 2 * PIXELS, PIXELS);
    assert_memory_equal(x + PIXELS, alone, PIXELS);
    assert_int_equal(y[1], y_alone);
    dataset_free(dataset);
}

static void counts_are_what_the_path_says(void **state)
{
    static const struct {
        const char *path;
        uint64_t train, test;
    } cases[] = {
        {"synthetic", 8000, 2000},
        {"synthetic:5", 8000, 2000},
        {"synthetic:5:4", 4, 1},
        {"synthetic:18446744073709551615:1000000000", 1000000000, 250000000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int split = 0; split < 2; split++) {
            Dataset *dataset = open_digits(cases[i].path, (DatasetSplit)split, 0);

            assert_int_equal(dataset_info(dataset)->samples,
                             split == DATASET_TRAIN ? cases[i].train : cases[i].test);
            dataset_free(dataset);
        }
}

static void wrong_paths_are_refused(void **state)
{
    static const char *const paths[] = {
        "synthetic:",
        "synthetic:x",
        "synthetic:1:",
        "synthetic:1:0",
        "synthetic:1:3",
        "synthetic:1:2x",
        "synthetic:-1",
        "synthetic:1:2:3",
        "synthetic:1:1000000001",
        "synthetic:18446744073709551616",
        "synthetic: 1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char problem[512] = "";
        Dataset *dataset;

        assert_int_equal(
            dataset_open(paths[i], DATASET_TRAIN, 0, &dataset, problem, sizeof(problem)), -EINVAL);
        assert_non_null(strstr(problem, paths[i]));
    }
}

/* Balanced classes, ink as handwriting has it, none cut off by the border. */
static void the_set_looks_like_digits(void **state)
{
    Dataset *dataset = open_digits("synthetic", DATASET_TRAIN, 0);
    uint64_t count[10] = {0}, ink = 0, border = 0;
    uint8_t x[PIXELS];
    int64_t y;

    (void)state;
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t mine = 0;

        assert_int_equal(dataset_read(dataset, &i, 1, x, &y), 0);
        assert_in_range(y, 0, 9);
        count[y]++;
        for (int k = 0; k < PIXELS; k++)
            mine += x[k];
        for (int k = 0; k < 28; k++)
            border += x[k] + x[PIXELS - 28 + k] + x[k * 28] + x[k * 28 + 27];
        assert_in_range(mine, 255 * 15, 255 * 300);
        ink += mine;
    }
    for (int k = 0; k < 10; k++)
        assert_in_range(count[k], MANY / 10 * 3 / 4, MANY / 10 * 5 / 4);
    assert_in_range(ink / MANY, PIXELS * 20, PIXELS * 50); /* MNIST: 33 of 255 */
    assert_in_range(border / MANY, 0, 28 * 4 * 4);
    dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_pinned),
        cmocka_unit_test(seeds_and_splits_differ),
        cmocka_unit_test(a_sample_does_not_depend_on_what_was_read_before),
        cmocka_unit_test(counts_are_what_the_path_says),
        cmocka_unit_test(wrong_paths_are_refused),
        cmocka_unit_test(the_set_looks_like_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
