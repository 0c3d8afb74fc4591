/* MaxPool2d and AveragePool2d in the layout that the input comes in. MaxPool saves oneDNN's
 * workspace: which element of each window was the largest. */
#include "backend/onednn/reorder.h"

typedef struct PoolKernel {
    Kernel base;
    Window window;
    dnnl_alg_kind_t algorithm;
    Layout *src;
    Primitive forward, backward;
    Reorder source, input_gradient;
    bool keeps_workspace;
} PoolKernel;

static void set_window(PoolKernel *pool)
{
    const PoolAttrs *attrs = &pool->base.node.attrs.pool;
    for (int i = 0; i < 2; i++) {
        pool->window.kernel[i] = attrs->kernel[i];
        pool->window.stride[i] = attrs->stride[i];
        pool->window.padding[i] = attrs->padding[i];
    }
    if (pool->base.node.kind == OP_MAXPOOL2D)
        pool->algorithm = dnnl_pooling_max;
    else
        pool->algorithm = attrs->count_include_pad ? dnnl_pooling_avg_include_padding
                                                   : dnnl_pooling_avg_exclude_padding;
}

static int compile_forward(PoolKernel *pool, Device *device, const KernelSpec *spec,
                           KernelInfo *info, dnnl_primitive_desc_t *ret)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_layout_ Layout *dst = NULL, *workspace = NULL;
    Kernel *kernel = &pool->base;
    Shape out = kernel_shape(spec, spec->node->output);
    int r = primitive_context_init(&context, device, kernel_propagation(spec), false);
    if (r == 0)
        r = layout_new_any(out.ndim, out.dims, &dst);
    if (r == 0)
        r = adapter_pool_forward(&context, pool->algorithm, &pool->window, pool->src, dst, ret);
    if (r == 0)
        r = layout_of_argument(*ret, DNNL_ARG_DST, &kernel->output);
    if (r == 0)
        r = layout_of_argument(*ret, DNNL_ARG_WORKSPACE, &workspace);
    if (r != 0)
        return r;
    pool->keeps_workspace = workspace->bytes > 0;
    info->saved_bytes = workspace->bytes;
    return kernel_primitive(kernel, &pool->forward, device, *ret, names,
                            pool->keeps_workspace ? 3 : 2);
}

static int compile_backward(PoolKernel *pool, Device *device, const KernelSpec *spec,
                            dnnl_primitive_desc_t forward)
{
    static const int names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WORKSPACE};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    Kernel *kernel = &pool->base;
    int r = primitive_context_init(&context, device, dnnl_backward_data, false);
    context.hint = forward;
    if (r == 0)
        r = adapter_pool_backward(&context, pool->algorithm, &pool->window, pool->src,
                                  kernel->output, &pd);
    if (r == 0)
        r = kernel_primitive(kernel, &pool->backward, device, pd, names,
                             pool->keeps_workspace ? 3 : 2);
    if (r == 0)
        r = reorder_init_out(&pool->input_gradient, device, pool->src, spec->inputs[0], kernel);
    return r;
}

static int pool_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    PoolKernel *pool = (PoolKernel *)kernel;
    _cleanup_pd_ dnnl_primitive_desc_t forward = NULL;
    set_window(pool);
    int r = kernel_working_layout(spec, &pool->src);
    if (r == 0)
        r = reorder_init_in(&pool->source, device, spec->inputs[0], pool->src, kernel);
    if (r == 0)
        r = compile_forward(pool, device, spec, info, &forward);
    if (r == 0 && spec->training && spec->need_input_gradient[0])
        r = compile_backward(pool, device, spec, forward);
    return r;
}

static int pool_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    PoolKernel *pool = (PoolKernel *)kernel;
    const void *src = NULL;
    int r = reorder_in(&pool->source, device, kernel, args, args->inputs[0], &src);
    if (r < 0)
        return r;
    return kernel_run(kernel, &pool->forward, device, args,
                      (const void *[]){src, args->output, args->saved});
}

static int pool_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    PoolKernel *pool = (PoolKernel *)kernel;
    void *outside = args->input_gradients[0];
    if (!outside)
        return 0;
    void *diff_src = reorder_target(&pool->input_gradient, args, outside);
    int r = kernel_run(kernel, &pool->backward, device, args,
                       (const void *[]){args->output_gradient, diff_src, args->saved});
    if (r == 0)
        r = reorder_out(&pool->input_gradient, device, kernel, args, outside);
    return r;
}

static void pool_done(Kernel *kernel)
{
    PoolKernel *pool = (PoolKernel *)kernel;
    primitive_done(&pool->forward);
    primitive_done(&pool->backward);
    reorder_done(&pool->source);
    reorder_done(&pool->input_gradient);
    layout_release(pool->src);
}

const KernelClass kernel_pool = {pool_compile, pool_forward, pool_backward, pool_done,
                                 sizeof(PoolKernel)};
