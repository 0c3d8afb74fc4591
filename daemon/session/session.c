#include "session/session_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

const SessionLimits session_default_limits = {
    .sessions = 1024,
    .window = 4,
    .queue = 32,
    .contexts = 16,
    .lease_us = 10 * USEC_PER_SEC,
};

static void on_watch(void *data);
static void arm_watch(SessionTable *table);

int session_table_new(JobManager *manager, Timers *timers, const SessionLimits *limits,
                      const SessionTransport *transport, SessionTable **ret)
{
    SessionTable *table = calloc(1, sizeof *table);
    if (!table)
        return -ENOMEM;
    table->manager = manager;
    table->timers = timers;
    table->limits = *limits;
    table->transport = *transport;
    table->watch = (Timer){.fire = on_watch, .data = table};
    arm_watch(table);
    *ret = table;
    return 0;
}

unsigned session_count(const SessionTable *table)
{
    return table->count;
}

const SessionLimits *session_limits(const SessionTable *table)
{
    return &table->limits;
}

uint64_t session_id(const Session *session)
{
    return session->id;
}

uint64_t session_connection(const Session *session)
{
    return session->connection;
}

Member *session_member(const Session *session)
{
    return session->member;
}

void session_add_bytes(Session *session, uint64_t in, uint64_t out)
{
    session->bytes_in += in;
    session->bytes_out += out;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void remember_end(SessionTable *table, uint64_t id, const char *reason)
{
    unsigned i = table->next_ended++ % SESSION_ENDED_KEPT;
    table->ended[i].id = id;
    snprintf(table->ended[i].reason, sizeof table->ended[i].reason, "%s", reason);
}

static void unlink_session(SessionTable *table, Session *session)
{
    if (session->prev)
        session->prev->next = session->next;
    else
        table->first = session->next;
    if (session->next)
        session->next->prev = session->prev;
    table->count--;
}

/* The member was left, or has let go of the session, before. */
static void end(Session *session, const char *reason)
{
    SessionTable *table = session->table;
    const StreamEvents *stream = session->stream;
    session->stream = NULL;
    unlink_session(table, session);
    remember_end(table, session->id, reason);
    session_cancel_ops(session, reason);
    session_free_contexts(session, 0);
    if (stream)
        stream->on_end(session->stream_data, reason);
    free(session->contexts);
    free(session);
}

static void lose(Session *session, const char *why)
{
    Member *member = session->member;
    end(session, why);
    member_leave(member, true, why);
}

void session_leave(Session *session)
{
    Member *member = session->member;
    end(session, "left");
    member_leave(member, false, "its trainer left");
}

void session_table_disconnected(SessionTable *table, uint64_t connection)
{
    Session *next;
    for (Session *session = table->first; session; session = next) {
        next = session->next;
        if (session->connection != connection)
            continue;
        lose(session, "its connection was closed");
        next = table->first; /* that may have ended others */
    }
}

SessionTable *session_table_free(SessionTable *table)
{
    if (!table)
        return NULL;
    while (table->first)
        lose(table->first, "dpsd is stopping");
    timer_cancel(table->timers, &table->watch);
    free(table);
    return NULL;
}

/* ---- silence --------------------------------------------------------------------------------- */

static void arm_watch(SessionTable *table)
{
    timer_arm(table->timers, &table->watch, table->limits.lease_us / 4);
}

static void on_watch(void *data)
{
    SessionTable *table = data;
    const SessionTransport *transport = &table->transport;
    Session *next;
    arm_watch(table);
    for (Session *session = table->first; session; session = next) {
        next = session->next;
        uint64_t connection = session->connection;
        uint64_t silence = transport->silence_us(transport->data, connection);
        if (silence <= table->limits.lease_us)
            continue;
        char why[64];
        snprintf(why, sizeof why, "no word for %.0f s", (double)silence / 1e6);
        lose(session, silence == UINT64_MAX ? "its connection is gone" : why);
        transport->close(transport->data, connection);
        next = table->first; /* closing may have ended others of the same connection */
    }
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void on_member_ready(void *data)
{
    Session *session = data;
    session_meeting_over(session, false);
    session_pump(session);
    if (session->stream)
        session->stream->on_ready(session->stream_data);
}

static void on_member_end(void *data, const char *reason)
{
    Session *session = data;
    session_meeting_over(session, strcmp(reason, "completed") == 0);
    end(session, reason);
}

static const MemberEvents member_events = {.on_ready = on_member_ready, .on_end = on_member_end};

/* Numbers that cannot be guessed, so that a stale one is never somebody else's. */
static uint64_t new_id(SessionTable *table)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof id, 0) != sizeof id || id == 0)
        id = ++table->next_id + clock_monotonic_us();
    return id;
}

static int session_new(SessionTable *table, uint64_t connection, Session **ret)
{
    Session *session = calloc(1, sizeof *session);
    if (!session)
        return -ENOMEM;
    session->contexts = calloc(table->limits.contexts, sizeof *session->contexts);
    if (!session->contexts) {
        free(session);
        return -ENOMEM;
    }
    session->table = table;
    session->connection = connection;
    session->id = new_id(table);
    *ret = session;
    return 0;
}

int session_open(SessionTable *table, Job *job, const JoinWant *want, uint64_t connection,
                 Session **ret, Error *err)
{
    Session *session;
    if (table->count >= table->limits.sessions)
        return error_set(err, -ENOBUFS, "%u sessions are open, which is the most", table->count);
    int r = session_new(table, connection, &session);
    if (r < 0)
        return error_set(err, r, "out of memory");
    r = job_join(job, want, &member_events, session, &session->member, err);
    if (r < 0) {
        free(session->contexts);
        free(session);
        return r;
    }
    session->leased = member_step(session->member);
    session->next = table->first;
    if (table->first)
        table->first->prev = session;
    table->first = session;
    table->count++;
    *ret = session;
    return 0;
}

int session_find(SessionTable *table, uint64_t id, Session **ret, Error *err)
{
    for (Session *session = table->first; session; session = session->next)
        if (session->id == id) {
            *ret = session;
            return 0;
        }
    for (unsigned i = 0; i < SESSION_ENDED_KEPT; i++)
        if (id && table->ended[i].id == id)
            return error_set(err, -ENOENT, "session %llx has ended: %s; join again",
                             (unsigned long long)id, table->ended[i].reason);
    return error_set(err, -ENOENT, "there is no session %llx; join first", (unsigned long long)id);
}

/* ---- leases ---------------------------------------------------------------------------------- */

int session_current_lease(Session *session, DealerBatch *ret, uint64_t *step)
{
    *step = member_step(session->member);
    return member_batch(session->member, *step, ret);
}

int session_next_lease(Session *session, unsigned window, DealerBatch *ret, uint64_t *step)
{
    if (member_own_data(session->member))
        return -ENODATA;
    if (session->leased >= member_step(session->member) + window)
        return -EAGAIN;
    int r = member_batch(session->member, session->leased, ret);
    if (r == 0)
        *step = session->leased++;
    return r;
}

int session_attach_stream(Session *session, const StreamEvents *events, void *data, Error *err)
{
    if (session->stream)
        return error_set(err, -EBUSY, "session %llx has a Train stream already",
                         (unsigned long long)session->id);
    if (session->trains) /* their steps would be leased once more */
        return error_set(err, -EAGAIN,
                         "%u batches of an earlier stream are under way; try again in a moment",
                         session->trains);
    session->stream = events;
    session->stream_data = data;
    session->leased = member_step(session->member); /* a stream before this one may have died */
    return 0;
}

void session_detach_stream(Session *session)
{
    session->stream = NULL;
}

unsigned session_pending(const Session *session)
{
    return session->queued + (session->running != NULL);
}
