/* Time in microseconds. Monotonic for durations, wall clock only for what people read. Any thread.
 */
#pragma once

#include <stdint.h>

#define USEC_PER_SEC  UINT64_C(1000000)
#define USEC_PER_MSEC UINT64_C(1000)

uint64_t clock_monotonic_us(void);
uint64_t clock_unix_ms(void);
