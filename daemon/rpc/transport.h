/* What net/ and rpc/ know of each other. net/ makes a Call for each request stream and feeds it;
 * the Call answers through the table of functions that net/ passed down.
 *
 * A Call belongs to rpc/. The stream holds a pointer to it from call_begin until either the Call
 * says transport->finish or the stream says call_cancel; after either one the stream forgets the
 * Call. None of the transport's functions calls back into a Call, so that a handler can use them
 * from anywhere. Loop thread only. */
#pragma once

#include "base/timer.h"
#include "rpc/call.h"

typedef struct CallTransport {
    /* Takes over `frame` (malloc'ed: frame header and message). False: the queue is above its
     * mark; call_writable will come. */
    bool (*send)(void *stream, uint8_t *frame, size_t size);
    /* Ends the response after what was sent before. The stream forgets the Call now. */
    void (*finish)(void *stream, GrpcStatus status, const char *message);
    /* Request bytes that are dealt with: the client may send as many again. */
    void (*consume)(void *stream, size_t bytes);
} CallTransport;

/* Memory that all calls of a server may hold for requests that are still coming in. */
typedef struct CallBudget {
    size_t used, limit;
} CallBudget;

/* What the calls of one connection share; outlives them. */
typedef struct CallHost {
    const CallTransport *transport;
    Timers *timers;
    const MethodTable *tables;
    size_t n_tables;
    CallBudget *budget;
    size_t message_bytes; /* of one request message */
    uint64_t message_us;  /* from a message's first byte to its last */
    const char *peer;
    int64_t peer_uid;
    uint64_t connection;
} CallHost;

/* Begins the call of `path`; timeout_us < 0: no deadline. NULL: it has ended already, as with an
 * unknown path (the transport was told), or there was no memory for it (told too). */
Call *call_begin(const CallHost *host, void *stream, const char *path, int64_t timeout_us);
/* Request bytes, as they came out of the stream. */
void call_receive(Call *call, const uint8_t *data, size_t size);
/* The client sends no more. */
void call_half_close(Call *call);
/* The response queue has fallen below its mark. */
void call_writable(Call *call);
/* The stream was reset or its connection is gone: the Call ends, the transport hears no more. */
void call_cancel(Call *call);
/* Ends a call whose request message takes too long to come in. To be asked now and then. */
void call_check(Call *call, uint64_t now_us);
