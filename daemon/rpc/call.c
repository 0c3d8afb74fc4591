/* The handler's side of a Call, and its life. */
#include "rpc/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "rpc/call_internal.h"
#include "rpc/message.h"
#include "rpc/method.h"
#include "rpc/status_map.h"

enum { SENTENCE_BYTES = 768 }; /* an Error's message, with something before it */

static void call_free(Call *call)
{
    timer_cancel(call->host->timers, &call->deadline);
    timer_cancel(call->host->timers, &call->pump);
    call->host->budget->used -= call->charged;
    if (call->message)
        protobuf_c_message_free_unpacked(call->message, NULL);
    grpc_frame_free(&call->parser);
    free(call->pending.data);
    free(call);
}

void call_enter(Call *call)
{
    call->depth++;
}

void call_leave(Call *call)
{
    if (--call->depth == 0 && call->ended)
        call_free(call);
}

/* The one way out towards the client. What was received and not consumed stays so: the stream has
 * no use for its window any more. */
static void end(Call *call, GrpcStatus status, const char *sentence)
{
    if (status != GRPC_OK)
        log_message(status == GRPC_INTERNAL ? LOG_WARNING : LOG_DEBUG, "%s: %s from %s: %s",
                    call->method ? call->method->path : "call", grpc_status_name(status),
                    call->host->peer, sentence);
    call->ended = true;
    call->host->transport->finish(call->stream, status, sentence);
}

static void tell_cancelled(Call *call)
{
    call->ended = true;
    if (call->events.on_cancel)
        call->events.on_cancel(call->events_data);
}

void call_abort(Call *call, GrpcStatus status, const char *format, ...)
{
    if (call->ended)
        return;
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    call_enter(call);
    tell_cancelled(call);
    end(call, status, sentence);
    call_leave(call);
}

void call_cancel(Call *call)
{
    call_enter(call);
    tell_cancelled(call);
    call_leave(call);
}

static void deadline_passed(void *data)
{
    call_abort(data, GRPC_DEADLINE_EXCEEDED, "the call's deadline has passed");
}

/* Ends a call that cannot even begin. */
static Call *refuse(const CallHost *host, void *stream, GrpcStatus status, const char *sentence)
{
    log_debug("%s from %s: %s", grpc_status_name(status), host->peer, sentence);
    host->transport->finish(stream, status, sentence);
    return NULL;
}

static Call *refuse_path(const CallHost *host, void *stream, const char *path)
{
    char sentence[SENTENCE_BYTES];
    bool service = method_service_exists(host->tables, host->n_tables, path);
    snprintf(sentence, sizeof sentence, "there is no method %s%s", path,
             service ? "" : ", nor such a service");
    return refuse(host, stream, GRPC_UNIMPLEMENTED, sentence);
}

Call *call_begin(const CallHost *host, void *stream, const char *path, int64_t timeout_us)
{
    void *server;
    const Method *method = method_find(host->tables, host->n_tables, path, &server);
    if (!method)
        return refuse_path(host, stream, path);
    Call *call = calloc(1, sizeof *call);
    if (!call)
        return refuse(host, stream, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    call->host = host;
    call->stream = stream;
    call->method = method;
    call->server = server;
    call->deadline = (Timer){.fire = deadline_passed, .data = call};
    call->pump = (Timer){.fire = call_pump, .data = call};
    grpc_frame_init(&call->parser, host->message_bytes);
    if (timeout_us >= 0)
        timer_arm(host->timers, &call->deadline, (uint64_t)timeout_us);
    if (!method->client_streams) { /* one message, under way since the headers */
        call->since_us = timers_now_us(host->timers);
        return call;
    }
    call_enter(call);
    call->handled = true;
    method->handle(call, NULL, server);
    bool ended = call->ended;
    call_leave(call);
    return ended ? NULL : call;
}

/* ---- what handlers do ------------------------------------------------------------------------ */

/* Fails the call from inside a handler that may go on using it: it ends when the handler is out. */
static void fail_later(Call *call, GrpcStatus status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail_later(Call *call, GrpcStatus status, const char *format, ...)
{
    if (call->failed != GRPC_OK)
        return;
    call->failed = status;
    va_list args;
    va_start(args, format);
    vsnprintf(call->sentence, sizeof call->sentence, format, args);
    va_end(args);
    timer_arm(call->host->timers, &call->pump, 0);
}

bool call_send(Call *call, const ProtobufCMessage *message)
{
    if (call->ended || call->failed != GRPC_OK)
        return true;
    const char *bad = message_bad_string(message);
    if (bad) {
        fail_later(call, GRPC_INTERNAL, "field %s of the answer is not UTF-8", bad);
        return true;
    }
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *frame = size <= UINT32_MAX ? malloc(GRPC_FRAME_HEADER + size) : NULL;
    if (!frame) {
        fail_later(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for a %s",
                   message->descriptor->name);
        return true;
    }
    grpc_frame_header(frame, (uint32_t)size);
    protobuf_c_message_pack(message, frame + GRPC_FRAME_HEADER);
    call->bytes_out += GRPC_FRAME_HEADER + size;
    call->full = !call->host->transport->send(call->stream, frame, GRPC_FRAME_HEADER + size);
    return !call->full;
}

bool call_is_full(const Call *call)
{
    return call->full;
}

void call_finish(Call *call)
{
    if (call->ended)
        return;
    call_enter(call);
    end(call, call->failed, call->failed == GRPC_OK ? "" : call->sentence);
    call_leave(call);
}

void call_reply(Call *call, const ProtobufCMessage *message)
{
    call_send(call, message);
    call_finish(call);
}

void call_fail(Call *call, GrpcStatus status, const char *format, ...)
{
    if (call->ended)
        return;
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    call_enter(call);
    end(call, status, sentence);
    call_leave(call);
}

void call_fail_error(Call *call, int r, const Error *err)
{
    call_fail(call, grpc_status_of_errno(r), "%s",
              err && err->message[0] ? err->message : "the server has no sentence for this error");
}

void call_set_events(Call *call, const CallEvents *events, void *data)
{
    call->events = *events;
    call->events_data = data;
}

ProtobufCMessage *call_steal_message(Call *call)
{
    ProtobufCMessage *message = call->message;
    call->message = NULL;
    return message;
}

void call_writable(Call *call)
{
    call_enter(call);
    call->full = false;
    if (call->events.on_writable)
        call->events.on_writable(call, call->events_data);
    call_leave(call);
}

const char *call_peer(const Call *call)
{
    return call->host->peer;
}

int64_t call_peer_uid(const Call *call)
{
    return call->host->peer_uid;
}

uint64_t call_connection(const Call *call)
{
    return call->host->connection;
}

uint64_t call_bytes_in(const Call *call)
{
    return call->bytes_in;
}

uint64_t call_bytes_out(const Call *call)
{
    return call->bytes_out;
}
