/* Sessions: dpsd's memory of connected trainers. A session ties a connection to a member of a job
 * and owns everything that dies with it: contexts, queued work, leases handed out. Loop thread
 * only.
 *
 * Work is done in the order in which it was asked for, one piece at a time, each on the member's
 * lane. Every request ends with one callback, unless the session ends first: then with -ECANCELED
 * and the reason. */
#pragma once

#include "base/timer.h"
#include "job/manager.h"

typedef struct SessionTable SessionTable;
typedef struct Session Session;

typedef struct SessionLimits {
    unsigned sessions; /* at once */
    unsigned window;   /* batches under way on Train: enough that a lane never waits */
    unsigned queue;    /* unary requests waiting in a session */
    unsigned contexts; /* of a session; each holds the activations of a batch */
    uint64_t lease_us; /* silence after which a trainer counts as dead */
} SessionLimits;

extern const SessionLimits session_default_limits;

/* How long a connection has been silent, and how to end one: net/'s, passed down by main(). */
typedef struct SessionTransport {
    uint64_t (*silence_us)(void *data, uint64_t connection);
    void (*close)(void *data, uint64_t connection);
    void *data;
} SessionTransport;

int session_table_new(JobManager *manager, Timers *timers, const SessionLimits *limits,
                      const SessionTransport *transport, SessionTable **ret);
SessionTable *session_table_free(SessionTable *table);
unsigned session_count(const SessionTable *table);
const SessionLimits *session_limits(const SessionTable *table);
/* A connection has ended: its sessions are lost. */
void session_table_disconnected(SessionTable *table, uint64_t connection);

/* As job_join; -ENOBUFS: too many sessions. */
int session_open(SessionTable *table, Job *job, const JoinWant *want, uint64_t connection,
                 Session **ret, Error *err);
/* -ENOENT with the reason why an ended one is gone, where that is still known */
int session_find(SessionTable *table, uint64_t id, Session **ret, Error *err);
/* The trainer leaves of its own will. */
void session_leave(Session *session);

uint64_t session_id(const Session *session);
uint64_t session_connection(const Session *session);
Member *session_member(const Session *session);

/* Bytes of messages that went over the wire for this session; they go into the round's metrics. */
void session_add_bytes(Session *session, uint64_t in, uint64_t out);

/* ---- leases ---------------------------------------------------------------------------------- */

/* The batch for the next step that was not leased yet to this session, up to `window` ahead of what
 * is done. -EAGAIN: the window is full or there is none now; -ENODATA: the rank has no more steps
 * (as things stand); indices are valid until the next call into the job. */
int session_next_lease(Session *session, unsigned window, DealerBatch *ret, uint64_t *step);
/* For one lease at a time: the batch of the step that is to be done now, as often as asked. */
int session_current_lease(Session *session, DealerBatch *ret, uint64_t *step);

/* ---- work ------------------------------------------------------------------------------------ */

/* A batch and the memory that it points into, freed by `release` when the work is over. */
typedef struct OwnedBatch {
    Batch batch;
    void *owner;
    void (*release)(void *owner);
} OwnedBatch;

typedef struct TrainResult {
    uint64_t step, round, compute_us, queue_us;
    float loss;
} TrainResult;

typedef void (*SessionTrained)(void *data, int r, const Error *err, const TrainResult *result);
/* Takes the batch in any case. The step must be the session's next. */
void session_train(Session *session, uint64_t step, OwnedBatch *batch, SessionTrained done,
                   void *data);

typedef void (*SessionForwarded)(void *data, int r, const Error *err, uint64_t context,
                                 uint64_t version, const float *output, int64_t elements);
void session_forward(Session *session, OwnedBatch *batch, SessionForwarded done, void *data);

typedef void (*SessionBackwarded)(void *data, int r, const Error *err, double gradient_norm);
/* gradient: the caller's floats, copied; as many as the context's output has. */
void session_backward(Session *session, uint64_t context, const float *gradient, int64_t elements,
                      SessionBackwarded done, void *data);

typedef void (*SessionGradient)(void *data, int r, const Error *err, const float *gradient);
/* One parameter's gradient; valid during the callback. */
void session_gradient(Session *session, uint64_t context, int param, SessionGradient done,
                      void *data);

typedef struct StepOutcome {
    uint64_t step, round, version;
    bool done;
} StepOutcome;

typedef void (*SessionStepped)(void *data, int r, const Error *err, const StepOutcome *outcome);
/* The answer comes after the meeting, if the step led to one. */
void session_step(Session *session, uint64_t context, float loss, SessionStepped done, void *data);

typedef void (*SessionDone)(void *data, int r, const Error *err);
void session_discard(Session *session, uint64_t context, SessionDone done, void *data);

/* ---- the Train stream ------------------------------------------------------------------------ */

typedef struct StreamEvents {
    /* Leases may be there, or a place in the window. */
    void (*on_ready)(void *data);
    /* The job wants no more of this trainer. The session is gone. */
    void (*on_end)(void *data, const char *reason);
} StreamEvents;

/* One stream a session. -EBUSY; -EAGAIN while batches of an earlier one are under way */
int session_attach_stream(Session *session, const StreamEvents *events, void *data, Error *err);
void session_detach_stream(Session *session);
/* Work that is queued or on the lane. */
unsigned session_pending(const Session *session);
