/* MNIST-style IDX files: a big-endian magic number, the dims, then the bytes. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/data/file.h"
#include "ctl/data/problem.h"
#include "ctl/data/source.h"

enum {
    IDX_MAGIC_LABELS = 0x801, /* unsigned bytes, one dim */
    IDX_MAGIC_IMAGES = 0x803, /* unsigned bytes, three dims */
    /* A side of an image longer than this is taken for a damaged header. */
    IDX_MAX_SIDE = 16384,
    IDX_IMAGES_HEADER = 16,
    IDX_LABELS_HEADER = 8,
};

typedef struct IdxSet {
    File images, labels;
    size_t sample_bytes;
} IdxSet;

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void idx_free(void *state)
{
    IdxSet *set = state;

    file_close(&set->images);
    file_close(&set->labels);
    free(set);
}

static void idx_read(const void *state, uint64_t index, void *x, int64_t *class_index,
                     float *target)
{
    const IdxSet *set = state;

    (void)target;
    memcpy(x, set->images.data + IDX_IMAGES_HEADER + index * set->sample_bytes, set->sample_bytes);
    if (class_index)
        *class_index = set->labels.data[IDX_LABELS_HEADER + index];
}

static const SourceOps idx_ops = {.read = idx_read, .free = idx_free};

/* The plain file, else the gzipped one; path then names the one that was opened. -ENOENT: neither
 * is there. */
static int load(const char *directory, const char *name, char path[static PATH_MAX], File *ret,
                char *problem, size_t size)
{
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s.gz", directory, name) >= PATH_MAX)
        return problem_set(problem, size, -ENAMETOOLONG, "%.100s…: the path is too long",
                           directory);
    path[strlen(path) - 3] = '\0';
    if (access(path, F_OK) == 0)
        return file_map(path, ret, problem, size);
    path[strlen(path)] = '.';
    return file_inflate(path, FILE_MAX_INFLATED, ret, problem, size);
}

/* The header: magic, count and further dims. `header` bytes, all there. */
static int check_header(const File *file, const char *path, uint32_t magic, size_t header,
                        char *problem, size_t size)
{
    if (file->size < header)
        return problem_set(problem, size, -EINVAL,
                           "%s: byte %zu: truncated, the header alone has %zu bytes", path,
                           file->size, header);
    if (be32(file->data) != magic)
        return problem_set(
            problem, size, -EINVAL,
            "%s: byte 0: magic 0x%08" PRIx32 " where 0x%08" PRIx32 " (%s) should stand", path,
            be32(file->data), magic,
            magic == IDX_MAGIC_IMAGES ? "images of unsigned bytes" : "labels of unsigned bytes");
    if (be32(file->data + 4) == 0)
        return problem_set(problem, size, -EINVAL, "%s: byte 4: there are no samples", path);
    return 0;
}

/* Count · sample bytes must be just what follows the header. */
static int check_length(const File *file, const char *path, size_t header, uint64_t count,
                        size_t sample_bytes, char *problem, size_t size)
{
    uint64_t want = header + count * sample_bytes; /* < 2^32 · 2^28 + 16 */

    if (file->size < want)
        return problem_set(problem, size, -EINVAL,
                           "%s: byte %zu: truncated, %" PRIu64 " samples of %zu bytes end at byte "
                           "%" PRIu64,
                           path, file->size, count, sample_bytes, want);
    if (file->size > want)
        return problem_set(problem, size, -EINVAL,
                           "%s: byte %" PRIu64 ": %" PRIu64 " trailing bytes after %" PRIu64
                           " samples",
                           path, want, file->size - want, count);
    return 0;
}

static int check_images(const File *file, const char *path, DatasetInfo *info, char *problem,
                        size_t size)
{
    int r = check_header(file, path, IDX_MAGIC_IMAGES, IDX_IMAGES_HEADER, problem, size);

    if (r < 0)
        return r;
    *info = (DatasetInfo){.samples = be32(file->data + 4),
                          .dtype = DPS__V1__DTYPE__U8,
                          .ndim = 3,
                          .dims = {1, be32(file->data + 8), be32(file->data + 12)},
                          .label = DATASET_CLASSES,
                          .label_dtype = DPS__V1__DTYPE__U8};
    for (int i = 1; i < 3; i++)
        if (info->dims[i] < 1 || info->dims[i] > IDX_MAX_SIDE)
            return problem_set(problem, size, -EINVAL,
                               "%s: byte %d: images of %" PRId64 " × %" PRId64
                               " pixels; a side has 1 to %d",
                               path, 4 + 4 * i, info->dims[1], info->dims[2], IDX_MAX_SIDE);
    info->sample_bytes = (size_t)(info->dims[1] * info->dims[2]);
    return check_length(file, path, IDX_IMAGES_HEADER, info->samples, info->sample_bytes, problem,
                        size);
}

static int check_labels(const File *file, const char *path, const char *images_path,
                        uint64_t images, char *problem, size_t size)
{
    uint32_t count;
    int r = check_header(file, path, IDX_MAGIC_LABELS, IDX_LABELS_HEADER, problem, size);

    if (r < 0)
        return r;
    count = be32(file->data + 4);
    r = check_length(file, path, IDX_LABELS_HEADER, count, 1, problem, size);
    if (r < 0)
        return r;
    if (count != images)
        return problem_set(problem, size, -EINVAL,
                           "%s: byte 4: %" PRIu32 " labels for the %" PRIu64 " images of %s", path,
                           count, images, images_path);
    return 0;
}

static int load_set(IdxSet *set, const char *directory, DatasetSplit split, DatasetInfo *info,
                    char *problem, size_t size)
{
    static const char *const names[][2] = {
        [DATASET_TRAIN] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
        [DATASET_TEST] = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
    };
    char images[PATH_MAX], labels[PATH_MAX];
    int r;

    r = load(directory, names[split][0], images, &set->images, problem, size);
    if (r < 0)
        return r;
    r = check_images(&set->images, images, info, problem, size);
    if (r < 0)
        return r;
    r = load(directory, names[split][1], labels, &set->labels, problem, size);
    /* -ENOENT is for a directory that has none of the files */
    if (r < 0)
        return r == -ENOENT ? -EINVAL : r;
    r = check_labels(&set->labels, labels, images, info->samples, problem, size);
    if (r < 0)
        return r;
    set->sample_bytes = info->sample_bytes;
    return 0;
}

int idx_open(const char *directory, DatasetSplit split, Source *ret, char *problem, size_t size)
{
    IdxSet *set = calloc(1, sizeof(*set));
    DatasetInfo info;
    int r;

    if (!set)
        return problem_set(problem, size, -ENOMEM, "no memory");
    r = load_set(set, directory, split, &info, problem, size);
    if (r < 0) {
        idx_free(set);
        return r;
    }
    *ret = (Source){.info = info, .ops = &idx_ops, .state = set};
    return 0;
}
