/* Shapes of values. Dimension 0 is the batch wherever a value has one; in the graph it is kept as
 * DIM_BATCH, so that one graph serves every batch size. Plain values, any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHAPE_MAX_DIMS = 8 };
/* Elements of one sample of a value, or of one parameter: kernels may index with 32 bits. */
#define SHAPE_MAX_ELEMENTS INT64_C(0x7fffffff)
#define DIM_BATCH          INT64_C(-1)

typedef struct Shape {
    int ndim;
    int64_t dims[SHAPE_MAX_DIMS];
} Shape;

/* "(B, 32, 26, 26)"; returns text. */
const char *shape_format(const Shape *shape, char *text, size_t size);
bool shape_equal(const Shape *a, const Shape *b);
/* Elements with DIM_BATCH taken as batch; a shape without dimensions has one. */
int64_t shape_elements(const Shape *shape, int64_t batch);
/* The shape with DIM_BATCH replaced. */
Shape shape_at_batch(const Shape *shape, int64_t batch);
/* Whether every dimension is positive (DIM_BATCH aside) and the product, with DIM_BATCH taken as 1,
 * is at most SHAPE_MAX_ELEMENTS. */
bool shape_is_sane(const Shape *shape);
