#include "ctl/data/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/data/problem.h"
#include "ctl/data/source.h"

enum {
    DIGITS_TRAIN = 8000,
    DIGITS_PER_TEST = 4, /* digits to train on for each to test on */
    /* More are surely a slip: a day's drawing. */
    DIGITS_MAX = 1000000000,
};

struct Dataset {
    Source source;
};

static const char synthetic[] = "synthetic";

static bool is_synthetic(const char *path)
{
    size_t length = strlen(synthetic);

    return strncmp(path, synthetic, length) == 0 && (path[length] == '\0' || path[length] == ':');
}

/* Takes ":NUMBER" off the front of *text; leaves `number` where there is none. */
static bool take_number(const char **text, uint64_t *number)
{
    uint64_t value = 0;
    const char *p = *text;

    if (*p == '\0')
        return true;
    if (*p++ != ':' || *p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *text = p;
    *number = value;
    return true;
}

static int open_synthetic(const char *path, DatasetSplit split, uint64_t seed, Source *ret,
                          char *problem, size_t size)
{
    const char *rest = path + strlen(synthetic);
    uint64_t count = DIGITS_TRAIN;

    if (!take_number(&rest, &seed) || !take_number(&rest, &count) || *rest != '\0' ||
        count < DIGITS_PER_TEST || count > DIGITS_MAX)
        return problem_set(problem, size, -EINVAL,
                           "'%s' is not synthetic, synthetic:SEED or synthetic:SEED:COUNT with a "
                           "COUNT of %d to %d",
                           path, DIGITS_PER_TEST, DIGITS_MAX);
    if (split == DATASET_TEST)
        count /= DIGITS_PER_TEST;
    return digits_open(seed, split, count, ret, problem, size);
}

/* IDX files, else the split's .npz. */
static int open_directory(const char *path, DatasetSplit split, Source *ret, char *problem,
                          size_t size)
{
    char file[PATH_MAX];
    int r = idx_open(path, split, ret, problem, size);

    if (r != -ENOENT)
        return r;
    if ((size_t)snprintf(file, sizeof(file), "%s/%s.npz", path,
                         split == DATASET_TRAIN ? "train" : "test") >= sizeof(file))
        return problem_set(problem, size, -ENAMETOOLONG, "%.100s…: the path is too long", path);
    if (access(file, F_OK) == 0)
        return npz_set_open(file, ret, problem, size);
    return problem_set(
        problem, size, -ENOENT, "%s: has neither %s-images-idx3-ubyte(.gz) nor %s.npz", path,
        split == DATASET_TRAIN ? "train" : "t10k", split == DATASET_TRAIN ? "train" : "test");
}

static int open_source(const char *path, DatasetSplit split, uint64_t seed, Source *ret,
                       char *problem, size_t size)
{
    struct stat st;

    if (is_synthetic(path))
        return open_synthetic(path, split, seed, ret, problem, size);
    if (stat(path, &st) < 0)
        return problem_errno(problem, size, path);
    if (S_ISDIR(st.st_mode))
        return open_directory(path, split, ret, problem, size);
    return npz_set_open(path, ret, problem, size);
}

int dataset_open(const char *path, DatasetSplit split, uint64_t seed, Dataset **ret, char *problem,
                 size_t size)
{
    Dataset *dataset = calloc(1, sizeof(*dataset));
    int r;

    if (!dataset)
        return problem_set(problem, size, -ENOMEM, "no memory");
    r = open_source(path, split, seed, &dataset->source, problem, size);
    if (r < 0) {
        free(dataset);
        return r;
    }
    *ret = dataset;
    return 0;
}

Dataset *dataset_free(Dataset *dataset)
{
    if (dataset) {
        dataset->source.ops->free(dataset->source.state);
        free(dataset);
    }
    return NULL;
}

const DatasetInfo *dataset_info(const Dataset *dataset)
{
    return &dataset->source.info;
}

static int check_indices(const DatasetInfo *info, const uint64_t *indices, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (indices[i] >= info->samples)
            return -ERANGE;
    return 0;
}

int dataset_read(Dataset *dataset, const uint64_t *indices, size_t n, void *x, int64_t *y)
{
    const Source *s = &dataset->source;
    int r = check_indices(&s->info, indices, n);

    if (r < 0)
        return r;
    if (y && s->info.label != DATASET_CLASSES)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        s->ops->read(s->state, indices[i], (char *)x + i * s->info.sample_bytes, y ? y + i : NULL,
                     NULL);
    return 0;
}

int dataset_read_targets(Dataset *dataset, const uint64_t *indices, size_t n, void *x, float *y)
{
    const Source *s = &dataset->source;
    int r = check_indices(&s->info, indices, n);

    if (r < 0)
        return r;
    if (s->info.label != DATASET_TARGETS)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        s->ops->read(s->state, indices[i], (char *)x + i * s->info.sample_bytes, NULL,
                     y + i * s->info.target_elements);
    return 0;
}
