/* What the files of the reference backend share. A kernel is a copy of its node with shapes at the
 * batch size; every layout is the plain row-major one. Used by ref*.c only. */
#pragma once

#include "backend/backend.h"

struct Layout {
    Shape shape;
};

struct Kernel {
    Node node;
    bool training;
    Shape input;   /* of inputs[0] */
    Layout output; /* plain */
    int64_t input_elements, output_elements;
};

/* One operator. prepare fills what the kernel wants beyond its output (saved, scratch, what
 * backward reads). Forward and backward cannot fail. */
typedef struct RefOperator {
    void (*prepare)(const Kernel *kernel, KernelInfo *info);
    void (*forward)(const Kernel *kernel, const KernelArgs *args);
    void (*backward)(const Kernel *kernel, const KernelArgs *args);
} RefOperator;

extern const RefOperator ref_conv2d, ref_relu, ref_maxpool2d, ref_avgpool2d, ref_batchnorm2d,
    ref_dropout, ref_dropout2d, ref_flatten, ref_linear, ref_logsoftmax, ref_add;

/* For nodes with fused_relu: the gradient before the Relu, in `masked` (output-sized). */
void ref_mask_by_relu(const Kernel *kernel, const KernelArgs *args, float *masked);
