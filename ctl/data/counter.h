/* Random numbers that are a pure function of a key and a counter: SplitMix64's finaliser (Steele,
 * Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) over key + n·γ. */
#pragma once

#include <stdint.h>

static inline uint64_t counter_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

typedef struct Counter {
    uint64_t key, n;
} Counter;

static inline uint64_t counter_next(Counter *c)
{
    return counter_mix(c->key + ++c->n * 0x9e3779b97f4a7c15U);
}

/* Uniform in [0, 1), 24 bits. */
static inline float counter_unit(Counter *c)
{
    return (float)(counter_next(c) >> 40) * 0x1p-24F;
}

/* Uniform in [low, high). */
static inline float counter_between(Counter *c, float low, float high)
{
    return low + (high - low) * counter_unit(c);
}

/* Bell-shaped in (-1, 1), deviation about 0.41: a sum of two. */
static inline float counter_bell(Counter *c)
{
    return counter_unit(c) - counter_unit(c);
}
