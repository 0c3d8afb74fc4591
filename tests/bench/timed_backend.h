/* A backend that is onednn with a clock around every call: where the time of a step goes. One
 * instance, one thread. */
#pragma once

#include "backend/backend.h"

extern const Backend timed_backend;

enum { TIMED_MAX = 128, TIMED_NAME_MAX = 96 };

/* What was called since the last reset: "conv2 forward", "optimizer", … */
typedef struct TimedEntry {
    char name[TIMED_NAME_MAX];
    uint64_t calls;
    uint64_t ns;
} TimedEntry;

void timed_backend_reset(void);
int timed_backend_count(void);
const TimedEntry *timed_backend_entry(int index);
