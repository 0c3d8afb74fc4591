/* Flat operations on ordinary memory, which all CPU backends share, so that they agree bit for bit.
 *
 * Pure functions, any thread. They allocate nothing and are written for the compiler to vectorise.
 * Sums run in a fixed order, whatever the alignment, so that the same numbers give the same bits.
 * Arrays of one call do not overlap unless it says so. A caller with several threads gives each a
 * range of the arrays; elementwise results do not depend on the split. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "model/loss.h"
#include "model/optimizer.h"

/* to += from */
void cpu_accumulate(float *to, const float *from, size_t n);

/* U8 pixels (batch, channels, plane) → (x · scale − mean[c]) / deviation[c] */
void cpu_normalise(const uint8_t *from, float *to, int64_t batch, int64_t channels, int64_t plane,
                   float scale, const float *mean, const float *deviation);

/* Sum of squares, in double. */
double cpu_norm2(const float *array, size_t n);
/* Whether no element is NaN or infinite. */
bool cpu_all_finite(const float *array, size_t n);

/* to[i] = (arrays[0][i] + arrays[1][i] + …) / count for i in [begin, end); `to` may be one of the
 * arrays. */
void cpu_mean(const float *const *arrays, int count, float *to, size_t begin, size_t end);
/* backend.h's weighted_sum. */
void cpu_weighted_sum(const float *const *arrays, const float *weights, int count, float *to,
                      size_t begin, size_t end);

/* Dropout: mask[i] = 1/(1-p) where word `first + i` of the stream says keep, else 0. p = 1 keeps
 * nothing. key->c is the node's index, key->purpose RNG_DROPOUT (cpu_dropout_key). */
void cpu_dropout_mask(const RngKey *key, float p, uint64_t first, size_t n, float *mask);
/* The key of a node's stream from the one that a step has in KernelArgs. */
RngKey cpu_dropout_key(const RngKey *step_key, int node_index);

/* backend.h's loss. -EINVAL when a class is not in [0, width): nothing is written then. */
int cpu_loss(LossKind kind, const float *output, const void *target, int64_t batch, int64_t width,
             float *loss, float *gradient, int64_t *correct);

/* backend.h's optimizer_step. */
void cpu_optimizer_step(const Optimizer *optimizer, uint64_t t, float *params,
                        const float *gradients, float *const *states, size_t n);
