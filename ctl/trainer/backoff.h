/* How long to wait before the next try: doubling, with jitter, so that many trainers that lost one
 * daemon do not come back all at once. */
#pragma once

#include <stdint.h>

enum {
    BACKOFF_FIRST_MS = 50,
    BACKOFF_LAST_MS = 2000,
};

typedef struct Backoff {
    unsigned tries;
    uint64_t random; /* state; seed it with anything */
} Backoff;

/* Between half of the step and all of it; the steps are 50, 100, … 2000 ms. */
int backoff_next(Backoff *backoff);
static inline void backoff_reset(Backoff *backoff)
{
    backoff->tries = 0;
}
