/* What the files of session/ share: sessions, and the pieces of work (Op) that they queue. */
#pragma once

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "session/session.h"

enum { SESSION_ENDED_KEPT = 64, SESSION_REASON_MAX = 120 };

typedef struct Op Op;

/* What booking an outcome led to. */
typedef enum OpBooked {
    BOOKED,       /* the answer may go out */
    BOOKED_WAITS, /* something has to come first; book is called again when the job has changed */
    BOOKED_AGAIN, /* the work is to be done once more */
} OpBooked;

/* One entry a kind of request, in its own file. */
typedef struct OpType {
    const char *name;
    bool takes_step;         /* begins or ends a step: only while no meeting is due */
    void (*prepare)(Op *op); /* loop, before the lane: may set op->r to refuse; NULL: nothing */
    void (*work)(Op *op);    /* lane */
    /* Loop, after the lane or after a refusal: books the outcome. */
    OpBooked (*book)(Op *op);
    void (*answer)(Op *op); /* loop: the callback, with op->r and op->err */
    void (*clear)(Op *op);  /* loop: frees what the Op owns; NULL: nothing */
} OpType;

/* Embedded first in the struct of its kind. */
struct Op {
    MemberTask task; /* first */
    const OpType *type;
    Session *session; /* NULL once the session has ended */
    int r;
    Error err;
    bool answered;
    uint64_t queued_us, started_us;
    Op *next;
};

typedef struct SessionContext {
    uint64_t id; /* 0: free place */
    Context *context;
    int64_t elements;       /* of the output */
    SharedVersion *version; /* held for its backward; NULL: not shared, or done */
} SessionContext;

struct Session {
    SessionTable *table;
    uint64_t id;
    uint64_t connection;
    Member *member;   /* NULL: the job has ended it */
    Op *first, *last; /* waiting */
    Op *running;
    Op *awaiting;            /* a step whose answer comes after others have stepped, or met */
    unsigned queued, trains; /* waiting ones; Train batches waiting or running */
    unsigned forwards;       /* waiting or running: contexts to be */
    SessionContext *contexts;
    uint64_t next_context;
    uint64_t leased; /* the step that is leased next */
    uint32_t draws;  /* forwards since the last step */
    uint64_t bytes_in, bytes_out;
    const StreamEvents *stream;
    void *stream_data;
    Session *next, *prev;
};

struct SessionTable {
    JobManager *manager;
    Timers *timers;
    SessionLimits limits;
    SessionTransport transport;
    Session *first;
    unsigned count;
    Timer watch;
    uint64_t next_id;
    struct {
        uint64_t id;
        char reason[SESSION_REASON_MAX];
    } ended[SESSION_ENDED_KEPT];
    unsigned next_ended;
};

/* queue.c */
int op_new(const OpType *type, size_t size, Op **ret);
/* Takes the op: queues it, or answers it at once with what is wrong. */
void op_submit(Session *session, Op *op);
void op_refuse(Op *op, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));
void session_pump(Session *session);
/* Answers everything that waits with -ECANCELED and lets go of what runs. */
void session_cancel_ops(Session *session, const char *reason);
void session_book_again(Session *session, bool completed);

/* contexts.c */
SessionContext *session_context(Session *session, uint64_t id, Op *op);
/* Puts a new context away; where the session is gone it is freed instead. */
uint64_t session_keep_context(Op *op, Context *context, int64_t elements);
/* Frees contexts on the lane; id 0: all of them. */
void session_free_contexts(Session *session, uint64_t id);
void session_free_stray(Member *member, Context *context, SharedVersion *version);
StepAccount session_account(Session *session, float loss, int64_t samples, uint64_t compute_us);
