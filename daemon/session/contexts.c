/* Contexts of a session: numbered, limited, freed on the lane that made them. */
#include "session/session_internal.h"

#include <stdlib.h>

typedef struct Release {
    MemberTask task; /* first */
    unsigned n;
    struct {
        Context *context;
        SharedVersion *version;
    } items[];
} Release;

SessionContext *session_context(Session *session, uint64_t id, Op *op)
{
    for (unsigned i = 0; i < session->table->limits.contexts; i++)
        if (id && session->contexts[i].id == id)
            return &session->contexts[i];
    if (id && id <= session->next_context)
        op_refuse(op, -ENOENT, "context %llu was stepped or discarded before; run Forward again",
                  (unsigned long long)id);
    else
        op_refuse(op, -ENOENT, "there is no context %llu in this session; Forward makes them",
                  (unsigned long long)id);
    return NULL;
}

uint64_t session_keep_context(Op *op, Context *context, int64_t elements)
{
    SharedVersion *version = member_hold_version(op->task.member);
    Session *session = op->session;
    for (unsigned i = 0; session && i < session->table->limits.contexts; i++) {
        if (session->contexts[i].id)
            continue;
        session->contexts[i] = (SessionContext){.id = ++session->next_context,
                                                .context = context,
                                                .elements = elements,
                                                .version = version};
        return session->contexts[i].id;
    }
    session_free_stray(op->task.member, context, version);
    return 0;
}

static void release_work(MemberTask *task)
{
    Release *release = (Release *)task;
    for (unsigned i = 0; i < release->n; i++)
        context_free(release->items[i].context);
}

static void release_done(MemberTask *task)
{
    Release *release = (Release *)task;
    for (unsigned i = 0; i < release->n; i++)
        member_drop_version(task->member, release->items[i].version);
    free(release);
}

static Release *release_new(unsigned capacity)
{
    Release *release = calloc(1, sizeof *release + capacity * sizeof release->items[0]);
    if (!release)
        return NULL;
    release->task.work = release_work;
    release->task.finished = release_done;
    return release;
}

void session_free_contexts(Session *session, uint64_t id)
{
    unsigned limit = session->table->limits.contexts;
    Release *release = release_new(limit);
    if (!release) {
        log_error("out of memory: the contexts of a session stay until its job ends");
        return;
    }
    for (unsigned i = 0; i < limit; i++) {
        SessionContext *entry = &session->contexts[i];
        if (!entry->id || (id && entry->id != id))
            continue;
        release->items[release->n].context = entry->context;
        release->items[release->n++].version = entry->version;
        *entry = (SessionContext){0};
    }
    if (release->n)
        member_release(session->member, &release->task);
    else
        free(release);
}

void session_free_stray(Member *member, Context *context, SharedVersion *version)
{
    Release *release = release_new(1);
    if (!release) {
        log_error("out of memory: a context stays until its job ends");
        return;
    }
    release->items[release->n].context = context;
    release->items[release->n++].version = version;
    member_release(member, &release->task);
}

StepAccount session_account(Session *session, float loss, int64_t samples, uint64_t compute_us)
{
    StepAccount account = {.loss = loss, .samples = (uint64_t)samples, .compute_us = compute_us};
    if (session) {
        account.bytes_in = session->bytes_in;
        account.bytes_out = session->bytes_out;
        session->bytes_in = session->bytes_out = 0;
        session->draws = 0;
    }
    return account;
}
