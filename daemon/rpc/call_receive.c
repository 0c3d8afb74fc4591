/* A request's way in: bytes to frames to messages to the handler, at the handler's pace.
 *
 * One message is with the handler (busy), one more may be assembled in the parser behind it, and
 * what comes after that waits as raw bytes. Only bytes that are with the handler, or on their way
 * to a handler that is ready, are given back to the client's flow-control window; so a slow handler
 * costs one message and one window of memory, whatever the client does. */
#include <stdlib.h>
#include <string.h>

#include "rpc/call_internal.h"
#include "rpc/message.h"

enum { PENDING_START = 4096 };

bool call_charge(Call *call)
{
    CallBudget *budget = call->host->budget;
    size_t holds = call->parser.capacity + call->pending.capacity;
    bool grows = holds > call->charged;
    budget->used += holds - call->charged;
    call->charged = holds;
    return !grows || budget->used <= budget->limit;
}

static void fail_unpack(Call *call, int r, const Error *err)
{
    call_abort(call, r == -ENOBUFS ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT, "%s: %s",
               call->method->path, err->message);
}

/* Gives the whole message in the parser to the handler. False: the handler is not ready for it. */
static bool deliver(Call *call)
{
    const Method *method = call->method;
    if (method->client_streams ? call->busy : !call->half_closed)
        return false;
    Error err;
    ProtobufCMessage *message = NULL;
    int r = message_unpack(method->request, call->parser.body, call->parser.length, &message, &err);
    call->bytes_in += GRPC_FRAME_HEADER + call->parser.length;
    call->whole = false;
    grpc_frame_next(&call->parser);
    if (r < 0) {
        fail_unpack(call, r, &err);
        return true;
    }
    call->message = message;
    call->busy = true;
    if (!method->client_streams) {
        grpc_frame_free(&call->parser); /* no second message will need the buffer */
        call->handled = true;
        method->handle(call, message, call->server);
    } else if (call->events.on_message) {
        call->events.on_message(call, message, call->events_data);
    } else {
        call->busy = false; /* nobody listens */
    }
    if (call->message)
        protobuf_c_message_free_unpacked(call->message, NULL);
    call->message = NULL;
    return true;
}

static void fail_frame(Call *call, GrpcFrameResult result)
{
    const char *path = call->method->path;
    switch (result) {
    case GRPC_FRAME_COMPRESSED:
        call_abort(call, GRPC_UNIMPLEMENTED,
                   "%s: the request is compressed; this server takes uncompressed messages only",
                   path);
        break;
    case GRPC_FRAME_TOO_LARGE:
        call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                   "%s: a request message of %zu bytes exceeds the limit of %zu bytes", path,
                   call->parser.length, call->parser.limit);
        break;
    default:
        call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                   "%s: out of memory for a request message of %zu bytes", path,
                   call->parser.length);
    }
}

/* Parses up to the end of one message; returns the bytes taken. */
static size_t parse(Call *call, const uint8_t *data, size_t size)
{
    size_t taken;
    GrpcFrameResult result = grpc_frame_parse(&call->parser, data, size, &taken);
    if (call->busy)
        call->held += taken;
    else
        call->host->transport->consume(call->stream, taken);
    if (result == GRPC_FRAME_MESSAGE)
        call->whole = true;
    else if (result != GRPC_FRAME_MORE)
        fail_frame(call, result);
    if (call->method->client_streams) {
        if (call->whole)
            call->since_us = 0;
        else if (call->since_us == 0)
            call->since_us = timers_now_us(call->host->timers);
    }
    return taken;
}

/* Parses and hands out as far as the handler is ready; returns the bytes taken. */
static size_t take(Call *call, const uint8_t *data, size_t size)
{
    size_t used = 0;
    call->taking = true;
    while (!call->ended) {
        if (call->whole && !deliver(call))
            break;
        if (call->whole || call->ended)
            continue;
        if (used == size)
            break;
        used += parse(call, data + used, size - used);
    }
    call->taking = false;
    return used;
}

static bool append_pending(Call *call, const uint8_t *data, size_t size)
{
    CallPending *pending = &call->pending;
    if (pending->end + size > pending->capacity) {
        size_t filled = pending->end - pending->start;
        size_t capacity = filled + size > 2 * filled ? filled + size : 2 * filled;
        if (capacity < PENDING_START)
            capacity = PENDING_START;
        uint8_t *grown = malloc(capacity);
        if (!grown)
            return false;
        if (filled > 0)
            memcpy(grown, pending->data + pending->start, filled);
        free(pending->data);
        *pending = (CallPending){.data = grown, .end = filled, .capacity = capacity};
    }
    memcpy(pending->data + pending->end, data, size);
    pending->end += size;
    return true;
}

static void take_pending(Call *call)
{
    CallPending *pending = &call->pending;
    size_t size = pending->end - pending->start;
    const uint8_t *data = size > 0 ? pending->data + pending->start : NULL;
    pending->start += take(call, data, size); /* with nothing pending, a whole message may wait */
    if (pending->start < pending->end)
        return;
    free(pending->data);
    *pending = (CallPending){0};
}

/* All that came in has been handed out, and no more will come. */
static void end_of_input(Call *call)
{
    const Method *method = call->method;
    if (grpc_frame_is_partial(&call->parser)) {
        call_abort(call, GRPC_INVALID_ARGUMENT,
                   "%s: the request ended within a message, after %zu of %zu bytes", method->path,
                   call->parser.used, call->parser.length);
    } else if (!call->handled) {
        call_abort(call, GRPC_INVALID_ARGUMENT,
                   "%s: the request ended without a message; the method takes one", method->path);
    } else if (method->client_streams && !call->busy && !call->half_close_told) {
        call->half_close_told = true;
        if (call->events.on_half_close)
            call->events.on_half_close(call, call->events_data);
    }
}

static void go_on(Call *call)
{
    take_pending(call);
    bool drained = !call->whole && call->pending.end == 0;
    if (!call->ended && drained && call->half_closed)
        end_of_input(call);
    if (!call->ended && !call_charge(call))
        call_abort(call, GRPC_RESOURCE_EXHAUSTED,
                   "%s: requests that are coming in hold %zu bytes in all, the server's limit",
                   call->method->path, call->host->budget->limit);
}

void call_pump(void *data)
{
    Call *call = data;
    call_enter(call);
    if (call->failed != GRPC_OK)
        call_abort(call, call->failed, "%s", call->sentence);
    else
        go_on(call);
    call_leave(call);
}

void call_receive(Call *call, const uint8_t *data, size_t size)
{
    call_enter(call);
    size_t used = call->pending.end == 0 ? take(call, data, size) : 0;
    size_t rest = size - used;
    if (!call->ended && rest > 0 && !call->method->client_streams)
        call_abort(call, GRPC_INVALID_ARGUMENT, "%s: the method takes one message, more came",
                   call->method->path);
    else if (!call->ended && rest > 0 && !append_pending(call, data + used, rest))
        call_abort(call, GRPC_RESOURCE_EXHAUSTED, "%s: out of memory", call->method->path);
    if (!call->ended)
        go_on(call);
    call_leave(call);
}

void call_half_close(Call *call)
{
    call->half_closed = true;
    call_pump(call);
}

void call_resume(Call *call)
{
    if (call->ended || !call->busy)
        return;
    call->busy = false;
    if (call->held > 0)
        call->host->transport->consume(call->stream, call->held);
    call->held = 0;
    if (call->since_us != 0) /* the wait was ours, not the client's */
        call->since_us = timers_now_us(call->host->timers);
    /* Not from here: the caller need not expect its on_message before this returns. */
    if (!call->taking && (call->whole || call->pending.end > 0 || call->half_closed))
        timer_arm(call->host->timers, &call->pump, 0);
}

void call_check(Call *call, uint64_t now_us)
{
    bool waits = call->method->client_streams ? !call->busy : !call->handled;
    if (!waits || call->since_us == 0 || now_us - call->since_us < call->host->message_us)
        return;
    call_abort(call, GRPC_DEADLINE_EXCEEDED,
               "%s: a request message did not come in whole within %.1f s (%zu of %zu bytes)",
               call->method->path, (double)call->host->message_us / 1e6, call->parser.used,
               call->parser.length);
}
