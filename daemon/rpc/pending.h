/* A call whose answer comes later: remembers whether the client is still there to get it. Embedded
 * first in the struct of its kind. Loop thread only. */
#pragma once

#include "rpc/services.h"

typedef struct Pending {
    Call *call; /* NULL once the client has given up */
    Services *services;
    uint64_t id; /* of the job or session, as the method needs */
} Pending;

/* `size` bytes, zeroed. NULL: the call was failed already. */
void *pending_new(Call *call, void *server, size_t size);
/* Ends the call with the message, or with the error if r < 0, and frees the Pending. */
void pending_reply(Pending *pending, int r, const Error *err, const ProtobufCMessage *message);

/* A request that is tried again for a while where it fails for a passing reason (-EAGAIN): a job
 * that is being loaded, a rank that is taken back when the round ends. Thus a client need not. */
typedef struct Retry Retry;
struct Retry {
    Pending pending;           /* first */
    ProtobufCMessage *message; /* the request; owned */
    void (*attempt)(Retry *retry);
    Timer timer;
    uint64_t begun_us;
};

/* Makes the first attempt. The attempt ends with retry_reply, at once or later. */
void retry_begin(Call *call, void *server, void (*attempt)(Retry *retry));
/* Tries again later if r is -EAGAIN and there is patience left; else as pending_reply. */
void retry_reply(Retry *retry, int r, const Error *err, const ProtobufCMessage *message);

/* Finds the job or fails the call. */
Job *call_find_job(Call *call, Services *services, uint64_t id);
/* Finds the session, and counts the request's bytes for it, or fails the call. */
Session *call_find_session(Call *call, Services *services, uint64_t id);
