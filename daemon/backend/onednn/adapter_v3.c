/* oneDNN 3.x: memory descriptors are handles, primitive descriptors are made directly. */
#include "backend/onednn/adapter.h"

#include <string.h>

#include "backend/onednn/status.h"

int adapter_layout_strided(Layout *layout, int ndim, const int64_t *dims, const int64_t *strides)
{
    return status_to_errno(
        dnnl_memory_desc_create_with_strides(&layout->md, ndim, dims, dnnl_f32, strides));
}

int adapter_layout_any(Layout *layout, int ndim, const int64_t *dims)
{
    return status_to_errno(
        dnnl_memory_desc_create_with_tag(&layout->md, ndim, dims, dnnl_f32, dnnl_format_tag_any));
}

int adapter_layout_of_argument(Layout *layout, const_dnnl_primitive_desc_t pd, int argument)
{
    const_dnnl_memory_desc_t md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
    if (!md)
        return -EOPNOTSUPP;
    return status_to_errno(dnnl_memory_desc_clone(&layout->md, md));
}

int adapter_layout_copy(Layout *layout, const Layout *from)
{
    return status_to_errno(dnnl_memory_desc_clone(&layout->md, from->md));
}

static int query_int(const Layout *layout, dnnl_query_t what)
{
    int value = 0;
    dnnl_memory_desc_query(layout->md, what, &value);
    return value;
}

static const int64_t *query_dims(const Layout *layout, dnnl_query_t what)
{
    static const dnnl_dims_t none;
    const dnnl_dims_t *value = NULL;
    if (dnnl_memory_desc_query(layout->md, what, &value) != dnnl_success || !value)
        return none;
    return *value;
}

void adapter_layout_describe(Layout *layout)
{
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_data_type_t type = dnnl_data_type_undef;
    int64_t offset = 0;
    layout->ndim = query_int(layout, dnnl_query_ndims_s32);
    layout->block = 1;
    dnnl_memory_desc_query(layout->md, dnnl_query_format_kind, &kind);
    if (layout->ndim > SHAPE_MAX_DIMS || kind != dnnl_blocked)
        return;
    layout->bytes = dnnl_memory_desc_get_size(layout->md);
    memcpy(layout->dims, query_dims(layout, dnnl_query_dims), sizeof layout->dims);
    memcpy(layout->strides, query_dims(layout, dnnl_query_strides), sizeof layout->strides);
    layout->padded_channels = layout->ndim > 1 ? query_dims(layout, dnnl_query_padded_dims)[1] : 1;
    int blocks = query_int(layout, dnnl_query_inner_nblks_s32);
    if (blocks == 1 && query_dims(layout, dnnl_query_inner_idxs)[0] == 1)
        layout->block = query_dims(layout, dnnl_query_inner_blks)[0];
    dnnl_memory_desc_query(layout->md, dnnl_query_data_type, &type);
    dnnl_memory_desc_query(layout->md, dnnl_query_submemory_offset_s64, &offset);
    layout->simple = type == dnnl_f32 && offset == 0 && blocks == (layout->block > 1);
}

void adapter_layout_done(Layout *layout)
{
    dnnl_memory_desc_destroy(layout->md);
}

bool layout_same(const Layout *a, const Layout *b)
{
    return dnnl_memory_desc_equal(a->md, b->md) != 0;
}

int adapter_memory_of_argument(const_dnnl_primitive_desc_t pd, int argument, dnnl_engine_t engine,
                               dnnl_memory_t *ret, size_t *bytes)
{
    const_dnnl_memory_desc_t md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
    if (!md)
        return -EOPNOTSUPP;
    *bytes = dnnl_memory_desc_get_size(md);
    return status_to_errno(dnnl_memory_create(ret, md, engine, DNNL_MEMORY_NONE));
}

int adapter_append_relu(dnnl_post_ops_t post_ops)
{
    return status_to_errno(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_relu, 0, 0));
}

int adapter_conv_forward(const PrimitiveContext *context, const Window *window, const Layout *src,
                         const Layout *weights, const Layout *bias, const Layout *dst,
                         dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_convolution_forward_primitive_desc_create(
        ret, context->engine, context->propagation, dnnl_convolution_direct, src->md, weights->md,
        bias ? bias->md : NULL, dst->md, window->stride, window->dilation, window->padding,
        window->padding, context->attributes));
}

int adapter_conv_backward_data(const PrimitiveContext *context, const Window *window,
                               const Layout *diff_src, const Layout *weights,
                               const Layout *diff_dst, dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_convolution_backward_data_primitive_desc_create(
        ret, context->engine, dnnl_convolution_direct, diff_src->md, weights->md, diff_dst->md,
        window->stride, window->dilation, window->padding, window->padding, context->hint,
        context->attributes));
}

int adapter_conv_backward_weights(const PrimitiveContext *context, const Window *window,
                                  const Layout *src, const Layout *diff_weights,
                                  const Layout *diff_bias, const Layout *diff_dst,
                                  dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_convolution_backward_weights_primitive_desc_create(
        ret, context->engine, dnnl_convolution_direct, src->md, diff_weights->md,
        diff_bias ? diff_bias->md : NULL, diff_dst->md, window->stride, window->dilation,
        window->padding, window->padding, context->hint, context->attributes));
}

int adapter_matmul(const PrimitiveContext *context, const Layout *src, const Layout *weights,
                   const Layout *bias, const Layout *dst, dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_matmul_primitive_desc_create(ret, context->engine, src->md,
                                                             weights->md, bias ? bias->md : NULL,
                                                             dst->md, context->attributes));
}

int adapter_pool_forward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                         const Window *window, const Layout *src, const Layout *dst,
                         dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_pooling_forward_primitive_desc_create(
        ret, context->engine, context->propagation, algorithm, src->md, dst->md, window->stride,
        window->kernel, window->dilation, window->padding, window->padding, context->attributes));
}

int adapter_pool_backward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                          const Window *window, const Layout *diff_src, const Layout *diff_dst,
                          dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_pooling_backward_primitive_desc_create(
        ret, context->engine, algorithm, diff_src->md, diff_dst->md, window->stride, window->kernel,
        window->dilation, window->padding, window->padding, context->hint, context->attributes));
}

int adapter_relu_forward(const PrimitiveContext *context, const Layout *data,
                         dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_eltwise_forward_primitive_desc_create(
        ret, context->engine, context->propagation, dnnl_eltwise_relu_use_dst_for_bwd, data->md,
        data->md, 0, 0, context->attributes));
}

int adapter_relu_backward(const PrimitiveContext *context, const Layout *data,
                          dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_eltwise_backward_primitive_desc_create(
        ret, context->engine, dnnl_eltwise_relu_use_dst_for_bwd, data->md, data->md, data->md, 0, 0,
        context->hint, context->attributes));
}

int adapter_batchnorm_forward(const PrimitiveContext *context, const Layout *data, float eps,
                              bool global, dnnl_primitive_desc_t *ret)
{
    unsigned flags = dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0);
    return status_to_errno(dnnl_batch_normalization_forward_primitive_desc_create(
        ret, context->engine, context->propagation, data->md, data->md, eps, flags,
        context->attributes));
}

int adapter_batchnorm_backward(const PrimitiveContext *context, const Layout *data, float eps,
                               dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_batch_normalization_backward_primitive_desc_create(
        ret, context->engine, dnnl_backward, data->md, data->md, data->md, eps,
        dnnl_use_scale | dnnl_use_shift, context->hint, context->attributes));
}

int adapter_logsoftmax_forward(const PrimitiveContext *context, const Layout *data, int axis,
                               dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_softmax_forward_primitive_desc_create(
        ret, context->engine, context->propagation, dnnl_softmax_log, data->md, data->md, axis,
        context->attributes));
}

int adapter_logsoftmax_backward(const PrimitiveContext *context, const Layout *data, int axis,
                                dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_softmax_backward_primitive_desc_create(
        ret, context->engine, dnnl_softmax_log, data->md, data->md, data->md, axis, context->hint,
        context->attributes));
}

int adapter_reorder(const PrimitiveContext *context, const Layout *from, const Layout *to,
                    dnnl_primitive_desc_t *ret)
{
    return status_to_errno(dnnl_reorder_primitive_desc_create(
        ret, from->md, context->engine, to->md, context->engine, context->attributes));
}
