#include "service/watchdog.h"

#include <stdlib.h>

#include "service/notify.h"

struct Watchdog {
    Timers *timers;
    Store *store;
    Timer timer;
    uint64_t interval_us;
    bool asking; /* the store has not answered yet: it is not fed */
    bool freed;
};

static void ask(Watchdog *watchdog);

static void on_answer(void *data, int r, const Error *err)
{
    Watchdog *watchdog = data;
    (void)err;
    watchdog->asking = false;
    if (watchdog->freed) {
        free(watchdog);
        return;
    }
    if (r == 0)
        notify_watchdog();
}

static void on_timer(void *data)
{
    Watchdog *watchdog = data;
    timer_arm(watchdog->timers, &watchdog->timer, watchdog->interval_us / 3);
    if (!watchdog->asking)
        ask(watchdog);
}

static void ask(Watchdog *watchdog)
{
    watchdog->asking = store_ping(watchdog->store, on_answer, watchdog) == 0;
}

int watchdog_new(Timers *timers, Store *store, Watchdog **ret)
{
    Watchdog *watchdog = calloc(1, sizeof *watchdog);
    if (!watchdog)
        return -ENOMEM;
    *watchdog =
        (Watchdog){.timers = timers, .store = store, .interval_us = notify_watchdog_interval_us()};
    watchdog->timer = (Timer){.fire = on_timer, .data = watchdog};
    if (watchdog->interval_us)
        on_timer(watchdog);
    *ret = watchdog;
    return 0;
}

Watchdog *watchdog_free(Watchdog *watchdog)
{
    if (!watchdog)
        return NULL;
    timer_cancel(watchdog->timers, &watchdog->timer);
    watchdog->freed = true;
    if (!watchdog->asking)
        free(watchdog);
    return NULL;
}
