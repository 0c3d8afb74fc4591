#include "ctl/trainer/backoff.h"

#include "ctl/data/counter.h"

int backoff_next(Backoff *backoff)
{
    unsigned shift = backoff->tries < 16 ? backoff->tries++ : 16;
    int step = BACKOFF_FIRST_MS << shift;

    if (step > BACKOFF_LAST_MS)
        step = BACKOFF_LAST_MS;
    backoff->random = counter_mix(backoff->random + 0x9e3779b97f4a7c15U);
    return step / 2 + (int)(backoff->random % (uint64_t)(step / 2 + 1));
}
