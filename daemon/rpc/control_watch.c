/* Watch: a status at once, then one a change, at most one an interval, until the job has ended. */
#include "rpc/control_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "dps.pb-c.h"
#include "rpc/pack_status.h"

enum { INTERVAL_DEFAULT_MS = 500, INTERVAL_MIN_MS = 50, INTERVAL_MAX_MS = 60000 };

/* With nothing new a status is sent all the same now and then, so that waiting times are seen to
 * grow. */
#define QUIET_US (5 * USEC_PER_SEC)

typedef struct Watch {
    Pending pending; /* first */
    Timer timer;
    uint64_t interval_us, seen, sent_us;
    bool full; /* the client has not taken the last one yet */
} Watch;

static void end(Watch *watch)
{
    timer_cancel(watch->pending.services->timers, &watch->timer);
    free(watch);
}

static void on_cancel(void *data)
{
    end(data);
}

static void on_writable(Call *call, void *data)
{
    (void)call;
    ((Watch *)data)->full = false;
}

static bool send(Watch *watch, Job *job)
{
    PackedStatus *packed;
    if (pack_status(job, true, &packed) < 0)
        return false;
    watch->full = !call_send(watch->pending.call, &packed_status_message(packed)->base);
    watch->seen = job_changes(job);
    watch->sent_us = clock_monotonic_us();
    packed_status_free(packed);
    return true;
}

static void on_timer(void *data)
{
    Watch *watch = data;
    Job *job = manager_find(watch->pending.services->jobs, watch->pending.id);
    bool ended = job_state_is_final(job_state(job));
    bool quiet = clock_monotonic_us() - watch->sent_us >= QUIET_US;
    bool due = ended || quiet || job_changes(job) != watch->seen;
    if (due && !watch->full && !send(watch, job)) {
        call_fail(watch->pending.call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory");
        end(watch);
    } else if (ended && !watch->full) {
        call_finish(watch->pending.call);
        end(watch);
    } else {
        timer_arm(watch->pending.services->timers, &watch->timer, watch->interval_us);
    }
}

static uint64_t interval_us(uint32_t ms)
{
    if (ms == 0)
        ms = INTERVAL_DEFAULT_MS;
    if (ms < INTERVAL_MIN_MS)
        ms = INTERVAL_MIN_MS;
    return (ms > INTERVAL_MAX_MS ? INTERVAL_MAX_MS : ms) * USEC_PER_MSEC;
}

void control_watch(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_cancel = on_cancel, .on_writable = on_writable};
    const Dps__V1__WatchRequest *request = (const Dps__V1__WatchRequest *)message;
    Job *job = call_find_job(call, server, request->job);
    Watch *watch = job ? pending_new(call, server, sizeof *watch) : NULL;
    if (!watch)
        return;
    watch->pending.id = job_id(job);
    watch->interval_us = interval_us(request->interval_ms);
    watch->seen = UINT64_MAX;
    watch->timer = (Timer){.fire = on_timer, .data = watch};
    call_set_events(call, &events, watch);
    on_timer(watch);
}
