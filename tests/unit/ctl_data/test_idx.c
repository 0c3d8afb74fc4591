/* IDX files: what is read from good ones and what is said about bad ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ctl/data/dataset.h"
#include "folder.h"

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

enum { COUNT = 5, ROWS = 3, COLUMNS = 4, PIXELS = ROWS * COLUMNS };

/* Headers and data of a set of COUNT images of 3 × 4, each pixel its own place in the file. */
typedef struct Set {
    Folder folder;
    uint8_t images[16 + COUNT * PIXELS], labels[8 + COUNT];
} Set;

static int set_up(void **state)
{
    Set *set = calloc(1, sizeof(*set));
    const uint8_t images[16] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, ROWS, 0, 0, 0, COLUMNS};
    const uint8_t labels[8] = {0, 0, 8, 1, 0, 0, 0, COUNT};

    assert_non_null(set);
    folder_make(&set->folder);
    memcpy(set->images, images, 16);
    for (int i = 0; i < COUNT * PIXELS; i++)
        set->images[16 + i] = (uint8_t)(i + 1);
    memcpy(set->labels, labels, 8);
    for (int i = 0; i < COUNT; i++)
        set->labels[8 + i] = (uint8_t)(i * 50 + 5);
    folder_write(&set->folder, IMAGES, set->images, sizeof(set->images));
    folder_write(&set->folder, LABELS, set->labels, sizeof(set->labels));
    *state = set;
    return 0;
}

static int tear_down(void **state)
{
    Set *set = *state;

    folder_remove(&set->folder);
    free(set);
    return 0;
}

/* Opens what must be good and compares all of it, from the last sample to the first. */
static void expect_good(const Set *set)
{
    uint64_t indices[COUNT] = {4, 3, 2, 1, 0};
    uint8_t x[COUNT * PIXELS];
    char problem[512] = "";
    int64_t y[COUNT];
    Dataset *dataset;
    const DatasetInfo *info;

    if (dataset_open(set->folder.path, DATASET_TRAIN, 0, &dataset, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
    info = dataset_info(dataset);
    assert_int_equal(info->samples, COUNT);
    assert_int_equal(info->dtype, DPS__V1__DTYPE__U8);
    assert_int_equal(info->ndim, 3);
    assert_int_equal(info->dims[0], 1);
    assert_int_equal(info->dims[1], ROWS);
    assert_int_equal(info->dims[2], COLUMNS);
    assert_int_equal(info->sample_bytes, PIXELS);
    assert_int_equal(info->label, DATASET_CLASSES);
    assert_int_equal(dataset_read(dataset, indices, COUNT, x, y), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_memory_equal(x + i * PIXELS, set->images + 16 + indices[i] * PIXELS, PIXELS);
        assert_int_equal(y[i], set->labels[8 + indices[i]]);
    }
    dataset_free(dataset);
}

static void expect_problem(const Set *set, DatasetSplit split, int code, const char *words)
{
    char problem[512] = "";
    Dataset *dataset = NULL;
    int r = dataset_open(set->folder.path, split, 0, &dataset, problem, sizeof(problem));

    assert_null(dataset);
    if (!strstr(problem, words))
        fail_msg("'%s' lacks '%s'", problem, words);
    assert_int_equal(r, code);
}

static void plain_files_are_read(void **state)
{
    expect_good(*state);
}

static void gzipped_files_are_read(void **state)
{
    Set *set = *state;

    remove(folder_path(&set->folder, IMAGES));
    remove(folder_path(&set->folder, LABELS));
    folder_write_gz(&set->folder, IMAGES ".gz", set->images, sizeof(set->images));
    folder_write_gz(&set->folder, LABELS ".gz", set->labels, sizeof(set->labels));
    expect_good(set);
}

/* As `cat a.gz b.gz` makes them. */
static void gzip_members_are_joined(void **state)
{
    Set *set = *state;
    uint8_t *a, *b, *both;
    size_t na, nb;

    remove(folder_path(&set->folder, IMAGES));
    folder_write_gz(&set->folder, "a", set->images, 20);
    folder_write_gz(&set->folder, "b", set->images + 20, sizeof(set->images) - 20);
    a = folder_read(&set->folder, "a", &na);
    b = folder_read(&set->folder, "b", &nb);
    both = malloc(na + nb);
    assert_non_null(both);
    memcpy(both, a, na);
    memcpy(both + na, b, nb);
    folder_write(&set->folder, IMAGES ".gz", both, na + nb);
    expect_good(set);
    both[na] = 'x';
    folder_write(&set->folder, IMAGES ".gz", both, na + nb);
    expect_problem(set, DATASET_TRAIN, -EINVAL, "trailing bytes after the gzip data");
    free(a);
    free(b);
    free(both);
}

static void indices_past_the_end_are_refused(void **state)
{
    Set *set = *state;
    uint64_t indices[2] = {0, COUNT};
    uint8_t x[2 * PIXELS];
    Dataset *dataset;
    float target;

    assert_int_equal(dataset_open(set->folder.path, DATASET_TRAIN, 0, &dataset, NULL, 0), 0);
    assert_int_equal(dataset_read(dataset, indices, 2, x, NULL), -ERANGE);
    assert_int_equal(dataset_read(dataset, indices, 1, x, NULL), 0);
    assert_int_equal(dataset_read_targets(dataset, indices, 1, x, &target), -EINVAL);
    dataset_free(dataset);
}

static void missing_files_are_named(void **state)
{
    Set *set = *state;

    expect_problem(set, DATASET_TEST, -ENOENT, "t10k-images-idx3-ubyte");
    remove(folder_path(&set->folder, LABELS));
    expect_problem(set, DATASET_TRAIN, -EINVAL, LABELS ".gz: No such file");
    strcat(set->folder.path, "-none");
    expect_problem(set, DATASET_TRAIN, -ENOENT, "-none: No such file");
    set->folder.path[strlen(set->folder.path) - 5] = '\0';
}

/* One byte of a header set to a value, and the sentence for it. */
static void wrong_headers_are_named_with_their_byte(void **state)
{
    static const struct {
        const char *name;
        size_t at;
        uint8_t value;
        const char *words;
    } cases[] = {
        {IMAGES, 2, 9, IMAGES ": byte 0: magic 0x00000903 where 0x00000803"},
        {IMAGES, 3, 1, IMAGES ": byte 0: magic 0x00000801"},
        {LABELS, 3, 3, LABELS ": byte 0: magic 0x00000803 where 0x00000801"},
        {IMAGES, 7, 0, IMAGES ": byte 4: there are no samples"},
        {IMAGES, 7, COUNT + 1, IMAGES ": byte 76: truncated, 6 samples of 12 bytes end at byte 88"},
        {IMAGES, 7, COUNT - 1, IMAGES ": byte 64: 12 trailing bytes after 4 samples"},
        {IMAGES, 8, 0xff,
         IMAGES ": byte 8: images of 4278190083 × 4 pixels; a side has 1 to 16384"},
        {IMAGES, 11, 0, IMAGES ": byte 8: images of 0 × 4"},
        {IMAGES, 15, 0, IMAGES ": byte 12: images of 3 × 0"},
        {LABELS, 7, COUNT + 1, LABELS ": byte 13: truncated"},
        {LABELS, 7, COUNT - 1, LABELS ": byte 12: 1 trailing bytes"},
    };
    Set *set = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool images = strcmp(cases[i].name, IMAGES) == 0;
        uint8_t *data = images ? set->images : set->labels, before = data[cases[i].at];
        size_t size = images ? sizeof(set->images) : sizeof(set->labels);

        data[cases[i].at] = cases[i].value;
        folder_write(&set->folder, cases[i].name, data, size);
        expect_problem(set, DATASET_TRAIN, -EINVAL, cases[i].words);
        data[cases[i].at] = before;
        folder_write(&set->folder, cases[i].name, data, size);
    }
    expect_good(set);
}

static void fewer_labels_than_images_are_refused(void **state)
{
    Set *set = *state;

    set->labels[7] = COUNT - 1;
    folder_write(&set->folder, LABELS, set->labels, sizeof(set->labels) - 1);
    expect_problem(set, DATASET_TRAIN, -EINVAL, LABELS ": byte 4: 4 labels for the 5 images of ");
}

/* Any damage: a sentence that names the file, or a set that can be read. */
static void try_damaged(void *user, const char *what)
{
    const Set *set = user;
    char problem[512] = "";
    uint8_t x[65536];
    Dataset *dataset;
    int64_t y;

    if (dataset_open(set->folder.path, DATASET_TRAIN, 0, &dataset, problem, sizeof(problem)) < 0) {
        if (!strstr(problem, "-ubyte"))
            fail_msg("%s: '%s' names no file", what, problem);
        return;
    }
    if (strncmp(what, "cut", 3) == 0)
        fail_msg("%s: was read", what);
    assert_true(dataset_info(dataset)->sample_bytes <= sizeof(x));
    for (uint64_t i = 0; i < dataset_info(dataset)->samples; i++)
        assert_int_equal(dataset_read(dataset, &i, 1, x, &y), 0);
    dataset_free(dataset);
}

static void damage_does_no_harm(void **state)
{
    Set *set = *state;

    folder_damage(&set->folder, IMAGES, 1, try_damaged, set);
    folder_damage(&set->folder, LABELS, 1, try_damaged, set);
}

static void damaged_gzip_does_no_harm(void **state)
{
    Set *set = *state;

    remove(folder_path(&set->folder, IMAGES));
    folder_write_gz(&set->folder, IMAGES ".gz", set->images, sizeof(set->images));
    folder_damage(&set->folder, IMAGES ".gz", 1, try_damaged, set);
}

static void corrupt_gzip_is_named_with_its_byte(void **state)
{
    Set *set = *state;
    uint8_t *data;
    size_t size;

    remove(folder_path(&set->folder, IMAGES));
    folder_write_gz(&set->folder, IMAGES ".gz", set->images, sizeof(set->images));
    data = folder_read(&set->folder, IMAGES ".gz", &size);
    folder_write(&set->folder, IMAGES ".gz", data, size - 4);
    expect_problem(set, DATASET_TRAIN, -EINVAL, ".gz: byte ");
    expect_problem(set, DATASET_TRAIN, -EINVAL, "the gzip data is cut off");
    data[size - 8] ^= 1; /* of the CRC */
    folder_write(&set->folder, IMAGES ".gz", data, size);
    expect_problem(set, DATASET_TRAIN, -EINVAL, "corrupt gzip data: incorrect data check");
    folder_write(&set->folder, IMAGES ".gz", "", 0);
    expect_problem(set, DATASET_TRAIN, -EINVAL, ".gz: byte 0: the file is empty");
    folder_write(&set->folder, IMAGES ".gz", set->images, sizeof(set->images));
    expect_problem(set, DATASET_TRAIN, -EINVAL, "corrupt gzip data: incorrect header check");
    free(data);
}

static void a_directory_in_place_of_a_file_is_refused(void **state)
{
    Set *set = *state;
    char problem[512];
    Dataset *dataset;

    assert_int_equal(
        dataset_open("/dev/null", DATASET_TRAIN, 0, &dataset, problem, sizeof(problem)), -EINVAL);
    assert_non_null(strstr(problem, "/dev/null"));
    remove(folder_path(&set->folder, IMAGES));
    assert_int_equal(symlink("/dev", folder_path(&set->folder, IMAGES)), 0);
    expect_problem(set, DATASET_TRAIN, -EINVAL, "not a regular file");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(plain_files_are_read),
        TEST(gzipped_files_are_read),
        TEST(gzip_members_are_joined),
        TEST(indices_past_the_end_are_refused),
        TEST(missing_files_are_named),
        TEST(wrong_headers_are_named_with_their_byte),
        TEST(fewer_labels_than_images_are_refused),
        TEST(damage_does_no_harm),
        TEST(damaged_gzip_does_no_harm),
        TEST(corrupt_gzip_is_named_with_its_byte),
        TEST(a_directory_in_place_of_a_file_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
