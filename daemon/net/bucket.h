/* A token bucket: so many events at once, and as many again over ten seconds. For what a peer may
 * do now and then but not in a flood. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

typedef struct Bucket {
    unsigned burst;
    unsigned tokens;
    uint64_t filled_us; /* when tokens was last brought up to date */
} Bucket;

static inline void bucket_init(Bucket *bucket, unsigned burst, uint64_t now_us)
{
    *bucket = (Bucket){.burst = burst, .tokens = burst, .filled_us = now_us};
}

/* False: the peer has spent what it had. */
static inline bool bucket_take(Bucket *bucket, uint64_t now_us)
{
    uint64_t per_token_us = 10 * USEC_PER_SEC / (bucket->burst ? bucket->burst : 1);
    uint64_t earned = (now_us - bucket->filled_us) / per_token_us;
    if (earned >= bucket->burst - bucket->tokens) {
        bucket->tokens = bucket->burst;
        bucket->filled_us = now_us;
    } else {
        bucket->tokens += (unsigned)earned;
        bucket->filled_us += earned * per_token_us;
    }
    if (bucket->tokens == 0)
        return false;
    bucket->tokens--;
    return true;
}
