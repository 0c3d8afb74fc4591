/* The values that make_torch_values.py wrote (data/torch.bin), and the numbers that both sides
 * draw.
 */
#pragma once

#include "harness.h"

/* The seed of everything in make_torch_values.py. */
enum { TORCH_SEED = 42 };

/* Reads the file, once; fails the running test if it is not whole. */
void values_open(void);
void values_close(void);
/* The record's values; NULL if there is none of that name. */
const Array *values_find(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As values_find, but fails the running test if the record is missing or not of n values. */
const float *values_get(size_t n, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The stream that a parameter's numbers come from: FNV-1a of its name. */
uint32_t stream_of(const char *name);
