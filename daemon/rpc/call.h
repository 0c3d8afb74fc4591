/* One gRPC call as a service sees it, whatever carries it.
 *
 * The transport (net/) makes a Call for each stream, feeds it messages and tells it when the client
 * cancels, half-closes or is gone; a handler answers through call_send, call_finish and call_fail.
 * A Call ends with call_finish, call_fail, or by itself when the client cancels or its deadline
 * passes; in either of the latter cases on_cancel is told, once, after which the handler must not
 * use the Call again. After call_finish or call_fail the Call belongs to nobody: do not touch it.
 * Loop thread only. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/grpc_status.h"

typedef struct Call Call;

/* ---- for handlers ---------------------------------------------------------------------------- */

/* Encodes and queues one response message. False: the queue is above its mark; the message was
 * taken all the same, but a producer stops here until on_writable. */
bool call_send(Call *call, const ProtobufCMessage *message);
/* Whether the last call_send said stop and on_writable has not come yet. */
bool call_is_full(const Call *call);
/* Ends the call with OK; a unary handler does call_reply instead. */
void call_finish(Call *call);
void call_reply(Call *call, const ProtobufCMessage *message); /* send + finish */
void call_fail(Call *call, GrpcStatus status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Status from a negative errno (-EINVAL → INVALID_ARGUMENT, …), sentence from err. */
void call_fail_error(Call *call, int r, const Error *err);

/* The handler's state, and what it wants to hear. All may be NULL. on_message gets each further
 * message of a client stream; the Call takes the next one from the client only after call_resume,
 * so that a slow handler holds the client back by flow control; a call_resume from outside the
 * Call's callbacks never calls back before it returns. on_half_close comes when the last message is
 * resumed and the client sends no more. on_writable: the queue has fallen below its mark. A handler
 * that answers later than in handle or on_message needs on_cancel. */
typedef struct CallEvents {
    void (*on_message)(Call *call, const ProtobufCMessage *message, void *data);
    void (*on_half_close)(Call *call, void *data);
    void (*on_writable)(Call *call, void *data);
    void (*on_cancel)(void *data);
} CallEvents;

void call_set_events(Call *call, const CallEvents *events, void *data);
/* Client streams: the message handed out last is dealt with; the next may come. */
void call_resume(Call *call);

/* Takes the message that is being handled (unary request or on_message) over from the Call, so that
 * it need not be copied; the new owner frees it with protobuf_c_message_free_unpacked(message,
 * NULL). Valid inside the handler or on_message only. */
ProtobufCMessage *call_steal_message(Call *call);

/* Who calls: "uid=1000 (ada)" on a Unix socket, "tcp 127.0.0.1:5555" otherwise. Valid while the
 * Call is. */
const char *call_peer(const Call *call);
/* Numeric uid of a Unix peer, or -1. */
int64_t call_peer_uid(const Call *call);
/* Identity of the connection; never reused while dpsd runs. Sessions are tied to it. */
uint64_t call_connection(const Call *call);
/* Bytes received and sent as messages so far. */
uint64_t call_bytes_in(const Call *call);
uint64_t call_bytes_out(const Call *call);

/* ---- method table ---------------------------------------------------------------------------- */

typedef struct Method {
    const char *path; /* "/dps.v1.Control/Submit" */
    const ProtobufCMessageDescriptor *request;
    bool client_streams, server_streams;
    /* Called with the first message (unary and server-streaming: the only one). For client streams
     * it is called when the headers are in, with message NULL; the handler sets its events.
     * `server` is what the table was registered with. */
    void (*handle)(Call *call, const ProtobufCMessage *message, void *server);
} Method;

/* Tables of a service each, static; registered once at start. `server` is passed to the handlers.
 */
typedef struct MethodTable {
    const Method *methods;
    size_t n;
    void *server;
} MethodTable;
