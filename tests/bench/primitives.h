/* The oneDNN primitives of one mnist-cnn step, each with memory of its own, to be timed alone: what
 * a step would cost if nothing else did. One thread, that which made them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct PrimitiveSet PrimitiveSet;

/* In the layouts that the engine uses. -ENOMEM, -EOPNOTSUPP */
int primitive_set_new(int64_t batch, PrimitiveSet **ret, Error *err);
PrimitiveSet *primitive_set_free(PrimitiveSet *set);

int primitive_set_count(const PrimitiveSet *set);
const char *primitive_set_name(const PrimitiveSet *set, int index); /* "conv2 backward-data" */
/* Convolutions and matrix products, as opposed to what only moves memory. */
bool primitive_set_is_matrix(const PrimitiveSet *set, int index);
/* Mean microseconds of one run, over `runs` of them in a row. */
double primitive_set_time(PrimitiveSet *set, int index, int runs);
