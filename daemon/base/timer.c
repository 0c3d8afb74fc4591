#include "base/timer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

struct Timers {
    uint64_t (*now_us)(void);
    Timer *first; /* sorted by due time; a daemon has some hundred timers, most of them far away */
};

int timers_new(uint64_t (*now_us)(void), Timers **ret)
{
    Timers *timers = calloc(1, sizeof *timers);
    if (!timers)
        return -ENOMEM;
    timers->now_us = now_us ? now_us : clock_monotonic_us;
    *ret = timers;
    return 0;
}

Timers *timers_free(Timers *timers)
{
    free(timers);
    return NULL;
}

uint64_t timers_now_us(const Timers *timers)
{
    return timers->now_us();
}

void timer_cancel(Timers *timers, Timer *timer)
{
    if (!timer->armed)
        return;
    if (timer->prev)
        timer->prev->next = timer->next;
    else
        timers->first = timer->next;
    if (timer->next)
        timer->next->prev = timer->prev;
    timer->next = timer->prev = NULL;
    timer->armed = false;
}

void timer_arm(Timers *timers, Timer *timer, uint64_t delay_us)
{
    timer_cancel(timers, timer);
    timer->due_us = timers->now_us() + delay_us;
    Timer *before = NULL, *after = timers->first;
    while (after && after->due_us <= timer->due_us) {
        before = after;
        after = after->next;
    }
    timer->prev = before;
    timer->next = after;
    if (before)
        before->next = timer;
    else
        timers->first = timer;
    if (after)
        after->prev = timer;
    timer->armed = true;
}

bool timer_is_armed(const Timer *timer)
{
    return timer->armed;
}

uint64_t timers_next_us(const Timers *timers)
{
    if (!timers->first)
        return UINT64_MAX;
    uint64_t now = timers->now_us();
    return timers->first->due_us > now ? timers->first->due_us - now : 0;
}

void timers_run(Timers *timers)
{
    uint64_t now = timers->now_us();
    while (timers->first && timers->first->due_us <= now) {
        Timer *timer = timers->first;
        timer_cancel(timers, timer);
        timer->fire(timer->data);
    }
}
