#include "replica/lane.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

struct Lane {
    Worker *worker;
    char name[32];
    int index;
    Task first; /* tells the thread's clock */
    clockid_t clock;
    atomic_bool clock_known;
};

/* The first task, on the lane's thread. Its clock counts what tasks take: between them the thread
 * sleeps. */
static void learn_clock(Task *task)
{
    Lane *lane = (Lane *)(void *)((char *)task - offsetof(Lane, first));
    if (pthread_getcpuclockid(pthread_self(), &lane->clock) == 0)
        atomic_store_explicit(&lane->clock_known, true, memory_order_release);
}

int lane_new(const char *name, int index, Mailbox *loop, Lane **ret)
{
    Lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return -ENOMEM;
    snprintf(lane->name, sizeof lane->name, "%s", name);
    lane->index = index;
    lane->first.work = learn_clock;
    int r = worker_new(lane->name, loop, &lane->worker);
    if (r < 0) {
        free(lane);
        return r;
    }
    worker_post(lane->worker, &lane->first);
    *ret = lane;
    return 0;
}

Lane *lane_free(Lane *lane)
{
    if (!lane)
        return NULL;
    worker_free(lane->worker);
    free(lane);
    return NULL;
}

const char *lane_name(const Lane *lane)
{
    return lane->name;
}

int lane_index(const Lane *lane)
{
    return lane->index;
}

void lane_post(Lane *lane, Task *task)
{
    worker_post(lane->worker, task);
}

size_t lane_queue_length(const Lane *lane)
{
    return worker_queue_length(lane->worker);
}

uint64_t lane_busy_us(const Lane *lane)
{
    struct timespec now;
    if (!atomic_load_explicit(&lane->clock_known, memory_order_acquire) ||
        clock_gettime(lane->clock, &now) < 0)
        return 0;
    return (uint64_t)now.tv_sec * USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000;
}
