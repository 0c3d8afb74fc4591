#include "backend/cpu_math.h"

#include <string.h>

enum {
    BLOCK = 1024,      /* floats that stay in the first-level cache */
    PARTIAL_SUMS = 16, /* independent sums, so that adding is not one chain of dependent steps */
};

void cpu_accumulate(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void normalise_plane(const uint8_t *restrict from, float *restrict to, size_t n, float scale,
                            float mean, float deviation)
{
    for (size_t i = 0; i < n; i++)
        to[i] = ((float)from[i] * scale - mean) / deviation;
}

void cpu_normalise(const uint8_t *from, float *to, int64_t batch, int64_t channels, int64_t plane,
                   float scale, const float *mean, const float *deviation)
{
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t c = 0; c < channels; c++) {
            normalise_plane(from, to, (size_t)plane, scale, mean[c], deviation[c]);
            from += plane;
            to += plane;
        }
    }
}

double cpu_norm2(const float *array, size_t n)
{
    double sums[PARTIAL_SUMS] = {0}, total = 0;
    size_t whole = n - n % PARTIAL_SUMS;
    for (size_t i = 0; i < whole; i += PARTIAL_SUMS)
        for (int j = 0; j < PARTIAL_SUMS; j++)
            sums[j] += (double)array[i + j] * array[i + j];
    for (size_t i = whole; i < n; i++)
        sums[i - whole] += (double)array[i] * array[i];
    for (int j = 0; j < PARTIAL_SUMS; j++)
        total += sums[j];
    return total;
}

/* Adding one exponent unit to a full exponent, and only to a full one, carries into the sign's
 * place. Integer arithmetic, because compilers may assume that floats are finite. */
static uint32_t not_finite_bit(uint32_t bits)
{
    return ((bits & 0x7F800000U) + 0x00800000U) & 0x80000000U;
}

static bool block_is_finite(const float *array, size_t n)
{
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &array[i], sizeof bits);
        found |= not_finite_bit(bits);
    }
    return found == 0;
}

bool cpu_all_finite(const float *array, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK)
        if (!block_is_finite(array + i, n - i < BLOCK ? n - i : BLOCK))
            return false;
    return true;
}

static void divide(float *restrict to, const float *restrict from, float divisor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] / divisor;
}

/* By blocks: `to` may be one of the arrays, so it is written when all of them have been read. */
void cpu_mean(const float *const *arrays, int count, float *to, size_t begin, size_t end)
{
    float sum[BLOCK];
    for (size_t i = begin; i < end; i += BLOCK) {
        size_t n = end - i < BLOCK ? end - i : BLOCK;
        memcpy(sum, arrays[0] + i, n * sizeof *sum);
        for (int k = 1; k < count; k++)
            cpu_accumulate(sum, arrays[k] + i, n);
        divide(to + i, sum, (float)count, n);
    }
}

static void scale(float *restrict to, const float *restrict from, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = weight * from[i];
}

static void add_scaled(float *restrict to, const float *restrict from, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += weight * from[i];
}

/* By blocks, for the same reason as the mean. */
void cpu_weighted_sum(const float *const *arrays, const float *weights, int count, float *to,
                      size_t begin, size_t end)
{
    float sum[BLOCK];
    if (count == 1 && weights[0] == 1) {
        memmove(to + begin, arrays[0] + begin, (end - begin) * sizeof *to);
        return;
    }
    for (size_t i = begin; i < end; i += BLOCK) {
        size_t n = end - i < BLOCK ? end - i : BLOCK;
        int k = 0;
        while (k < count && weights[k] == 0)
            k++;
        if (k < count)
            scale(sum, arrays[k] + i, weights[k], n);
        else
            memset(sum, 0, n * sizeof *sum);
        for (k++; k < count; k++)
            if (weights[k] != 0)
                add_scaled(sum, arrays[k] + i, weights[k], n);
        memcpy(to + i, sum, n * sizeof *sum);
    }
}

RngKey cpu_dropout_key(const RngKey *step_key, int node_index)
{
    RngKey key = *step_key;
    key.purpose = RNG_DROPOUT;
    key.c = (uint32_t)node_index;
    return key;
}

void cpu_dropout_mask(const RngKey *key, float p, uint64_t first, size_t n, float *mask)
{
    uint32_t words[BLOCK];
    float scale = p < 1 ? (float)(1 / (1 - (double)p)) : 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        rng_words(key, first + i, count, words);
        for (size_t j = 0; j < count; j++)
            mask[i + j] = rng_to_unit(words[j]) >= p ? scale : 0;
    }
}
