/* Timers of the loop thread, ordered by due time, independent of what drives them: the event loop
 * asks timers_next_us() and calls timers_run(); a simulation can do the same with a clock of its
 * own.
 *
 * A Timer lives inside its owner's struct; the owner cancels it before it ends. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct Timers Timers;
typedef struct Timer Timer;

struct Timer {
    void (*fire)(void *data); /* may arm or cancel any timer, itself included */
    void *data;
    uint64_t due_us; /* private */
    Timer *next;     /* private */
    Timer *prev;     /* private */
    bool armed;      /* private */
};

/* now_us gives the current time; NULL means clock_monotonic_us. -ENOMEM */
int timers_new(uint64_t (*now_us)(void), Timers **ret);
Timers *timers_free(Timers *timers);

uint64_t timers_now_us(const Timers *timers);

/* (Re)arms the timer to fire once, delay_us from now. */
void timer_arm(Timers *timers, Timer *timer, uint64_t delay_us);
void timer_cancel(Timers *timers, Timer *timer);
bool timer_is_armed(const Timer *timer);

/* Microseconds until the first timer is due, 0 if it is overdue, UINT64_MAX if there is none. */
uint64_t timers_next_us(const Timers *timers);
/* Fires everything that is due. */
void timers_run(Timers *timers);
