#include "ctl/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "ctl/data/problem.h"

static int map_descriptor(int fd, const char *path, File *ret, char *problem, size_t size)
{
    struct stat st;
    void *data;

    if (fstat(fd, &st) < 0)
        return problem_errno(problem, size, path);
    if (!S_ISREG(st.st_mode))
        return problem_set(problem, size, -EINVAL, "%s: is not a regular file", path);
    *ret = (File){.mapped = true};
    if (st.st_size == 0)
        return 0;
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return problem_errno(problem, size, path);
    ret->data = data;
    ret->size = (size_t)st.st_size;
    return 0;
}

int file_map(const char *path, File *ret, char *problem, size_t size)
{
    /* O_NONBLOCK: a FIFO of that name must not hold us up */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int r;

    if (fd < 0)
        return problem_errno(problem, size, path);
    r = map_descriptor(fd, path, ret, problem, size);
    close(fd);
    return r;
}

void file_close(File *file)
{
    if (file->mapped && file->data)
        munmap((void *)file->data, file->size);
    else
        free((void *)file->data);
    *file = (File){0};
}

/* Where inflating goes: a buffer that doubles up to a limit. */
typedef struct Inflater {
    z_stream z;
    const char *path;
    const File *in;
    size_t consumed; /* of in */
    uint8_t *out;
    size_t used, capacity, limit;
} Inflater;

enum {
    INFLATE_FIRST = 64 * 1024,
    INFLATE_PIECE = 1 << 30, /* zlib counts in unsigned int */
};

static int grow(Inflater *f, char *problem, size_t size)
{
    size_t capacity = f->capacity ? f->capacity * 2 : INFLATE_FIRST;
    uint8_t *out;

    if (f->capacity >= f->limit)
        return problem_set(problem, size, -EFBIG,
                           "%s: inflates to more than the %zu bytes that are allowed", f->path,
                           f->limit);
    if (capacity > f->limit)
        capacity = f->limit;
    out = realloc(f->out, capacity);
    if (!out)
        return problem_set(problem, size, -ENOMEM, "%s: no memory for %zu bytes", f->path,
                           capacity);
    f->out = out;
    f->capacity = capacity;
    return 0;
}

/* One call of inflate; *end says that a member is whole. */
static int inflate_piece(Inflater *f, bool *end, char *problem, size_t size)
{
    size_t in = f->in->size - f->consumed, out = f->capacity - f->used;
    int z;

    f->z.next_in = (z_const Bytef *)(f->in->data + f->consumed);
    f->z.avail_in = (uInt)(in < INFLATE_PIECE ? in : INFLATE_PIECE);
    f->z.next_out = f->out + f->used;
    f->z.avail_out = (uInt)(out < INFLATE_PIECE ? out : INFLATE_PIECE);
    z = inflate(&f->z, Z_NO_FLUSH);
    f->consumed = (size_t)(f->z.next_in - f->in->data);
    f->used = (size_t)(f->z.next_out - f->out);
    if (z == Z_OK || z == Z_STREAM_END) {
        *end = z == Z_STREAM_END;
        return 0;
    }
    if (z == Z_BUF_ERROR)
        return problem_set(problem, size, -EINVAL,
                           "%s: byte %zu: the gzip data is cut off (%zu bytes came out)", f->path,
                           f->consumed, f->used);
    if (z == Z_MEM_ERROR)
        return problem_set(problem, size, -ENOMEM, "%s: no memory to inflate", f->path);
    return problem_set(problem, size, -EINVAL, "%s: byte %zu: corrupt gzip data: %s", f->path,
                       f->consumed, f->z.msg ? f->z.msg : "unknown form");
}

/* Members follow each other until the file ends; what follows the last must be a member too. */
static int inflate_members(Inflater *f, char *problem, size_t size)
{
    bool end = false;
    int r;

    while (f->consumed < f->in->size || !end) {
        if (end) {
            if (f->in->data[f->consumed] != 0x1f)
                return problem_set(problem, size, -EINVAL,
                                   "%s: byte %zu: trailing bytes after the gzip data", f->path,
                                   f->consumed);
            inflateReset(&f->z);
            end = false;
        }
        if (f->used == f->capacity) {
            r = grow(f, problem, size);
            if (r < 0)
                return r;
        }
        r = inflate_piece(f, &end, problem, size);
        if (r < 0)
            return r;
    }
    return 0;
}

int file_inflate(const char *path, size_t limit, File *ret, char *problem, size_t size)
{
    File in = {0};
    Inflater f = {.path = path, .in = &in, .limit = limit};
    int r;

    r = file_map(path, &in, problem, size);
    if (r < 0)
        return r;
    if (in.size == 0) {
        file_close(&in);
        return problem_set(problem, size, -EINVAL, "%s: byte 0: the file is empty", path);
    }
    /* 16: gzip only */
    if (inflateInit2(&f.z, 16 + MAX_WBITS) != Z_OK) {
        file_close(&in);
        return problem_set(problem, size, -ENOMEM, "%s: no memory to inflate", path);
    }
    r = inflate_members(&f, problem, size);
    inflateEnd(&f.z);
    file_close(&in);
    if (r < 0) {
        free(f.out);
        return r;
    }
    *ret = (File){.data = f.out, .size = f.used};
    return 0;
}
