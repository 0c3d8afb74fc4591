#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

typedef struct SignalWatch {
    struct event *event;
    void (*callback)(int signal, void *data);
    void *data;
    struct SignalWatch *next;
} SignalWatch;

struct Loop {
    struct event_base *base;
    struct event *mailbox_event, *timer_event;
    Mailbox *mailbox;
    Timers *timers;
    SignalWatch *signals;
    bool stopped;
};

static void log_libevent(int severity, const char *message)
{
    static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERR};
    log_message(priorities[severity & 3], "libevent: %s", message);
}

/* Runs what workers have finished. */
static void on_mailbox(evutil_socket_t fd, short what, void *data)
{
    (void)fd;
    (void)what;
    Loop *loop = data;
    mailbox_clear_fd(loop->mailbox);
    Task *task;
    while ((task = mailbox_take(loop->mailbox)))
        if (task->done)
            task->done(task);
}

/* Only there to end the wait: loop_run runs the timers after each pass. */
static void on_timer(evutil_socket_t fd, short what, void *data)
{
    (void)fd;
    (void)what;
    (void)data;
}

static int new_base(struct event_base **ret)
{
    struct event_config *config = event_config_new();
    if (!config)
        return -ENOMEM;
    /* One thread; and timers to the microsecond, since deadlines are kept by them. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER);
    *ret = event_base_new_with_config(config);
    event_config_free(config);
    return *ret ? 0 : -ENOMEM;
}

static int set_up(Loop *loop)
{
    int r = new_base(&loop->base);
    if (r < 0)
        return r;
    r = mailbox_new(&loop->mailbox);
    if (r < 0)
        return r;
    r = timers_new(NULL, &loop->timers);
    if (r < 0)
        return r;
    loop->mailbox_event =
        event_new(loop->base, mailbox_fd(loop->mailbox), EV_READ | EV_PERSIST, on_mailbox, loop);
    loop->timer_event = event_new(loop->base, -1, 0, on_timer, NULL);
    if (!loop->mailbox_event || !loop->timer_event || event_add(loop->mailbox_event, NULL) < 0)
        return -ENOMEM;
    return 0;
}

int loop_new(Loop **ret)
{
    event_set_log_callback(log_libevent);
    Loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return -ENOMEM;
    int r = set_up(loop);
    if (r < 0) {
        loop_free(loop);
        return r;
    }
    *ret = loop;
    return 0;
}

Loop *loop_free(Loop *loop)
{
    if (!loop)
        return NULL;
    while (loop->signals) {
        SignalWatch *watch = loop->signals;
        loop->signals = watch->next;
        event_free(watch->event);
        free(watch);
    }
    if (loop->mailbox_event)
        event_free(loop->mailbox_event);
    if (loop->timer_event)
        event_free(loop->timer_event);
    timers_free(loop->timers);
    mailbox_free(loop->mailbox);
    if (loop->base)
        event_base_free(loop->base);
    free(loop);
    return NULL;
}

Timers *loop_timers(Loop *loop)
{
    return loop->timers;
}

Mailbox *loop_mailbox(Loop *loop)
{
    return loop->mailbox;
}

struct event_base *loop_event_base(Loop *loop)
{
    return loop->base;
}

static void on_signal(evutil_socket_t signal, short what, void *data)
{
    (void)what;
    const SignalWatch *watch = data;
    watch->callback(signal, watch->data);
}

int loop_on_signal(Loop *loop, int signal, void (*callback)(int signal, void *data), void *data)
{
    SignalWatch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return -ENOMEM;
    *watch = (SignalWatch){.callback = callback, .data = data};
    watch->event = evsignal_new(loop->base, signal, on_signal, watch);
    if (!watch->event || event_add(watch->event, NULL) < 0) {
        if (watch->event)
            event_free(watch->event);
        free(watch);
        return -ENOMEM;
    }
    watch->next = loop->signals;
    loop->signals = watch;
    return 0;
}

static void arm_timer(Loop *loop)
{
    uint64_t wait = timers_next_us(loop->timers);
    if (wait == UINT64_MAX) {
        event_del(loop->timer_event);
        return;
    }
    struct timeval timeout = {.tv_sec = (time_t)(wait / USEC_PER_SEC),
                              .tv_usec = (suseconds_t)(wait % USEC_PER_SEC)};
    event_add(loop->timer_event, &timeout);
}

int loop_run(Loop *loop)
{
    loop->stopped = false;
    while (!loop->stopped) {
        arm_timer(loop);
        if (event_base_loop(loop->base, EVLOOP_ONCE) < 0)
            return -EIO;
        if (!loop->stopped)
            timers_run(loop->timers);
    }
    return 0;
}

void loop_stop(Loop *loop)
{
    loop->stopped = true;
    event_base_loopbreak(loop->base);
}
