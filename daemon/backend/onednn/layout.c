#include "backend/onednn/layout.h"

#include "backend/onednn/adapter.h"

static bool is_plain(const Layout *layout)
{
    int64_t stride = 1;
    for (int i = layout->ndim - 1; i >= 0; i--) {
        if (layout->dims[i] != 1 && layout->strides[i] != stride)
            return false;
        stride *= layout->dims[i];
    }
    return layout->block == 1 &&
           layout->padded_channels == (layout->ndim > 1 ? layout->dims[1] : 1);
}

/* Channels innermost, dense: nhwc. */
static bool is_channels_last(const Layout *layout)
{
    if (layout->block != 1 || layout->ndim < 3 || layout->strides[1] != 1)
        return false;
    int64_t stride = layout->dims[1];
    for (int i = layout->ndim - 1; i >= 0; i--) {
        if (i == 1)
            continue;
        if (layout->dims[i] != 1 && layout->strides[i] != stride)
            return false;
        stride *= layout->dims[i];
    }
    return true;
}

static int finish(Layout *layout, int made, Layout **ret)
{
    if (made < 0) {
        free(layout);
        return made;
    }
    adapter_layout_describe(layout);
    layout->plain = layout->simple && is_plain(layout);
    layout->simple =
        layout->plain || (layout->simple && (layout->block > 1 || is_channels_last(layout)));
    *ret = layout;
    return 0;
}

int layout_new_strided(int ndim, const int64_t *dims, const int64_t *strides, Layout **ret)
{
    Layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return -ENOMEM;
    return finish(layout, adapter_layout_strided(layout, ndim, dims, strides), ret);
}

int layout_new_plain(int ndim, const int64_t *dims, Layout **ret)
{
    int64_t strides[SHAPE_MAX_DIMS], stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
    return layout_new_strided(ndim, dims, strides, ret);
}

int layout_new_any(int ndim, const int64_t *dims, Layout **ret)
{
    Layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return -ENOMEM;
    return finish(layout, adapter_layout_any(layout, ndim, dims), ret);
}

int layout_of_argument(const_dnnl_primitive_desc_t pd, int argument, Layout **ret)
{
    Layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return -ENOMEM;
    return finish(layout, adapter_layout_of_argument(layout, pd, argument), ret);
}

int layout_clone(const Layout *from, Layout **ret)
{
    Layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return -ENOMEM;
    return finish(layout, adapter_layout_copy(layout, from), ret);
}

int layout_of_shape(const Shape *shape, Layout **ret)
{
    static const int64_t scalar[] = {1};
    if (shape->ndim == 0)
        return layout_new_plain(1, scalar, ret);
    return layout_new_plain(shape->ndim, shape->dims, ret);
}

Layout *layout_release(Layout *layout)
{
    if (layout)
        adapter_layout_done(layout);
    free(layout);
    return NULL;
}

int64_t layout_elements(const Layout *layout)
{
    return (int64_t)(layout->bytes / sizeof(float));
}
