/* A thread that runs tasks in the order they were posted and sends each back to the loop.
 *
 * Lanes and the store are workers. The worker owns what its tasks touch while they run; between
 * tasks nobody touches it. */
#pragma once

#include "base/mailbox.h"

typedef struct Worker Worker;

/* `name` (up to 15 bytes) shows in ps and gdb. Finished tasks are posted to `loop`, which is the
 * caller's and must outlive the worker. -ENOMEM, -EMFILE, -EAGAIN (no more threads) */
int worker_new(const char *name, Mailbox *loop, Worker **ret);

/* Any thread. task->done may be NULL: then nothing comes back and work() owns the task. */
void worker_post(Worker *worker, Task *task);

/* Tasks posted and not yet begun. */
size_t worker_queue_length(Worker *worker);

/* Runs what was posted, then ends the thread. The caller drains `loop` afterwards. */
Worker *worker_free(Worker *worker);
