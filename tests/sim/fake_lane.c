/* In place of replica/lane.c: a queue; when a task begins and how long it takes is the seed's. The
 * work is done at the beginning; other lanes must not touch what it touched until its end. */
#include <stdio.h>
#include <stdlib.h>

#include "replica/lane.h"
#include "sim.h"

struct Lane {
    char name[32];
    int index;
    Task *first, *last;
    size_t length;
    Task *running; /* taken from the queue */
    bool begun;    /* its work is done; its end is to come */
    bool closed;
};

static struct {
    int lane; /* -1: the loop */
    uint64_t number, ends_at;
} current = {.lane = -1};

void fake_lanes_begin(void)
{
    current.lane = -1;
    current.number = current.ends_at = 0;
}

int fake_lane_current(void)
{
    return current.lane;
}

uint64_t fake_lane_task(void)
{
    return current.number;
}

uint64_t fake_lane_task_end(void)
{
    return current.ends_at;
}

int lane_new(const char *name, int index, Mailbox *loop, Lane **ret)
{
    (void)loop;
    Lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return -ENOMEM;
    snprintf(lane->name, sizeof lane->name, "%s", name);
    lane->index = index;
    *ret = lane;
    return 0;
}

Lane *lane_free(Lane *lane)
{
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

size_t lane_queue_length(const Lane *lane)
{
    return lane->length;
}

uint64_t lane_busy_us(const Lane *lane)
{
    (void)lane;
    return 0;
}

/* ---- tasks -------------------------------------------------------------------------------------
 */

static Task *take(Lane *lane)
{
    Task *task = lane->first;
    lane->first = task->next;
    if (!lane->first)
        lane->last = NULL;
    lane->length--;
    task->next = NULL;
    return task;
}

static uint64_t duration(void)
{
    if (sim_chance(20))
        return sim_between(0, 40 * world.step_us);
    return sim_chance(100) ? 0 : sim_between(world.step_us / 2, world.step_us);
}

static void run(const Lane *lane, Task *task, uint64_t ends_at)
{
    current.lane = lane->index;
    current.number++;
    current.ends_at = ends_at;
    task->work(task);
    current.lane = -1;
}

static void on_begin(void *data, uint64_t arg);

static void begin_next(Lane *lane)
{
    if (lane->first && !lane->running) {
        lane->running = take(lane);
        event_of_daemon(sim_chance(700) ? 0 : sim_between(0, 200), "lane begins", on_begin, lane,
                        (uint64_t)lane->index);
    }
}

static void on_end(void *data, uint64_t arg)
{
    Lane *lane = data;
    Task *task = lane->running;
    (void)arg;
    lane->running = NULL;
    lane->begun = false;
    if (sim_chance(500)) /* the lane goes on before the loop hears of it */
        begin_next(lane);
    task->done(task);
    begin_next(lane);
}

static void on_begin(void *data, uint64_t arg)
{
    Lane *lane = data;
    (void)arg;
    uint64_t takes = duration();
    Task *task = lane->running;
    void (*done)(Task *) = task->done;
    run(lane, task, sim_now() + takes);
    if (done) {
        lane->begun = true;
        event_of_daemon(takes, "lane ends", on_end, lane, (uint64_t)lane->index);
        return;
    }
    lane->running = NULL; /* work() owned it */
    begin_next(lane);
}

void lane_post(Lane *lane, Task *task)
{
    if (lane->closed)
        sim_fail("a task is posted to lane %d, which has ended", lane->index);
    for (const Task *other = lane->first; other; other = other->next)
        if (other == task)
            sim_fail("a task is posted twice to lane %d", lane->index);
    task->next = NULL;
    if (lane->last)
        lane->last->next = task;
    else
        lane->first = task;
    lane->last = task;
    lane->length++;
    begin_next(lane);
}

/* ---- the end of the daemon: as lane_free, then the loop's last tasks ---------------------------
 */

static void append(Task **list, Task *task)
{
    while (*list)
        list = &(*list)->next;
    *list = task;
}

static void close_lane(Lane *lane, Task **finished)
{
    if (lane->running && lane->begun)
        append(finished, lane->running);
    while ((lane->running && !lane->begun) || lane->first) {
        Task *task = lane->running && !lane->begun ? lane->running : take(lane);
        void (*done)(Task *) = task->done;
        lane->running = NULL;
        run(lane, task, sim_now());
        if (done)
            append(finished, task);
    }
    lane->running = NULL;
    lane->closed = true;
}

void fake_lanes_drain(Lane *const *lanes, unsigned n)
{
    Task *finished = NULL;
    events_forget_daemon();
    for (unsigned i = 0; i < n; i++)
        close_lane(lanes[i], &finished);
    while (finished) {
        Task *task = finished;
        finished = task->next;
        task->next = NULL;
        task->done(task);
    }
}
