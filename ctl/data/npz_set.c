/* A data set of the arrays x and y of an .npz file. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/data/npy.h"
#include "ctl/data/npz.h"
#include "ctl/data/problem.h"
#include "ctl/data/source.h"

/* A class beyond this is taken for a damaged file: no model here has a million outputs. */
enum { MAX_CLASS = 1000000 };

typedef struct NpzSet {
    NpzArray x, y; /* x U1 or F4; y U1, I4, I8, or F4 for targets */
    size_t sample_bytes, target_elements;
} NpzSet;

static void npz_set_free(void *state)
{
    NpzSet *set = state;

    npz_array_free(&set->x);
    npz_array_free(&set->y);
    free(set);
}

static int64_t class_at(const NpzArray *y, uint64_t index)
{
    if (y->type == NPY_U1)
        return ((const uint8_t *)y->data)[index];
    if (y->type == NPY_I4)
        return ((const int32_t *)y->data)[index];
    return ((const int64_t *)y->data)[index];
}

static void npz_set_read(const void *state, uint64_t index, void *x, int64_t *class_index,
                         float *target)
{
    const NpzSet *set = state;

    memcpy(x, (const char *)set->x.data + index * set->sample_bytes, set->sample_bytes);
    if (class_index)
        *class_index = class_at(&set->y, index);
    if (target)
        memcpy(target, (const float *)set->y.data + index * set->target_elements,
               set->target_elements * sizeof(float));
}

static const SourceOps npz_set_ops = {.read = npz_set_read, .free = npz_set_free};

/* float64 becomes float32 in place: element i is read before anything is written over it. */
static void narrow(NpzArray *array)
{
    double wide;
    float small;

    if (array->type != NPY_F8)
        return;
    for (size_t i = 0; i < array->elements; i++) {
        memcpy(&wide, (char *)array->data + i * sizeof(wide), sizeof(wide));
        small = (float)wide;
        memcpy((char *)array->data + i * sizeof(small), &small, sizeof(small));
    }
    array->type = NPY_F4;
    array->bytes = array->elements * sizeof(float);
}

static int check_x(NpzArray *x, const char *path, DatasetInfo *info, char *problem, size_t size)
{
    if (x->type != NPY_U1 && x->type != NPY_F4 && x->type != NPY_F8)
        return problem_set(problem, size, -EINVAL,
                           "%s: x is %s; samples are uint8, float32 or float64", path,
                           npy_type_name(x->type));
    if (x->ndim < 2 || x->elements == 0)
        return problem_set(problem, size, -EINVAL,
                           "%s: x has %d dims and %zu elements; it needs samples of at least one "
                           "dim",
                           path, x->ndim, x->elements);
    narrow(x);
    info->samples = (uint64_t)x->dims[0];
    info->dtype = x->type == NPY_U1 ? DPS__V1__DTYPE__U8 : DPS__V1__DTYPE__F32;
    info->ndim = x->ndim - 1;
    memcpy(info->dims, x->dims + 1, (size_t)info->ndim * sizeof(info->dims[0]));
    info->sample_bytes = x->bytes / info->samples;
    return 0;
}

static int check_classes(const NpzArray *y, const char *path, DatasetInfo *info, char *problem,
                         size_t size)
{
    int64_t largest = 0;

    if (y->elements != info->samples)
        return problem_set(problem, size, -EINVAL,
                           "%s: y has %zu classes for %" PRIu64 " samples; it is one a sample",
                           path, y->elements, info->samples);
    for (size_t i = 0; i < y->elements; i++) {
        int64_t class = class_at(y, i);

        if (class < 0 || class > MAX_CLASS)
            return problem_set(problem, size, -EINVAL,
                               "%s: member 'y.npy': byte %zu: label %" PRId64
                               " of sample %zu is not within 0 … %d",
                               path, y->header_bytes + i * npy_type_size(y->type), class, i,
                               MAX_CLASS);
        if (class > largest)
            largest = class;
    }
    info->label = DATASET_CLASSES;
    info->label_dtype = largest <= UINT8_MAX ? DPS__V1__DTYPE__U8 : DPS__V1__DTYPE__I64;
    return 0;
}

static int check_targets(NpzArray *y, const char *path, DatasetInfo *info, char *problem,
                         size_t size)
{
    if (y->elements == 0)
        return problem_set(problem, size, -EINVAL, "%s: y has no elements", path);
    narrow(y);
    info->label = DATASET_TARGETS;
    info->label_dtype = DPS__V1__DTYPE__F32;
    info->target_ndim = y->ndim - 1;
    memcpy(info->target_dims, y->dims + 1, (size_t)info->target_ndim * sizeof(info->dims[0]));
    info->target_elements = y->elements / info->samples;
    return 0;
}

static int check_y(NpzArray *y, const char *path, DatasetInfo *info, char *problem, size_t size)
{
    if (y->ndim < 1 || (uint64_t)y->dims[0] != info->samples)
        return problem_set(problem, size, -EINVAL,
                           "%s: y has %" PRId64 " labels for the %" PRIu64 " samples of x", path,
                           y->ndim < 1 ? 0 : y->dims[0], info->samples);
    if (y->type == NPY_F4 || y->type == NPY_F8)
        return check_targets(y, path, info, problem, size);
    return check_classes(y, path, info, problem, size);
}

static int load_set(NpzSet *set, const char *path, DatasetInfo *info, char *problem, size_t size)
{
    int r = npz_read(path, "x", &set->x, problem, size);

    if (r == 0)
        r = check_x(&set->x, path, info, problem, size);
    if (r == 0)
        r = npz_read(path, "y", &set->y, problem, size);
    if (r == 0)
        r = check_y(&set->y, path, info, problem, size);
    set->sample_bytes = info->sample_bytes;
    set->target_elements = info->target_elements;
    return r;
}

int npz_set_open(const char *path, Source *ret, char *problem, size_t size)
{
    NpzSet *set = calloc(1, sizeof(*set));
    DatasetInfo info = {0};
    int r;

    if (!set)
        return problem_set(problem, size, -ENOMEM, "no memory");
    r = load_set(set, path, &info, problem, size);
    if (r < 0) {
        npz_set_free(set);
        return r;
    }
    *ret = (Source){.info = info, .ops = &npz_set_ops, .state = set};
    return 0;
}
