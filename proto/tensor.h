/* Checked views of wire tensors. Pure functions: nothing is allocated, nothing is copied. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dps.pb-c.h"

enum { TENSOR_MAX_DIMS = 8 };

typedef struct TensorView {
    Dps__V1__DType dtype;
    int ndim;
    int64_t dims[TENSOR_MAX_DIMS];
    int64_t elements;
    const void *data; /* not aligned for the dtype; little-endian */
    size_t bytes;
} TensorView;

size_t dtype_size(Dps__V1__DType dtype);      /* 0 for an unknown one */
const char *dtype_name(Dps__V1__DType dtype); /* "F32" */

/* Checks dtype, number and sign of dims, the product for overflow, and that data has exactly the
 * bytes that dims and dtype say. False: `problem` (size bytes) has a sentence that names `what`. */
bool tensor_view(const Dps__V1__Tensor *tensor, const char *what, TensorView *ret, char *problem,
                 size_t size);

/* "F32 (32, 1, 28, 28)"; returns text. */
const char *tensor_format(const TensorView *view, char *text, size_t size);
