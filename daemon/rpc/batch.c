#include "rpc/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor.h"

/* What an OwnedBatch owns: the message, and classes widened to 64 bits. */
typedef struct BatchMemory {
    ProtobufCMessage *message;
    int64_t classes[];
} BatchMemory;

static void release(void *owner)
{
    BatchMemory *memory = owner;
    protobuf_c_message_free_unpacked(memory->message, NULL);
    free(memory);
}

static int view(const Dps__V1__Tensor *tensor, const char *what, TensorView *ret, Error *err)
{
    char problem[240];
    if (!tensor)
        return error_set(err, -EINVAL, "%s is missing", what);
    if (!tensor_view(tensor, what, ret, problem, sizeof problem))
        return error_set(err, -EINVAL, "%s", problem);
    return 0;
}

static bool dims_match(const TensorView *view, const Shape *shape)
{
    if (view->ndim != shape->ndim)
        return false;
    for (int i = 1; i < view->ndim; i++)
        if (view->dims[i] != shape->dims[i])
            return false;
    return view->dims[0] > 0;
}

static int check_dims(const TensorView *tensor, const char *what, const Shape *shape, Error *err)
{
    char got[120], wanted[120];
    if (!dims_match(tensor, shape))
        return error_set(err, -EINVAL, "%s is %s; the model takes %s", what,
                         tensor_format(tensor, got, sizeof got),
                         shape_format(shape, wanted, sizeof wanted));
    if (tensor->dims[0] > BATCH_MAX_SAMPLES)
        return error_set(err, -EINVAL, "%s has %lld samples; the most is %d", what,
                         (long long)tensor->dims[0], BATCH_MAX_SAMPLES);
    return 0;
}

static int check_x(const JobPlan *plan, const TensorView *x, Error *err)
{
    int r = check_dims(x, "x", graph_value_shape(plan->graph, 0), err);
    if (r < 0)
        return r;
    if (x->dtype != DPS__V1__DTYPE__F32 && x->dtype != DPS__V1__DTYPE__U8)
        return error_set(err, -EINVAL,
                         "x is %s; the model takes F32, or U8 that the server normalises",
                         dtype_name(x->dtype));
    if (x->dtype == DPS__V1__DTYPE__U8 && plan->model->defaults.channels == 0)
        return error_set(err, -EINVAL, "x is U8, and this model has no normalisation: send F32");
    return 0;
}

static int64_t class_at(const TensorView *y, int64_t i)
{
    int32_t narrow;
    int64_t wide;
    switch (y->dtype) {
    case DPS__V1__DTYPE__U8:
        return ((const uint8_t *)y->data)[i];
    case DPS__V1__DTYPE__I32:
        memcpy(&narrow, (const char *)y->data + i * 4, sizeof narrow);
        return narrow;
    default:
        memcpy(&wide, (const char *)y->data + i * 8, sizeof wide);
        return wide;
    }
}

static int check_classes(const TensorView *y, int64_t samples, Error *err)
{
    char got[120];
    if (y->ndim != 1 || y->dims[0] != samples)
        return error_set(err, -EINVAL, "y is %s; x has %lld samples, so y takes (%lld)",
                         tensor_format(y, got, sizeof got), (long long)samples, (long long)samples);
    if (y->dtype != DPS__V1__DTYPE__I64 && y->dtype != DPS__V1__DTYPE__I32 &&
        y->dtype != DPS__V1__DTYPE__U8)
        return error_set(err, -EINVAL, "y is %s; class indices are I64, I32 or U8",
                         dtype_name(y->dtype));
    return 0;
}

static int check_values(const JobPlan *plan, const TensorView *y, int64_t samples, Error *err)
{
    int r = check_dims(y, "y", graph_value_shape(plan->graph, graph_output(plan->graph)), err);
    if (r < 0)
        return r;
    if (y->dtype != DPS__V1__DTYPE__F32)
        return error_set(err, -EINVAL, "y is %s; the loss %s takes F32", dtype_name(y->dtype),
                         loss_name(plan->loss));
    if (y->dims[0] != samples)
        return error_set(err, -EINVAL, "y has %lld samples, x has %lld", (long long)y->dims[0],
                         (long long)samples);
    return 0;
}

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % sizeof(float) == 0;
}

/* protobuf-c gives bytes an allocation of their own, so that this does not happen. */
static int check_alignment(const TensorView *tensor, const char *what, Error *err)
{
    if (tensor->dtype == DPS__V1__DTYPE__F32 && !is_aligned(tensor->data))
        return error_set(err, -EINVAL, "%s is not aligned in memory", what);
    return 0;
}

static int fill(const JobPlan *plan, const Dps__V1__Tensor *y, const TensorView *x,
                BatchMemory **memory, Batch *batch, Error *err)
{
    TensorView target = {0};
    bool classes = y && loss_takes_classes(plan->loss);
    int64_t samples = x->dims[0];
    int r = y ? view(y, "y", &target, err) : 0;
    if (r == 0 && y)
        r = classes ? check_classes(&target, samples, err)
                    : check_values(plan, &target, samples, err);
    if (r == 0)
        r = check_alignment(x, "x", err);
    if (r == 0 && y && !classes)
        r = check_alignment(&target, "y", err);
    if (r < 0)
        return r;
    *memory = calloc(1, sizeof **memory + (classes ? (size_t)samples * sizeof(int64_t) : 0));
    if (!*memory)
        return error_set(err, -ENOMEM, "dpsd is out of memory");
    for (int64_t i = 0; classes && i < samples; i++)
        (*memory)->classes[i] = class_at(&target, i);
    *batch = (Batch){.samples = samples,
                     .x_is_u8 = x->dtype == DPS__V1__DTYPE__U8,
                     .x = x->data,
                     .y = classes ? (const void *)(*memory)->classes : target.data};
    return 0;
}

int batch_from_tensors(const JobPlan *plan, ProtobufCMessage *message, const Dps__V1__Tensor *x,
                       const Dps__V1__Tensor *y, OwnedBatch *ret, Error *err)
{
    TensorView input;
    BatchMemory *memory = NULL;
    Batch batch;
    int r = view(x, "x", &input, err);
    if (r == 0)
        r = check_x(plan, &input, err);
    if (r == 0)
        r = fill(plan, y, &input, &memory, &batch, err);
    if (r < 0) {
        protobuf_c_message_free_unpacked(message, NULL);
        return r;
    }
    memory->message = message;
    *ret = (OwnedBatch){.batch = batch, .owner = memory, .release = release};
    return 0;
}
