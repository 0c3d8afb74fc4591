/* A lane: one worker thread that owns a device, or a share of the cores, and runs its queue in
 * order.
 *
 * The loop posts tasks; each is run on the lane's thread and comes back to the loop
 * (base/worker.h). */
#pragma once

#include <stdint.h>

#include "base/worker.h"

typedef struct Lane Lane;

/* index: the lane's number; name: "cpu:0". `loop` takes finished tasks and outlives the lane. */
int lane_new(const char *name, int index, Mailbox *loop, Lane **ret);
Lane *lane_free(Lane *lane); /* runs what was posted first */

const char *lane_name(const Lane *lane);
int lane_index(const Lane *lane);
void lane_post(Lane *lane, Task *task);
size_t lane_queue_length(const Lane *lane);
/* Microseconds of processor time that the lane's thread has spent, which is that of its tasks: in
 * between it sleeps. Any thread, until lane_free. */
uint64_t lane_busy_us(const Lane *lane);
