/* oneDNN 2.x: memory descriptors are structs, primitives are made from operation descriptors. */
#include "backend/onednn/adapter.h"

#include <string.h>

#include "backend/onednn/status.h"

int adapter_layout_strided(Layout *layout, int ndim, const int64_t *dims, const int64_t *strides)
{
    return status_to_errno(
        dnnl_memory_desc_init_by_strides(&layout->md, ndim, dims, dnnl_f32, strides));
}

int adapter_layout_any(Layout *layout, int ndim, const int64_t *dims)
{
    return status_to_errno(
        dnnl_memory_desc_init_by_tag(&layout->md, ndim, dims, dnnl_f32, dnnl_format_tag_any));
}

int adapter_layout_of_argument(Layout *layout, const_dnnl_primitive_desc_t pd, int argument)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
    if (!md)
        return -EOPNOTSUPP;
    layout->md = *md;
    return 0;
}

int adapter_layout_copy(Layout *layout, const Layout *from)
{
    layout->md = from->md;
    return 0;
}

void adapter_layout_describe(Layout *layout)
{
    const dnnl_memory_desc_t *md = &layout->md;
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    layout->ndim = md->ndims;
    layout->block = 1;
    if (md->ndims > SHAPE_MAX_DIMS || md->format_kind != dnnl_blocked)
        return;
    layout->bytes = dnnl_memory_desc_get_size(md);
    memcpy(layout->dims, md->dims, sizeof layout->dims);
    memcpy(layout->strides, blocking->strides, sizeof layout->strides);
    layout->padded_channels = md->ndims > 1 ? md->padded_dims[1] : 1;
    if (blocking->inner_nblks == 1 && blocking->inner_idxs[0] == 1)
        layout->block = blocking->inner_blks[0];
    layout->simple = md->data_type == dnnl_f32 && md->offset0 == 0 &&
                     blocking->inner_nblks == (layout->block > 1);
}

void adapter_layout_done(Layout *layout)
{
    (void)layout; /* the descriptor is a plain struct */
}

bool layout_same(const Layout *a, const Layout *b)
{
    return dnnl_memory_desc_equal(&a->md, &b->md) != 0;
}

int adapter_memory_of_argument(const_dnnl_primitive_desc_t pd, int argument, dnnl_engine_t engine,
                               dnnl_memory_t *ret, size_t *bytes)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
    if (!md)
        return -EOPNOTSUPP;
    *bytes = dnnl_memory_desc_get_size(md);
    return status_to_errno(dnnl_memory_create(ret, md, engine, DNNL_MEMORY_NONE));
}

int adapter_append_relu(dnnl_post_ops_t post_ops)
{
    return status_to_errno(dnnl_post_ops_append_eltwise(post_ops, 1, dnnl_eltwise_relu, 0, 0));
}

/* described: the status of filling *operation in. */
static int make(const PrimitiveContext *context, dnnl_status_t described,
                const_dnnl_op_desc_t operation, dnnl_primitive_desc_t *ret)
{
    if (described != dnnl_success)
        return status_to_errno(described);
    return status_to_errno(dnnl_primitive_desc_create(ret, operation, context->attributes,
                                                      context->engine, context->hint));
}

int adapter_conv_forward(const PrimitiveContext *context, const Window *window, const Layout *src,
                         const Layout *weights, const Layout *bias, const Layout *dst,
                         dnnl_primitive_desc_t *ret)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t described = dnnl_dilated_convolution_forward_desc_init(
        &operation, context->propagation, dnnl_convolution_direct, &src->md, &weights->md,
        bias ? &bias->md : NULL, &dst->md, window->stride, window->dilation, window->padding,
        window->padding);
    return make(context, described, &operation, ret);
}

int adapter_conv_backward_data(const PrimitiveContext *context, const Window *window,
                               const Layout *diff_src, const Layout *weights,
                               const Layout *diff_dst, dnnl_primitive_desc_t *ret)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t described = dnnl_dilated_convolution_backward_data_desc_init(
        &operation, dnnl_convolution_direct, &diff_src->md, &weights->md, &diff_dst->md,
        window->stride, window->dilation, window->padding, window->padding);
    return make(context, described, &operation, ret);
}

int adapter_conv_backward_weights(const PrimitiveContext *context, const Window *window,
                                  const Layout *src, const Layout *diff_weights,
                                  const Layout *diff_bias, const Layout *diff_dst,
                                  dnnl_primitive_desc_t *ret)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t described = dnnl_dilated_convolution_backward_weights_desc_init(
        &operation, dnnl_convolution_direct, &src->md, &diff_weights->md,
        diff_bias ? &diff_bias->md : NULL, &diff_dst->md, window->stride, window->dilation,
        window->padding, window->padding);
    return make(context, described, &operation, ret);
}

int adapter_matmul(const PrimitiveContext *context, const Layout *src, const Layout *weights,
                   const Layout *bias, const Layout *dst, dnnl_primitive_desc_t *ret)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t described = dnnl_matmul_desc_init(&operation, &src->md, &weights->md,
                                                    bias ? &bias->md : NULL, &dst->md);
    return make(context, described, &operation, ret);
}

int adapter_pool_forward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                         const Window *window, const Layout *src, const Layout *dst,
                         dnnl_primitive_desc_t *ret)
{
    dnnl_pooling_desc_t operation;
    dnnl_status_t described = dnnl_pooling_forward_desc_init(
        &operation, context->propagation, algorithm, &src->md, &dst->md, window->stride,
        window->kernel, window->padding, window->padding);
    return make(context, described, &operation, ret);
}

int adapter_pool_backward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                          const Window *window, const Layout *diff_src, const Layout *diff_dst,
                          dnnl_primitive_desc_t *ret)
{
    dnnl_pooling_desc_t operation;
    dnnl_status_t described = dnnl_pooling_backward_desc_init(
        &operation, algorithm, &diff_src->md, &diff_dst->md, window->stride, window->kernel,
        window->padding, window->padding);
    return make(context, described, &operation, ret);
}

int adapter_relu_forward(const PrimitiveContext *context, const Layout *data,
                         dnnl_primitive_desc_t *ret)
{
    dnnl_eltwise_desc_t operation;
    dnnl_status_t described = dnnl_eltwise_forward_desc_init(
        &operation, context->propagation, dnnl_eltwise_relu_use_dst_for_bwd, &data->md, 0, 0);
    return make(context, described, &operation, ret);
}

int adapter_relu_backward(const PrimitiveContext *context, const Layout *data,
                          dnnl_primitive_desc_t *ret)
{
    dnnl_eltwise_desc_t operation;
    dnnl_status_t described = dnnl_eltwise_backward_desc_init(
        &operation, dnnl_eltwise_relu_use_dst_for_bwd, &data->md, &data->md, 0, 0);
    return make(context, described, &operation, ret);
}

int adapter_batchnorm_forward(const PrimitiveContext *context, const Layout *data, float eps,
                              bool global, dnnl_primitive_desc_t *ret)
{
    unsigned flags = dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0);
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t described = dnnl_batch_normalization_forward_desc_init(
        &operation, context->propagation, &data->md, eps, flags);
    return make(context, described, &operation, ret);
}

int adapter_batchnorm_backward(const PrimitiveContext *context, const Layout *data, float eps,
                               dnnl_primitive_desc_t *ret)
{
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t described = dnnl_batch_normalization_backward_desc_init(
        &operation, dnnl_backward, &data->md, &data->md, eps, dnnl_use_scale | dnnl_use_shift);
    return make(context, described, &operation, ret);
}

int adapter_logsoftmax_forward(const PrimitiveContext *context, const Layout *data, int axis,
                               dnnl_primitive_desc_t *ret)
{
    dnnl_softmax_v2_desc_t operation;
    dnnl_status_t described = dnnl_softmax_v2_forward_desc_init(
        &operation, context->propagation, dnnl_softmax_log, &data->md, &data->md, axis);
    return make(context, described, &operation, ret);
}

int adapter_logsoftmax_backward(const PrimitiveContext *context, const Layout *data, int axis,
                                dnnl_primitive_desc_t *ret)
{
    dnnl_softmax_v2_desc_t operation;
    dnnl_status_t described = dnnl_softmax_v2_backward_desc_init(
        &operation, dnnl_softmax_log, &data->md, &data->md, &data->md, axis);
    return make(context, described, &operation, ret);
}

int adapter_reorder(const PrimitiveContext *context, const Layout *from, const Layout *to,
                    dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_reorder_primitive_desc_create(
        ret, &from->md, context->engine, &to->md, context->engine, context->attributes));
}
