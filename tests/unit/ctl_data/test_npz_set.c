/* Data sets of the arrays x and y. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/data/dataset.h"
#include "ctl/data/npz.h"
#include "folder.h"

typedef struct Array {
    Dps__V1__DType dtype;
    int ndim;
    int64_t dims[3];
    const void *data; /* NULL: zeros */
    size_t bytes;
} Array;

static int set_up(void **state)
{
    Folder *folder = calloc(1, sizeof(*folder));

    assert_non_null(folder);
    folder_make(folder);
    *state = folder;
    return 0;
}

static int tear_down(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

static void write_set(const Folder *folder, const char *name, const Array *x, const Array *y)
{
    const Array *arrays[2] = {x, y};
    static const uint8_t zeros[4096];
    char problem[512] = "";
    NpzWriter *writer;

    assert_int_equal(npz_writer_new(folder_path(folder, name), &writer, NULL, 0), 0);
    for (int i = 0; i < 2; i++) {
        const Array *a = arrays[i];

        if (!a)
            continue;
        if (npz_writer_add(writer, i ? "y" : "x", a->dtype, a->ndim, a->dims, problem,
                           sizeof(problem)) < 0 ||
            npz_writer_data(writer, a->data ? a->data : zeros, a->bytes, problem, sizeof(problem)) <
                0)
            fail_msg("%s", problem);
    }
    assert_int_equal(npz_writer_close(writer, NULL, 0), 0);
}

static Dataset *open_set(const char *path, DatasetSplit split)
{
    char problem[512] = "";
    Dataset *dataset;

    if (dataset_open(path, split, 0, &dataset, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
    return dataset;
}

static void a_file_serves_both_splits(void **state)
{
    const uint8_t x[6] = {1, 2, 3, 4, 5, 6};
    const Array ax = {DPS__V1__DTYPE__U8, 2, {3, 2}, x, 6};
    const Array ay = {DPS__V1__DTYPE__I64, 1, {3}, (int64_t[]){7, 8, 300}, 24};
    const uint64_t indices[2] = {2, 0};

    write_set(*state, "a.npz", &ax, &ay);
    for (int split = 0; split < 2; split++) {
        Dataset *dataset = open_set(folder_path(*state, "a.npz"), (DatasetSplit)split);
        uint8_t got[4];
        int64_t y[2];

        assert_int_equal(dataset_info(dataset)->ndim, 1);
        assert_int_equal(dataset_info(dataset)->label_dtype, DPS__V1__DTYPE__I64);
        assert_int_equal(dataset_read(dataset, indices, 2, got, y), 0);
        assert_memory_equal(got, ((uint8_t[]){5, 6, 1, 2}), 4);
        assert_int_equal(y[0], 300);
        assert_int_equal(y[1], 7);
        dataset_free(dataset);
    }
}

static void a_directory_has_a_file_a_split(void **state)
{
    const Array x = {DPS__V1__DTYPE__F32, 2, {2, 1}, (float[]){1.5F, 2}, 8};
    const Array y = {DPS__V1__DTYPE__I32, 1, {2}, (int32_t[]){255, 0}, 8};
    const Array x3 = {DPS__V1__DTYPE__F32, 2, {3, 1}, NULL, 12};
    const Array y3 = {DPS__V1__DTYPE__U8, 2, {3, 1}, NULL, 3};
    const Folder *folder = *state;
    char problem[512] = "";
    Dataset *dataset;

    write_set(folder, "train.npz", &x, &y);
    dataset = open_set(folder->path, DATASET_TRAIN);
    assert_int_equal(dataset_info(dataset)->samples, 2);
    assert_int_equal(dataset_info(dataset)->dtype, DPS__V1__DTYPE__F32);
    assert_int_equal(dataset_info(dataset)->label_dtype, DPS__V1__DTYPE__U8);
    dataset_free(dataset);
    assert_int_equal(
        dataset_open(folder->path, DATASET_TEST, 0, &dataset, problem, sizeof(problem)), -ENOENT);
    assert_non_null(strstr(problem, "test.npz"));
    write_set(folder, "test.npz", &x3, &y3);
    dataset = open_set(folder->path, DATASET_TEST);
    assert_int_equal(dataset_info(dataset)->samples, 3);
    dataset_free(dataset);
}

static void floats_as_labels_are_targets(void **state)
{
    const Array x = {DPS__V1__DTYPE__F32, 2, {2, 1}, NULL, 8};
    const Array y = {DPS__V1__DTYPE__F32, 2, {2, 3}, (float[]){1, 2, 3, 4, 5, 6}, 24};
    const uint64_t index = 1;
    float got[1], target[3];
    int64_t class_index;
    Dataset *dataset;

    write_set(*state, "a.npz", &x, &y);
    dataset = open_set(folder_path(*state, "a.npz"), DATASET_TRAIN);
    assert_int_equal(dataset_info(dataset)->label, DATASET_TARGETS);
    assert_int_equal(dataset_info(dataset)->target_ndim, 1);
    assert_int_equal(dataset_info(dataset)->target_elements, 3);
    assert_int_equal(dataset_read_targets(dataset, &index, 1, got, target), 0);
    assert_memory_equal(target, ((float[]){4, 5, 6}), 12);
    assert_int_equal(dataset_read(dataset, &index, 1, got, &class_index), -EINVAL);
    assert_int_equal(dataset_read(dataset, &index, 1, got, NULL), 0);
    dataset_free(dataset);
}

static void wrong_sets_are_named(void **state)
{
    const Array x = {DPS__V1__DTYPE__U8, 2, {2, 3}, NULL, 6};
    const Array flat = {DPS__V1__DTYPE__U8, 1, {2}, NULL, 2};
    const Array empty = {DPS__V1__DTYPE__U8, 2, {0, 3}, NULL, 0};
    const Array ints = {DPS__V1__DTYPE__I32, 2, {2, 1}, NULL, 8};
    const Array y = {DPS__V1__DTYPE__I64, 1, {2}, NULL, 16};
    const Array three = {DPS__V1__DTYPE__I64, 1, {3}, NULL, 24};
    const Array pairs = {DPS__V1__DTYPE__U8, 2, {2, 2}, NULL, 4};
    const Array scalar = {DPS__V1__DTYPE__I64, 0, {0}, NULL, 8};
    const Array none = {DPS__V1__DTYPE__F32, 2, {2, 0}, NULL, 0};
    const Array negative = {DPS__V1__DTYPE__I64, 1, {2}, (int64_t[]){3, -1}, 16};
    const Array large = {DPS__V1__DTYPE__I32, 1, {2}, (int32_t[]){3, 1000001}, 8};
    const struct {
        const Array *x, *y;
        const char *words;
    } cases[] = {
        {&flat, &y, "x has 1 dims"},
        {&empty, &y, "x has 2 dims and 0 elements"},
        {&ints, &y, "x is int32"},
        {&x, NULL, "has no array 'y'"},
        {NULL, &y, "has no array 'x'"},
        {&x, &three, "y has 3 labels for the 2 samples"},
        {&x, &pairs, "y has 4 classes for 2 samples"},
        {&x, &scalar, "y has 0 labels"},
        {&x, &none, "y has no elements"},
        {&x, &negative, "'y.npy': byte 136: label -1 of sample 1"},
        {&x, &large, "'y.npy': byte 132: label 1000001 of sample 1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char problem[512] = "";
        Dataset *dataset;

        write_set(*state, "a.npz", cases[i].x, cases[i].y);
        assert_true(dataset_open(folder_path(*state, "a.npz"), DATASET_TRAIN, 0, &dataset, problem,
                                 sizeof(problem)) < 0);
        if (!strstr(problem, cases[i].words) || !strstr(problem, "a.npz"))
            fail_msg("'%s' lacks '%s'", problem, cases[i].words);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_file_serves_both_splits),
        TEST(a_directory_has_a_file_a_split),
        TEST(floats_as_labels_are_targets),
        TEST(wrong_sets_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
