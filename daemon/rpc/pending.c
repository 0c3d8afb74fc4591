#include "rpc/pending.h"

#include <stdlib.h>

#include "base/clock.h"

static void on_cancel(void *data)
{
    ((Pending *)data)->call = NULL;
}

void *pending_new(Call *call, void *server, size_t size)
{
    static const CallEvents events = {.on_cancel = on_cancel};
    Pending *pending = calloc(1, size);
    if (!pending) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory; try again later");
        return NULL;
    }
    pending->call = call;
    pending->services = server;
    call_set_events(call, &events, pending);
    return pending;
}

void pending_reply(Pending *pending, int r, const Error *err, const ProtobufCMessage *message)
{
    if (pending->call && r < 0)
        call_fail_error(pending->call, r, err);
    else if (pending->call)
        call_reply(pending->call, message);
    free(pending);
}

#define PATIENCE_US (20 * USEC_PER_SEC)
#define PAUSE_US    (20 * USEC_PER_MSEC)

static void retry_free(Retry *retry)
{
    timer_cancel(retry->pending.services->timers, &retry->timer);
    protobuf_c_message_free_unpacked(retry->message, NULL);
    free(retry);
}

/* While an attempt is under way its answer is still to come, and frees. */
static void on_retry_cancel(void *data)
{
    Retry *retry = data;
    retry->pending.call = NULL;
    if (timer_is_armed(&retry->timer))
        retry_free(retry);
}

static void on_retry_timer(void *data)
{
    Retry *retry = data;
    retry->attempt(retry);
}

void retry_begin(Call *call, void *server, void (*attempt)(Retry *retry))
{
    static const CallEvents events = {.on_cancel = on_retry_cancel};
    Retry *retry = pending_new(call, server, sizeof *retry);
    if (!retry)
        return;
    call_set_events(call, &events, retry);
    retry->message = call_steal_message(call);
    retry->attempt = attempt;
    retry->timer = (Timer){.fire = on_retry_timer, .data = retry};
    retry->begun_us = clock_monotonic_us();
    attempt(retry);
}

void retry_reply(Retry *retry, int r, const Error *err, const ProtobufCMessage *message)
{
    Call *call = retry->pending.call;
    if (call && r == -EAGAIN && clock_monotonic_us() - retry->begun_us < PATIENCE_US) {
        timer_arm(retry->pending.services->timers, &retry->timer, PAUSE_US);
        return;
    }
    if (call && r < 0)
        call_fail_error(call, r, err);
    else if (call)
        call_reply(call, message);
    retry_free(retry);
}

Job *call_find_job(Call *call, Services *services, uint64_t id)
{
    Job *job = manager_find(services->jobs, id);
    if (!job)
        call_fail(call, GRPC_NOT_FOUND, "there is no job %llu; `dpsctl list` shows all",
                  (unsigned long long)id);
    return job;
}

Session *call_find_session(Call *call, Services *services, uint64_t id)
{
    Error err = {0};
    Session *session = NULL;
    int r = session_find(services->sessions, id, &session, &err);
    if (r == 0 && session_connection(session) != call_connection(call))
        r = error_set(&err, -EPERM, "session %llx belongs to another connection",
                      (unsigned long long)id);
    if (r < 0) {
        call_fail_error(call, r, &err);
        return NULL;
    }
    session_add_bytes(session, call_bytes_in(call), 0);
    return session;
}
