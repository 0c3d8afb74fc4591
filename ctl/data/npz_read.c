/* Reading arrays out of .npz files, by libzip. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <zip.h>

#include "ctl/data/npy.h"
#include "ctl/data/npz.h"
#include "ctl/data/problem.h"

/* Deflate cannot make more than this of a byte; who claims more lies about the size. */
enum { DEFLATE_MAX_RATIO = 1032 };

void npz_array_free(NpzArray *array)
{
    free(array->data);
    array->data = NULL;
}

/* What is read and from where, for sentences: "FILE: member 'x.npy': …". */
typedef struct Member {
    const char *path, *name;
    zip_file_t *file;
    zip_uint64_t size; /* uncompressed, by the directory; zip_fread checks it and the CRC */
} Member;

/* Reads exactly n bytes that start at byte `at` of the member. */
static int read_exactly(Member *m, void *data, size_t n, size_t at, char *problem, size_t size)
{
    size_t done = 0;

    while (done < n) {
        zip_int64_t got = zip_fread(m->file, (char *)data + done, n - done);

        if (got < 0)
            return problem_set(problem, size, -EINVAL, "%s: member '%s': byte %zu: %s", m->path,
                               m->name, at + done, zip_file_strerror(m->file));
        if (got == 0)
            return problem_set(problem, size, -EINVAL,
                               "%s: member '%s': byte %zu: truncated, %zu bytes are missing",
                               m->path, m->name, at + done, n - done);
        done += (size_t)got;
    }
    return 0;
}

/* At the end of a member libzip checks its CRC. */
static int expect_end(Member *m, size_t at, char *problem, size_t size)
{
    char byte;
    zip_int64_t got = zip_fread(m->file, &byte, 1);

    if (got < 0)
        return problem_set(problem, size, -EINVAL, "%s: member '%s': byte %zu: %s", m->path,
                           m->name, at, zip_file_strerror(m->file));
    if (got > 0)
        return problem_set(problem, size, -EINVAL,
                           "%s: member '%s': byte %zu: trailing bytes after the array", m->path,
                           m->name, at);
    return 0;
}

static int read_header(Member *m, NpzArray *ret, char *problem, size_t size)
{
    uint8_t header[NPY_MAX_HEADER];
    size_t length, at;
    const char *why;
    int r;

    r = read_exactly(m, header, NPY_PREAMBLE, 0, problem, size);
    if (r < 0)
        return r;
    r = npy_header_length(header, NPY_PREAMBLE, &length, &at, &why);
    if (r == 0) {
        r = read_exactly(m, header + NPY_PREAMBLE, length - NPY_PREAMBLE, NPY_PREAMBLE, problem,
                         size);
        if (r < 0)
            return r;
        r = npy_parse_header(header, length, ret, &at, &why);
    }
    if (r < 0)
        return problem_set(problem, size, r, "%s: member '%s': byte %zu: %s", m->path, m->name, at,
                           why);
    return 0;
}

static int read_array(Member *m, NpzArray *ret, char *problem, size_t size)
{
    NpzArray array = {0};
    size_t end;
    int r = read_header(m, &array, problem, size);

    if (r < 0)
        return r;
    end = array.header_bytes + array.bytes;
    if (m->size != end)
        return problem_set(problem, size, -EINVAL,
                           "%s: member '%s': byte %zu: the array ends at byte %zu, but the member "
                           "has %" PRIu64 " bytes",
                           m->path, m->name, m->size < end ? (size_t)m->size : end, end,
                           (uint64_t)m->size);
    array.data = malloc(array.bytes ? array.bytes : 1);
    if (!array.data)
        return problem_set(problem, size, -ENOMEM, "%s: member '%s': no memory for %zu bytes",
                           m->path, m->name, array.bytes);
    r = read_exactly(m, array.data, array.bytes, array.header_bytes, problem, size);
    if (r == 0)
        r = expect_end(m, end, problem, size);
    if (r < 0) {
        npz_array_free(&array);
        return r;
    }
    *ret = array;
    return 0;
}

/* The directory's word on a member, so far as it can be believed. */
static int check_member(const zip_stat_t *st, const char *path, uint64_t file_size, char *problem,
                        size_t size)
{
    const zip_uint64_t need = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;

    if ((st->valid & need) != need || st->encryption_method != ZIP_EM_NONE ||
        (st->comp_method != ZIP_CM_STORE && st->comp_method != ZIP_CM_DEFLATE))
        return problem_set(problem, size, -EOPNOTSUPP,
                           "%s: member '%s' is neither stored nor deflated", path, st->name);
    if (st->comp_size > file_size || st->size / DEFLATE_MAX_RATIO > st->comp_size)
        return problem_set(problem, size, -EINVAL,
                           "%s: member '%s' claims %" PRIu64 " bytes made of %" PRIu64
                           " in a file of %" PRIu64,
                           path, st->name, (uint64_t)st->size, (uint64_t)st->comp_size, file_size);
    return 0;
}

static int read_member(zip_t *zip, const char *path, uint64_t file_size, const char *name,
                       NpzArray *ret, char *problem, size_t size)
{
    Member m = {.path = path, .name = name};
    zip_stat_t st;
    int r;

    zip_stat_init(&st);
    if (zip_stat(zip, name, 0, &st) < 0)
        return problem_set(problem, size, -ENOENT, "%s: has no array '%.*s'", path,
                           (int)strlen(name) - 4, name);
    r = check_member(&st, path, file_size, problem, size);
    if (r < 0)
        return r;
    m.size = st.size;
    m.file = zip_fopen_index(zip, st.index, 0);
    if (!m.file)
        return problem_set(problem, size, -EINVAL, "%s: member '%s': %s", path, name,
                           zip_strerror(zip));
    r = read_array(&m, ret, problem, size);
    zip_fclose(m.file);
    return r;
}

int npz_read(const char *path, const char *name, NpzArray *ret, char *problem, size_t size)
{
    char member[256];
    struct stat st;
    zip_error_t error;
    zip_t *zip;
    int code, r;

    if ((size_t)snprintf(member, sizeof(member), "%s.npy", name) >= sizeof(member))
        return problem_set(problem, size, -EINVAL, "%s: no array has so long a name", path);
    if (stat(path, &st) < 0)
        return problem_errno(problem, size, path);
    if (!S_ISREG(st.st_mode))
        return problem_set(problem, size, -EINVAL, "%s: is not a regular file", path);
    zip = zip_open(path, ZIP_RDONLY, &code);
    if (!zip) {
        zip_error_init_with_code(&error, code);
        r = problem_set(problem, size, -EINVAL, "%s: cannot be read as .npz: %s", path,
                        zip_error_strerror(&error));
        zip_error_fini(&error);
        return r;
    }
    r = read_member(zip, path, (uint64_t)st.st_size, member, ret, problem, size);
    zip_discard(zip);
    return r;
}
