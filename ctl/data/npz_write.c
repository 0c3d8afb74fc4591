/* Writing .npz files. Members are spooled to an unnamed file as their data comes and put together
 * by libzip, which writes beside the path and renames. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zip.h>

#include "ctl/data/npy.h"
#include "ctl/data/npz.h"
#include "ctl/data/problem.h"

/* All members have this time, so that equal arrays make equal files: 1980-01-02 UTC, which is after
 * the first time that zip knows in every time zone. */
enum { MEMBER_TIME = 315619200 };

typedef struct Entry {
    char *name;             /* of the member: "x.npy" */
    uint64_t start, length; /* in the spool */
} Entry;

struct NpzWriter {
    char *path;
    int spool; /* unlinked */
    uint64_t spooled;
    Entry *entries;
    size_t count, capacity;
    uint64_t missing; /* bytes of the last array */
};

NpzWriter *npz_writer_free(NpzWriter *writer)
{
    if (!writer)
        return NULL;
    if (writer->spool >= 0)
        close(writer->spool);
    for (size_t i = 0; i < writer->count; i++)
        free(writer->entries[i].name);
    free(writer->entries);
    free(writer->path);
    free(writer);
    return NULL;
}

/* An unnamed file in the directory of `path`, where there should be room for what is written. */
static int open_spool(const char *path)
{
    char *name;
    int fd;

    if (asprintf(&name, "%s.spool.XXXXXX", path) < 0)
        return -ENOMEM;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    else
        fd = -errno;
    free(name);
    return fd;
}

int npz_writer_new(const char *path, NpzWriter **ret, char *problem, size_t size)
{
    NpzWriter *writer = calloc(1, sizeof(*writer));
    struct stat st;
    int r;

    if (writer) {
        writer->spool = -1;
        writer->path = strdup(path);
    }
    if (!writer || !writer->path) {
        npz_writer_free(writer);
        return problem_set(problem, size, -ENOMEM, "no memory");
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        npz_writer_free(writer);
        return problem_set(problem, size, -EEXIST, "%s: exists and is not a regular file", path);
    }
    writer->spool = open_spool(path);
    if (writer->spool < 0) {
        r = writer->spool;
        npz_writer_free(writer);
        return problem_set(problem, size, r, "%s: cannot be written: %s", path, strerror(-r));
    }
    *ret = writer;
    return 0;
}

static int spool_bytes(NpzWriter *writer, const void *data, size_t bytes, char *problem,
                       size_t size)
{
    while (bytes > 0) {
        ssize_t n = write(writer->spool, data, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return problem_set(problem, size, -errno, "%s: cannot be written: %s", writer->path,
                               strerror(errno));
        data = (const char *)data + n;
        bytes -= (size_t)n;
        writer->spooled += (uint64_t)n;
    }
    return 0;
}

/* numpy's name of the dtype; NULL: it has none. */
static const char *descr_of(Dps__V1__DType dtype, size_t *element)
{
    static const struct {
        Dps__V1__DType dtype;
        const char *descr;
        size_t element;
    } table[] = {
        {DPS__V1__DTYPE__F32, "<f4", 4}, {DPS__V1__DTYPE__F16, "<f2", 2},
        {DPS__V1__DTYPE__U8, "|u1", 1},  {DPS__V1__DTYPE__I32, "<i4", 4},
        {DPS__V1__DTYPE__I64, "<i8", 8},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].dtype == dtype) {
            *element = table[i].element;
            return table[i].descr;
        }
    return NULL;
}

static int check_name(const NpzWriter *writer, const char *name, char *problem, size_t size)
{
    size_t length = strlen(name);

    if (length == 0 || length > 250 || strchr(name, '/'))
        return problem_set(problem, size, -EINVAL,
                           "%s: '%.250s' cannot name an array: it is empty, too long or has a '/'",
                           writer->path, name);
    for (size_t i = 0; i < writer->count; i++)
        if (strlen(writer->entries[i].name) == length + 4 &&
            memcmp(writer->entries[i].name, name, length) == 0)
            return problem_set(problem, size, -EINVAL, "%s: array '%s' comes twice", writer->path,
                               name);
    return 0;
}

static int check_whole(const NpzWriter *writer, char *problem, size_t size)
{
    if (writer->missing == 0)
        return 0;
    return problem_set(problem, size, -EINVAL, "%s: member '%s' lacks %" PRIu64 " bytes",
                       writer->path, writer->entries[writer->count - 1].name, writer->missing);
}

static int append_entry(NpzWriter *writer, const char *name, uint64_t length)
{
    char *member;

    if (writer->count == writer->capacity) {
        size_t capacity = writer->capacity ? writer->capacity * 2 : 16;
        Entry *entries = reallocarray(writer->entries, capacity, sizeof(*entries));

        if (!entries)
            return -ENOMEM;
        writer->entries = entries;
        writer->capacity = capacity;
    }
    if (asprintf(&member, "%s.npy", name) < 0)
        return -ENOMEM;
    writer->entries[writer->count++] =
        (Entry){.name = member, .start = writer->spooled, .length = length};
    return 0;
}

int npz_writer_add(NpzWriter *writer, const char *name, Dps__V1__DType dtype, int ndim,
                   const int64_t *dims, char *problem, size_t size)
{
    char header[NPY_HEADER_SPACE];
    size_t element = 0, header_length;
    const char *descr = descr_of(dtype, &element);
    uint64_t bytes;
    int r;

    r = check_whole(writer, problem, size);
    if (r == 0)
        r = check_name(writer, name, problem, size);
    if (r < 0)
        return r;
    if (!descr || ndim < 0 || ndim > NPZ_MAX_DIMS)
        return problem_set(problem, size, -EINVAL, "%s: array '%s' has %s", writer->path, name,
                           descr ? "more than 8 dims" : "a dtype that numpy lacks");
    bytes = element;
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)dims[i], &bytes) ||
            bytes > INT64_MAX)
            return problem_set(problem, size, -EINVAL, "%s: array '%s' has a dim of %" PRId64,
                               writer->path, name, dims[i]);
    header_length = npy_format_header(descr, ndim, dims, header);
    if (append_entry(writer, name, header_length + bytes) < 0)
        return problem_set(problem, size, -ENOMEM, "no memory");
    writer->missing = bytes;
    return spool_bytes(writer, header, header_length, problem, size);
}

int npz_writer_data(NpzWriter *writer, const void *data, size_t bytes, char *problem, size_t size)
{
    if (bytes > writer->missing)
        return problem_set(problem, size, -EINVAL,
                           "%s: %zu bytes where the last array lacks %" PRIu64, writer->path, bytes,
                           writer->missing);
    writer->missing -= bytes;
    return spool_bytes(writer, data, bytes, problem, size);
}

/* Adds the spooled member to the archive, stored: parameters hardly shrink. */
static int add_member(zip_t *zip, const Entry *entry, const char *spool)
{
    zip_source_t *source = zip_source_file(zip, spool, entry->start, (zip_int64_t)entry->length);
    zip_int64_t index;

    if (!source)
        return -EIO;
    index = zip_file_add(zip, entry->name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return -EIO;
    }
    if (zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) < 0 ||
        zip_file_set_mtime(zip, (zip_uint64_t)index, MEMBER_TIME, 0) < 0)
        return -EIO;
    return 0;
}

static int build(const NpzWriter *writer, char *problem, size_t size)
{
    char spool[64];
    zip_error_t error;
    zip_t *zip;
    int code, r = 0;

    zip = zip_open(writer->path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!zip) {
        zip_error_init_with_code(&error, code);
        problem_write(problem, size, "%s: cannot be written: %s", writer->path,
                      zip_error_strerror(&error));
        zip_error_fini(&error);
        return -EIO;
    }
    snprintf(spool, sizeof(spool), "/proc/self/fd/%d", writer->spool);
    for (size_t i = 0; i < writer->count && r == 0; i++)
        r = add_member(zip, &writer->entries[i], spool);
    if (r == 0 && zip_close(zip) == 0)
        return 0;
    problem_write(problem, size, "%s: cannot be written: %s", writer->path, zip_strerror(zip));
    zip_discard(zip);
    return -EIO;
}

int npz_writer_close(NpzWriter *writer, char *problem, size_t size)
{
    int r = check_whole(writer, problem, size);

    if (r == 0 && writer->count == 0)
        r = problem_set(problem, size, -EINVAL, "%s: there are no arrays to write", writer->path);
    if (r == 0)
        r = build(writer, problem, size);
    npz_writer_free(writer);
    return r;
}
