/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). The same key and counter give the same numbers on every backend and thread,
 * and any element can be computed alone. Pure functions, any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What a stream of numbers is for; part of the key, so that streams never meet. */
typedef enum RngPurpose {
    RNG_INIT = 1,        /* a: index of the parameter */
    RNG_DROPOUT = 2,     /* a: rank, b: step, c: index of the operator */
    RNG_PERMUTATION = 3, /* a: epoch */
} RngPurpose;

typedef struct RngKey {
    uint64_t seed;
    uint32_t purpose;
    uint32_t a; /* rank, parameter or epoch */
    uint64_t b; /* step */
    uint32_t c; /* operator */
} RngKey;

/* The generator itself: encrypts the counter in place. */
void rng_philox4x32(uint32_t counter[4], const uint32_t key[2]);

/* Four 32-bit words for block `index` of the stream: words 4·index … 4·index+3. */
void rng_block(const RngKey *key, uint32_t index, uint32_t out[4]);

/* Word number `index` of the stream. */
uint32_t rng_word(const RngKey *key, uint64_t index);

/* Words first … first+n-1 of the stream, faster than one by one. */
void rng_words(const RngKey *key, uint64_t first, size_t n, uint32_t *out);

/* Uniform in [0, 1), 24 bits. */
static inline float rng_to_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24F;
}

/* Fills out[0 … n-1] with a permutation of 0 … n-1 (Fisher-Yates over the stream, unbiased). */
void rng_permutation(const RngKey *key, uint64_t n, uint64_t *out);
