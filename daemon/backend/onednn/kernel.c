#include "backend/onednn/kernel.h"

size_t kernel_scratch(Kernel *kernel, size_t bytes)
{
    size_t offset = kernel->scratch_bytes;
    kernel->scratch_bytes += (bytes + 63) / 64 * 64;
    return offset;
}

int kernel_primitive(Kernel *kernel, Primitive *primitive, const Device *device,
                     const_dnnl_primitive_desc_t pd, const int *names, int n_names)
{
    int r = primitive_init(primitive, device, pd, names, n_names);
    if (primitive->scratchpad_bytes > kernel->scratchpad_bytes)
        kernel->scratchpad_bytes = primitive->scratchpad_bytes;
    return r;
}

int kernel_run(const Kernel *kernel, Primitive *primitive, const Device *device,
               const KernelArgs *args, const void *const *pointers)
{
    char *scratch = args->scratch;
    return primitive_run(primitive, device, pointers,
                         scratch ? scratch + kernel->scratch_bytes : NULL);
}

Shape kernel_shape(const KernelSpec *spec, ValueId value)
{
    return shape_at_batch(graph_value_shape(spec->graph, value), spec->batch);
}

int kernel_working_layout(const KernelSpec *spec, Layout **ret)
{
    Shape shape = kernel_shape(spec, spec->node->inputs[0]);
    if (spec->plain_output && !spec->inputs[0]->plain)
        return layout_of_shape(&shape, ret);
    return layout_clone(spec->inputs[0], ret);
}

int kernel_relu_backward(Kernel *kernel, Primitive *primitive, const Device *device,
                         const Layout *layout)
{
    static const int names[RELU_BACKWARD_ARGS] = {
        [RELU_BACKWARD_DST] = DNNL_ARG_DST,
        [RELU_BACKWARD_DIFF_DST] = DNNL_ARG_DIFF_DST,
        [RELU_BACKWARD_DIFF_SRC] = DNNL_ARG_DIFF_SRC,
    };
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t forward = NULL, backward = NULL;
    int r = primitive_context_init(&context, device, dnnl_forward_training, false);
    if (r == 0)
        r = adapter_relu_forward(&context, layout, &forward);
    context.hint = forward;
    if (r == 0)
        r = adapter_relu_backward(&context, layout, &backward);
    if (r == 0)
        r = kernel_primitive(kernel, primitive, device, backward, names, RELU_BACKWARD_ARGS);
    return r;
}
