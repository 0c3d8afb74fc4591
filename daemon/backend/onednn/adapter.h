/* Where the C APIs of oneDNN 2.x and 3.x differ: memory descriptors (structs there, handles here)
 * and how primitive descriptors are made (from an operation descriptor there, directly here).
 * adapter_v2.c or adapter_v3.c is compiled, as CMake finds in oneDNN's header.
 *
 * All of it runs at compile time of a kernel. Functions return 0, -ENOMEM or -EOPNOTSUPP; *ret is
 * owned by the caller. `hint` is the descriptor of the forward primitive. Layouts may be "any"
 * where oneDNN is to choose. */
#pragma once

#include "backend/onednn/layout.h"

/* ---- memory descriptors: used by layout.c only ----------------------------------------------- */

int adapter_layout_strided(Layout *layout, int ndim, const int64_t *dims, const int64_t *strides);
int adapter_layout_any(Layout *layout, int ndim, const int64_t *dims);
int adapter_layout_of_argument(Layout *layout, const_dnnl_primitive_desc_t pd, int argument);
int adapter_layout_copy(Layout *layout, const Layout *from);
void adapter_layout_describe(Layout *layout); /* fills the rest of Layout from the descriptor */
void adapter_layout_done(Layout *layout);
bool layout_same(const Layout *a, const Layout *b);

/* A memory object, without data, for a primitive's argument; *bytes is its size. */
int adapter_memory_of_argument(const_dnnl_primitive_desc_t pd, int argument, dnnl_engine_t engine,
                               dnnl_memory_t *ret, size_t *bytes);
int adapter_append_relu(dnnl_post_ops_t post_ops);

/* ---- primitive descriptors ------------------------------------------------------------------- */

/* What the makers below share. */
typedef struct PrimitiveContext {
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t hint; /* backward only */
    dnnl_prop_kind_t propagation;
} PrimitiveContext;

/* Height and width. dilation counts from 0: the gap between neighbouring taps. */
typedef struct Window {
    dnnl_dims_t kernel, stride, dilation, padding;
} Window;

/* bias may be NULL. */
int adapter_conv_forward(const PrimitiveContext *context, const Window *window, const Layout *src,
                         const Layout *weights, const Layout *bias, const Layout *dst,
                         dnnl_primitive_desc_t *ret);
int adapter_conv_backward_data(const PrimitiveContext *context, const Window *window,
                               const Layout *diff_src, const Layout *weights,
                               const Layout *diff_dst, dnnl_primitive_desc_t *ret);
int adapter_conv_backward_weights(const PrimitiveContext *context, const Window *window,
                                  const Layout *src, const Layout *diff_weights,
                                  const Layout *diff_bias, const Layout *diff_dst,
                                  dnnl_primitive_desc_t *ret);
int adapter_matmul(const PrimitiveContext *context, const Layout *src, const Layout *weights,
                   const Layout *bias, const Layout *dst, dnnl_primitive_desc_t *ret);
int adapter_pool_forward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                         const Window *window, const Layout *src, const Layout *dst,
                         dnnl_primitive_desc_t *ret);
int adapter_pool_backward(const PrimitiveContext *context, dnnl_alg_kind_t algorithm,
                          const Window *window, const Layout *diff_src, const Layout *diff_dst,
                          dnnl_primitive_desc_t *ret);
/* The backward reads the forward's result, not its input. */
int adapter_relu_forward(const PrimitiveContext *context, const Layout *data,
                         dnnl_primitive_desc_t *ret);
int adapter_relu_backward(const PrimitiveContext *context, const Layout *data,
                          dnnl_primitive_desc_t *ret);
/* With scale and shift; global: statistics are given. */
int adapter_batchnorm_forward(const PrimitiveContext *context, const Layout *data, float eps,
                              bool global, dnnl_primitive_desc_t *ret);
int adapter_batchnorm_backward(const PrimitiveContext *context, const Layout *data, float eps,
                               dnnl_primitive_desc_t *ret);
int adapter_logsoftmax_forward(const PrimitiveContext *context, const Layout *data, int axis,
                               dnnl_primitive_desc_t *ret);
int adapter_logsoftmax_backward(const PrimitiveContext *context, const Layout *data, int axis,
                                dnnl_primitive_desc_t *ret);
int adapter_reorder(const PrimitiveContext *context, const Layout *from, const Layout *to,
                    dnnl_primitive_desc_t *ret);
