#include "proto/tensor.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [DPS__V1__DTYPE__F32] = {"F32", 4},   [DPS__V1__DTYPE__F16] = {"F16", 2},
    [DPS__V1__DTYPE__BF16] = {"BF16", 2}, [DPS__V1__DTYPE__U8] = {"U8", 1},
    [DPS__V1__DTYPE__I32] = {"I32", 4},   [DPS__V1__DTYPE__I64] = {"I64", 8},
};

size_t dtype_size(Dps__V1__DType dtype)
{
    return (unsigned)dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype].size : 0;
}

const char *dtype_name(Dps__V1__DType dtype)
{
    return dtype_size(dtype) ? dtypes[dtype].name : "unknown";
}

static bool complain(char *problem, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool complain(char *problem, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(problem, size, format, args);
    va_end(args);
    return false;
}

/* Fills dims and elements. The product is taken over dims of at least 1, so that dims which
 * overflow are refused even where another one is 0. */
static bool take_dims(const Dps__V1__Tensor *tensor, const char *what, TensorView *view,
                      char *problem, size_t size)
{
    if (tensor->n_dims > TENSOR_MAX_DIMS)
        return complain(problem, size, "%s has %zu dims, the most is %d", what, tensor->n_dims,
                        TENSOR_MAX_DIMS);
    int64_t product = 1;
    bool empty = false;
    view->ndim = (int)tensor->n_dims;
    for (size_t i = 0; i < tensor->n_dims; i++) {
        int64_t dim = tensor->dims[i];
        view->dims[i] = dim;
        if (dim < 0)
            return complain(problem, size, "dim %zu of %s is %lld, it must not be negative", i,
                            what, (long long)dim);
        empty = empty || dim == 0;
        if (__builtin_mul_overflow(product, dim ? dim : 1, &product))
            return complain(problem, size, "the dims of %s multiply to more than 2^63 elements",
                            what);
    }
    view->elements = empty ? 0 : product;
    return true;
}

bool tensor_view(const Dps__V1__Tensor *tensor, const char *what, TensorView *ret, char *problem,
                 size_t size)
{
    if (!tensor)
        return complain(problem, size, "%s is missing", what);
    TensorView view = {.dtype = tensor->dtype};
    size_t element = dtype_size(tensor->dtype);
    if (element == 0)
        return complain(problem, size,
                        "%s has dtype %d, which is none of F32, F16, BF16, U8, I32, I64", what,
                        (int)tensor->dtype);
    if (!take_dims(tensor, what, &view, problem, size))
        return false;
    char text[160];
    size_t bytes;
    if (__builtin_mul_overflow((size_t)view.elements, element, &bytes))
        return complain(problem, size, "%s %s takes more than 2^64 bytes", what,
                        tensor_format(&view, text, sizeof text));
    if (bytes != tensor->data.len)
        return complain(problem, size, "%s is %s, which takes %zu bytes, but its data has %zu",
                        what, tensor_format(&view, text, sizeof text), bytes, tensor->data.len);
    view.bytes = bytes;
    view.data = tensor->data.data;
    *ret = view;
    return true;
}

const char *tensor_format(const TensorView *view, char *text, size_t size)
{
    if (size == 0)
        return text;
    size_t used = 0;
    int n = snprintf(text, size, "%s (", dtype_name(view->dtype));
    for (int i = 0; n >= 0 && i < view->ndim; i++) {
        used += (size_t)n;
        if (used >= size)
            return text;
        n = snprintf(text + used, size - used, i ? ", %lld" : "%lld", (long long)view->dims[i]);
    }
    used += n >= 0 ? (size_t)n : 0;
    if (used < size)
        snprintf(text + used, size - used, view->ndim == 1 ? ",)" : ")");
    return text;
}
