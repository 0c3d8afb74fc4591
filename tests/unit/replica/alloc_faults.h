/* Allocations and calls to the device that fail on demand, and are counted. The program is linked
 * with --wrap for malloc and the like. */
#pragma once

extern int alloc_count; /* allocations since it was last set */

/* Runs `attempt` with its first, second, … allocation failing with -ENOMEM, until all are through,
 * and returns how many there are. */
int fail_each_allocation(int (*attempt)(void *data), void *data);
/* The same for calls to the device; which error comes depends on the call. */
int fail_each_device_call(int (*attempt)(void *data), void *data);
