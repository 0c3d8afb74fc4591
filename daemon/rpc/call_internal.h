/* The Call's body, for the files that implement it: call.c has the handler's side, call_receive.c
 * the request's way in. */
#pragma once

#include "proto/grpc_frame.h"
#include "rpc/transport.h"

/* Raw request bytes that came in while the handler was not ready. The stream's flow-control window
 * bounds them, since they are not consumed until they are parsed. */
typedef struct CallPending {
    uint8_t *data;
    size_t start, end, capacity;
} CallPending;

struct Call {
    const CallHost *host;
    void *stream;
    const Method *method;
    void *server;
    CallEvents events;
    void *events_data;
    Timer deadline;
    Timer pump; /* goes on with what could not be done in the caller's frame */

    GrpcFrameParser parser;
    CallPending pending;
    ProtobufCMessage *message; /* being handled, unless stolen */
    size_t held;               /* bytes in the parser that are not yet consumed */
    size_t charged;            /* to the budget */
    uint64_t since_us;         /* a message has been coming in since then; 0: none */
    uint64_t bytes_in, bytes_out;

    bool whole;       /* the parser has a message that was not handed out yet */
    bool busy;        /* the handler has a message and has not resumed */
    bool handled;     /* the handler was called */
    bool taking;      /* messages are being handed out further up the stack */
    bool half_closed; /* no more bytes will come */
    bool half_close_told;
    bool full;         /* the response queue is above its mark */
    bool ended;        /* nothing may be told to the handler any more, nor to the transport */
    unsigned depth;    /* of calls of the handler: the Call is freed when it is back at 0 */
    GrpcStatus failed; /* other than GRPC_OK: to be ended so as soon as the handler has returned */
    char sentence[256];
};

void call_enter(Call *call);
/* Frees the Call if it has ended and nobody is inside it. */
void call_leave(Call *call);
/* Ends the Call from our side: tells the handler (on_cancel) and the client. */
void call_abort(Call *call, GrpcStatus status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Hands out what can be handed out; timer callback of call->pump as well. */
void call_pump(void *call);
/* Adjusts the server's budget to what this Call holds; false where that passes the limit. */
bool call_charge(Call *call);
