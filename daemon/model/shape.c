#include "model/shape.h"

#include <inttypes.h>
#include <stdio.h>

const char *shape_format(const Shape *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < shape->ndim && used < size; i++) {
        const char *comma = i > 0 ? ", " : "";
        int n = shape->dims[i] == DIM_BATCH
                    ? snprintf(text + used, size - used, "%sB", comma)
                    : snprintf(text + used, size - used, "%s%" PRId64, comma, shape->dims[i]);
        used += (size_t)n;
    }
    if (used < size)
        snprintf(text + used, size - used, ")");
    return text;
}

bool shape_equal(const Shape *a, const Shape *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->dims[i] != b->dims[i])
            return false;
    }
    return true;
}

int64_t shape_elements(const Shape *shape, int64_t batch)
{
    int64_t elements = 1;
    for (int i = 0; i < shape->ndim; i++)
        elements *= shape->dims[i] == DIM_BATCH ? batch : shape->dims[i];
    return elements;
}

Shape shape_at_batch(const Shape *shape, int64_t batch)
{
    Shape result = *shape;
    for (int i = 0; i < result.ndim; i++) {
        if (result.dims[i] == DIM_BATCH)
            result.dims[i] = batch;
    }
    return result;
}

bool shape_is_sane(const Shape *shape)
{
    if (shape->ndim < 0 || shape->ndim > SHAPE_MAX_DIMS)
        return false;
    int64_t elements = 1;
    for (int i = 0; i < shape->ndim; i++) {
        int64_t dim = shape->dims[i] == DIM_BATCH ? 1 : shape->dims[i];
        if (dim < 1 || dim > SHAPE_MAX_ELEMENTS / elements)
            return false;
        elements *= dim;
    }
    return true;
}
