/* How a value lies in memory: a oneDNN memory descriptor and what our own loops need of it.
 *
 * Owned by whoever made it; made at compile time, only read afterwards. Lane thread. Functions
 * return 0, -ENOMEM or -EOPNOTSUPP. */
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "backend/backend.h"
#include "base/cleanup.h"

struct Layout {
    dnnl_memory_desc_t md; /* for adapter_v*.c only: a struct in 2.x, a pointer in 3.x */
    size_t bytes;
    int ndim;
    int64_t dims[SHAPE_MAX_DIMS], strides[SHAPE_MAX_DIMS];
    int64_t padded_channels; /* dims[1] rounded up to the block */
    int64_t block; /* channels that lie together innermost (16 of nChw16c), 1 if not blocked */
    bool simple; /* one that our own loops can walk: plain, nChw8c, nChw16c and the like, or nhwc */
    bool plain;  /* dense and row-major */
};

int layout_new_plain(int ndim, const int64_t *dims, Layout **ret);
int layout_new_strided(int ndim, const int64_t *dims, const int64_t *strides, Layout **ret);
/* Whatever the primitive likes best. */
int layout_new_any(int ndim, const int64_t *dims, Layout **ret);
/* That of a primitive's argument (DNNL_ARG_*). */
int layout_of_argument(const_dnnl_primitive_desc_t pd, int argument, Layout **ret);
int layout_clone(const Layout *layout, Layout **ret);
int layout_of_shape(const Shape *shape, Layout **ret); /* plain */
Layout *layout_release(Layout *layout);                /* NULL is fine */
DEFINE_CLEANUP(Layout, layout_release);
#define _cleanup_layout_ _cleanup_(layout_releasep)

int64_t layout_elements(const Layout *layout); /* with padding: bytes / 4 */
