/* What the operators of this backend share: the kernel's common part and its table.
 *
 * One operator a file, each with a `const KernelClass`. compile makes all primitives; forward and
 * backward only run them. Everything on the lane's thread. */
#pragma once

#include "backend/onednn/primitive.h"

typedef struct KernelClass {
    /* Fills the kernel (zeroed, `size` bytes) and *info. What it made when it fails is freed by
     * `done`. -ENOMEM, -EOPNOTSUPP, without a sentence: kernel_compile_failed words it */
    int (*compile)(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info);
    int (*forward)(Device *device, Kernel *kernel, const KernelArgs *args);
    int (*backward)(Device *device, Kernel *kernel, const KernelArgs *args);
    void (*done)(Kernel *kernel);
    size_t size; /* of the operator's struct, whose first member is its Kernel */
} KernelClass;

struct Kernel {
    const KernelClass *class;
    Node node;
    bool training;
    Layout *output;          /* owned */
    size_t scratch_bytes;    /* areas handed out so far */
    size_t scratchpad_bytes; /* of the primitive that wants most; lies behind the areas */
};

extern const KernelClass kernel_conv, kernel_relu, kernel_pool, kernel_batchnorm, kernel_dropout,
    kernel_flatten, kernel_linear, kernel_logsoftmax, kernel_add;

/* An area of scratch, 64-byte aligned: its offset. */
size_t kernel_scratch(Kernel *kernel, size_t bytes);
/* primitive_init, and the scratchpad counted. */
int kernel_primitive(Kernel *kernel, Primitive *primitive, const Device *device,
                     const_dnnl_primitive_desc_t pd, const int *names, int n_names);
int kernel_run(const Kernel *kernel, Primitive *primitive, const Device *device,
               const KernelArgs *args, const void *const *pointers);

/* The layout to compute in where an operator takes any: the input's, or plain where the output must
 * be plain. Owned by the caller. */
int kernel_working_layout(const KernelSpec *spec, Layout **ret);
Shape kernel_shape(const KernelSpec *spec, ValueId value);
static inline dnnl_prop_kind_t kernel_propagation(const KernelSpec *spec)
{
    return spec->training ? dnnl_forward_training : dnnl_forward_inference;
}

/* The primitive that masks a gradient by a Relu's output: args dst, diff_dst, diff_src, all in
 * `layout`. */
int kernel_relu_backward(Kernel *kernel, Primitive *primitive, const Device *device,
                         const Layout *layout);
enum { RELU_BACKWARD_DST, RELU_BACKWARD_DIFF_DST, RELU_BACKWARD_DIFF_SRC, RELU_BACKWARD_ARGS };
