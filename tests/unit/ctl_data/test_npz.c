/* Arrays in .npz files: what is written is read back, whoever wrote it, and damage does no harm. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <zip.h>

#include <cmocka.h>

#include "ctl/data/npy.h"
#include "ctl/data/npz.h"
#include "folder.h"

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

/* Adds a member to the file, which libzip makes if it is not there. */
static void add_member(const Folder *folder, const char *file, const char *member, const void *data,
                       size_t size, zip_int32_t method)
{
    zip_t *zip = zip_open(folder_path(folder, file), ZIP_CREATE, NULL);
    zip_source_t *source;
    zip_int64_t index;

    assert_non_null(zip);
    source = zip_source_buffer(zip, data, size, 0);
    assert_non_null(source);
    index = zip_file_add(zip, member, source, 0);
    assert_true(index >= 0);
    assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)index, method, 0), 0);
    assert_int_equal(zip_close(zip), 0);
}

static NpzWriter *open_writer(const Folder *folder, const char *name)
{
    NpzWriter *writer;

    assert_int_equal(npz_writer_new(folder_path(folder, name), &writer, NULL, 0), 0);
    return writer;
}

static void add(NpzWriter *writer, const char *name, Dps__V1__DType dtype, int ndim,
                const int64_t *dims, const void *data, size_t bytes)
{
    char problem[512] = "";

    if (npz_writer_add(writer, name, dtype, ndim, dims, problem, sizeof(problem)) < 0 ||
        npz_writer_data(writer, data, bytes, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
}

static void expect_array(const Folder *folder, const char *file, const char *name, NpyType type,
                         int ndim, const void *data, size_t bytes)
{
    char problem[512] = "";
    NpzArray array;

    if (npz_read(folder_path(folder, file), name, &array, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
    assert_int_equal(array.type, type);
    assert_int_equal(array.ndim, ndim);
    assert_int_equal(array.bytes, bytes);
    assert_memory_equal(array.data, data, bytes);
    npz_array_free(&array);
}

static void expect_problem(const Folder *folder, const char *file, const char *name, int code,
                           const char *words)
{
    char problem[512] = "";
    NpzArray array;
    int r = npz_read(folder_path(folder, file), name, &array, problem, sizeof(problem));

    if (!strstr(problem, words))
        fail_msg("'%s' lacks '%s'", problem, words);
    assert_int_equal(r, code);
}

static void what_is_written_is_read_back(void **state)
{
    const float weights[6] = {1, 2, 3, -4, 5.5F, 6};
    const int64_t dims[2] = {2, 3}, none[1] = {0}, count = -7;
    const int32_t ints[3] = {1, -2, 3};
    NpzWriter *writer = open_writer(*state, "a.npz");

    add(writer, "conv1.weight", DPS__V1__DTYPE__F32, 2, dims, weights, sizeof(weights));
    add(writer, "count", DPS__V1__DTYPE__I64, 0, NULL, &count, sizeof(count));
    add(writer, "empty", DPS__V1__DTYPE__U8, 1, none, NULL, 0);
    add(writer, "ints", DPS__V1__DTYPE__I32, 1, dims + 1, ints, sizeof(ints));
    assert_int_equal(npz_writer_close(writer, NULL, 0), 0);
    expect_array(*state, "a.npz", "conv1.weight", NPY_F4, 2, weights, sizeof(weights));
    expect_array(*state, "a.npz", "count", NPY_I8, 0, &count, sizeof(count));
    expect_array(*state, "a.npz", "empty", NPY_U1, 1, "", 0);
    expect_array(*state, "a.npz", "ints", NPY_I4, 1, ints, sizeof(ints));
    assert_int_equal(folder_count(*state), 1);
}

static void data_may_come_in_pieces(void **state)
{
    const int64_t dims[1] = {100000};
    uint8_t *data = malloc(100000);
    NpzWriter *writer = open_writer(*state, "a.npz");

    assert_non_null(data);
    for (int i = 0; i < 100000; i++)
        data[i] = (uint8_t)(i * 7 >> 3);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, NULL, 0), 0);
    for (size_t done = 0, piece = 1; done < 100000; done += piece, piece = piece * 3 + 1)
        assert_int_equal(npz_writer_data(writer, data + done,
                                         piece = piece < 100000 - done ? piece : 100000 - done,
                                         NULL, 0),
                         0);
    assert_int_equal(npz_writer_close(writer, NULL, 0), 0);
    expect_array(*state, "a.npz", "x", NPY_U1, 1, data, 100000);
    free(data);
}

static void equal_arrays_make_equal_files(void **state)
{
    const int64_t dims[1] = {4};
    uint8_t *a, *b;
    size_t na, nb;

    for (int i = 0; i < 2; i++) {
        NpzWriter *writer = open_writer(*state, i ? "b.npz" : "a.npz");

        add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, "abcd", 4);
        assert_int_equal(npz_writer_close(writer, NULL, 0), 0);
    }
    a = folder_read(*state, "a.npz", &na);
    b = folder_read(*state, "b.npz", &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    free(a);
    free(b);
}

static void a_file_is_replaced_whole_or_not_at_all(void **state)
{
    const int64_t dims[1] = {4};
    NpzWriter *writer;

    folder_write(*state, "a.npz", "before", 6);
    writer = open_writer(*state, "a.npz");
    add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, "ab", 2);
    assert_int_equal(npz_writer_close(writer, NULL, 0), -EINVAL);
    writer = open_writer(*state, "a.npz");
    add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, "abcd", 4);
    npz_writer_free(writer);
    expect_problem(*state, "a.npz", "x", -EINVAL, "cannot be read as .npz");
    assert_int_equal(folder_count(*state), 1);
    writer = open_writer(*state, "a.npz");
    add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, "abcd", 4);
    assert_int_equal(npz_writer_close(writer, NULL, 0), 0);
    expect_array(*state, "a.npz", "x", NPY_U1, 1, "abcd", 4);
    assert_int_equal(folder_count(*state), 1);
}

static void wrong_use_of_a_writer_is_refused(void **state)
{
    const int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[1] = {-1};
    const int64_t huge[2] = {INT64_MAX, INT64_MAX};
    static const char *const names[] = {"", "a/b"};
    NpzWriter *writer = open_writer(*state, "a.npz");
    char problem[512];

    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            npz_writer_add(writer, names[i], DPS__V1__DTYPE__U8, 1, dims, problem, sizeof(problem)),
            -EINVAL);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 9, dims, NULL, 0), -EINVAL);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 1, negative, NULL, 0),
                     -EINVAL);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 2, huge, NULL, 0), -EINVAL);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__BF16, 1, dims, NULL, 0), -EINVAL);
    assert_int_equal(npz_writer_data(writer, "a", 1, NULL, 0), -EINVAL);
    add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, "a", 1);
    assert_int_equal(npz_writer_data(writer, "a", 1, NULL, 0), -EINVAL);
    assert_int_equal(
        npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, problem, sizeof(problem)),
        -EINVAL);
    assert_non_null(strstr(problem, "'x' comes twice"));
    npz_writer_free(writer);
    writer = open_writer(*state, "a.npz");
    assert_int_equal(npz_writer_close(writer, problem, sizeof(problem)), -EINVAL);
    assert_non_null(strstr(problem, "no arrays"));
    assert_int_equal(folder_count(*state), 0);
}

static void a_place_that_cannot_be_written_is_named(void **state)
{
    char problem[512];
    NpzWriter *writer;

    assert_int_equal(
        npz_writer_new(folder_path(*state, "none/a.npz"), &writer, problem, sizeof(problem)),
        -ENOENT);
    assert_non_null(strstr(problem, "none/a.npz: cannot be written"));
    assert_int_equal(npz_writer_new(((Folder *)*state)->path, &writer, problem, sizeof(problem)),
                     -EEXIST);
}

/* A full disk, as RLIMIT_FSIZE plays it. */
static void a_full_disk_is_said_and_leaves_nothing(void **state)
{
    const int64_t dims[1] = {1 << 20};
    const struct rlimit small = {.rlim_cur = 100000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    uint8_t *data = calloc(1, 1 << 20);
    NpzWriter *writer = open_writer(*state, "a.npz");
    char problem[512] = "";
    int r;

    assert_non_null(data);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(npz_writer_add(writer, "x", DPS__V1__DTYPE__U8, 1, dims, NULL, 0), 0);
    r = npz_writer_data(writer, data, 1 << 20, problem, sizeof(problem));
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(r, -EFBIG);
    assert_non_null(strstr(problem, "a.npz: cannot be written"));
    npz_writer_free(writer);
    assert_int_equal(folder_count(*state), 0);
    free(data);
}

/* ---- files of others
 * -----------------------------------------------------------------------------
 */

/* A member of n bytes behind a header that says `shape`. */
static size_t member(char *bytes, const char *descr, int64_t count, size_t n)
{
    size_t header = npy_format_header(descr, 1, &count, bytes);

    for (size_t i = 0; i < n; i++)
        bytes[header + i] = (char)(i * 3);
    return header + n;
}

static void stored_and_deflated_members_are_read(void **state)
{
    char bytes[NPY_HEADER_SPACE + 4096];
    size_t size = member(bytes, "<f4", 1000, 4000);

    add_member(*state, "a.npz", "s.npy", bytes, size, ZIP_CM_STORE);
    add_member(*state, "a.npz", "d.npy", bytes, size, ZIP_CM_DEFLATE);
    expect_array(*state, "a.npz", "s", NPY_F4, 1, bytes + size - 4000, 4000);
    expect_array(*state, "a.npz", "d", NPY_F4, 1, bytes + size - 4000, 4000);
}

static void members_of_the_wrong_length_are_named_with_their_byte(void **state)
{
    char bytes[NPY_HEADER_SPACE + 64];
    size_t size = member(bytes, "|u1", 32, 33);

    add_member(*state, "a.npz", "long.npy", bytes, size, ZIP_CM_STORE);
    add_member(*state, "a.npz", "short.npy", bytes, size - 2, ZIP_CM_DEFLATE);
    add_member(*state, "a.npz", "header.npy", bytes, 50, ZIP_CM_STORE);
    add_member(*state, "a.npz", "magic.npy", bytes, 7, ZIP_CM_STORE);
    add_member(*state, "a.npz", "empty.npy", bytes, 0, ZIP_CM_STORE);
    expect_problem(*state, "a.npz", "long", -EINVAL, "'long.npy': byte 160: the array ends at");
    expect_problem(*state, "a.npz", "short", -EINVAL, "'short.npy': byte 159: the array ends at");
    expect_problem(*state, "a.npz", "header", -EINVAL, "'header.npy': byte 50: truncated");
    expect_problem(*state, "a.npz", "magic", -EINVAL, "'magic.npy': byte 7: truncated");
    expect_problem(*state, "a.npz", "empty", -EINVAL, "'empty.npy': byte 0: truncated");
    expect_problem(*state, "a.npz", "none", -ENOENT, "has no array 'none'");
    expect_problem(*state, "none.npz", "x", -ENOENT, "none.npz: No such file");
}

/* The directory claims what deflate cannot have made: refused before memory is asked for. */
static void a_claim_of_gigabytes_is_refused(void **state)
{
    char bytes[NPY_HEADER_SPACE + 4096];
    size_t size = member(bytes, "|u1", (int64_t)3 << 30, 0);
    uint8_t *file;
    size_t n, at;

    add_member(*state, "a.npz", "x.npy", bytes, size, ZIP_CM_DEFLATE);
    file = folder_read(*state, "a.npz", &n);
    /* the uncompressed size, in the local header and in the central directory */
    for (at = 0; at + 4 < n; at++)
        if (memcmp(file + at, "PK\x01\x02", 4) == 0)
            memcpy(file + at + 24, (uint32_t[]){(uint32_t)(size + ((size_t)3 << 30))}, 4);
        else if (memcmp(file + at, "PK\x03\x04", 4) == 0)
            memcpy(file + at + 22, (uint32_t[]){(uint32_t)(size + ((size_t)3 << 30))}, 4);
    folder_write(*state, "a.npz", file, n);
    expect_problem(*state, "a.npz", "x", -EINVAL, "claims 322");
    free(file);
}

typedef struct Damaged {
    const Folder *folder;
    size_t read; /* times that it went well */
} Damaged;

static void try_damaged(void *user, const char *what)
{
    Damaged *damaged = user;
    char problem[512] = "";
    NpzArray array;

    if (npz_read(folder_path(damaged->folder, "a.npz"), "x", &array, problem, sizeof(problem)) <
        0) {
        if (!strstr(problem, "a.npz"))
            fail_msg("%s: '%s' names no file", what, problem);
        return;
    }
    damaged->read++;
    npz_array_free(&array);
}

static void damage_does_no_harm(void **state)
{
    char bytes[NPY_HEADER_SPACE + 64];
    size_t size = member(bytes, "<f4", 16, 64);
    Damaged damaged = {.folder = *state};

    add_member(*state, "a.npz", "x.npy", bytes, size, ZIP_CM_DEFLATE);
    folder_damage(*state, "a.npz", 1, try_damaged, &damaged);
    try_damaged(&damaged, "whole");
    assert_true(damaged.read > 0);
}

/* The CRC catches what the header cannot. */
static void a_flipped_bit_of_the_data_is_found(void **state)
{
    char bytes[NPY_HEADER_SPACE + 64];
    size_t size = member(bytes, "<f4", 16, 64), n;
    uint8_t *file;

    add_member(*state, "a.npz", "x.npy", bytes, size, ZIP_CM_STORE);
    file = folder_read(*state, "a.npz", &n);
    file[30 + strlen("x.npy") + size - 1] ^= 1;
    folder_write(*state, "a.npz", file, n);
    expect_problem(*state, "a.npz", "x", -EINVAL, "CRC error");
    free(file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_back),
        TEST(data_may_come_in_pieces),
        TEST(equal_arrays_make_equal_files),
        TEST(a_file_is_replaced_whole_or_not_at_all),
        TEST(wrong_use_of_a_writer_is_refused),
        TEST(a_place_that_cannot_be_written_is_named),
        TEST(a_full_disk_is_said_and_leaves_nothing),
        TEST(stored_and_deflated_members_are_read),
        TEST(members_of_the_wrong_length_are_named_with_their_byte),
        TEST(a_claim_of_gigabytes_is_refused),
        TEST(damage_does_no_harm),
        TEST(a_flipped_bit_of_the_data_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
