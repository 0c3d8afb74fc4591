/* Submitting jobs, looking at them, changing them. */
#include "rpc/control_internal.h"

#include <stdlib.h>

#include "dps.pb-c.h"
#include "rpc/pack_status.h"
#include "rpc/unpack_spec.h"

enum { LIST_PAGE = 500 }; /* jobs in an answer: well under a message's limit */

/* Ends the Pending with the job's status, or with the error. */
static void reply_status(Pending *pending, int r, const Error *err, Job *job)
{
    PackedStatus *packed = NULL;
    Error problem;
    if (r == 0 && (r = pack_status(job, true, &packed)) < 0) {
        error_set(&problem, r, "dpsd is out of memory");
        err = &problem;
    }
    pending_reply(pending, r, err, packed ? &packed_status_message(packed)->base : NULL);
    packed_status_free(packed);
}

static void on_submitted(void *data, int r, const Error *err, Job *job)
{
    reply_status(data, r, err, job);
}

void control_submit(Call *call, const ProtobufCMessage *message, void *server)
{
    JobSpec spec;
    Error err = {0};
    int r = unpack_spec((const Dps__V1__JobSpec *)message, &spec, &err);
    if (r < 0) {
        call_fail_error(call, r, &err);
        return;
    }
    Pending *pending = pending_new(call, server, sizeof *pending);
    if (pending)
        manager_submit(pending->services->jobs, &spec, call_peer(call), on_submitted, pending);
}

void control_get(Call *call, const ProtobufCMessage *message, void *server)
{
    Job *job = call_find_job(call, server, ((const Dps__V1__JobRequest *)message)->job);
    PackedStatus *packed = NULL;
    if (!job)
        return;
    if (pack_status(job, true, &packed) < 0)
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory");
    else
        call_reply(call, &packed_status_message(packed)->base);
    packed_status_free(packed);
}

/* ---- list ------------------------------------------------------------------------------------ */

static void reply_list(Call *call, PackedStatus *const *packed, size_t n, bool more)
{
    Dps__V1__ListReply reply = DPS__V1__LIST_REPLY__INIT;
    Dps__V1__JobStatus *pointers[LIST_PAGE];
    for (size_t i = 0; i < n; i++)
        pointers[i] = (Dps__V1__JobStatus *)packed_status_message(packed[i]);
    reply.jobs = pointers;
    reply.n_jobs = n;
    reply.more = more;
    call_reply(call, &reply.base);
}

void control_list(Call *call, const ProtobufCMessage *message, void *server)
{
    Services *services = server;
    uint64_t after = ((const Dps__V1__ListRequest *)message)->after;
    PackedStatus *packed[LIST_PAGE];
    unsigned n = 0, i = 0, count = manager_count(services->jobs);
    int r = 0;
    for (; i < count && n < LIST_PAGE && r == 0; i++) {
        Job *job = manager_job(services->jobs, i);
        if (job_id(job) > after && (r = pack_status(job, false, &packed[n])) == 0)
            n++;
    }
    if (r < 0)
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory");
    else
        reply_list(call, packed, n, i < count);
    while (n > 0)
        packed_status_free(packed[--n]);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void on_changed(void *data, int r, const Error *err)
{
    Retry *retry = data;
    Job *job = manager_find(retry->pending.services->jobs, retry->pending.id);
    PackedStatus *packed = NULL;
    Error problem;
    if (r == 0 && (r = pack_status(job, true, &packed)) < 0) {
        error_set(&problem, r, "dpsd is out of memory");
        err = &problem;
    }
    retry_reply(retry, r, err, packed ? &packed_status_message(packed)->base : NULL);
    packed_status_free(packed);
}

typedef void (*JobVerb)(Job *job, const char *who, JobDone done, void *data);

static void attempt_verb(Retry *retry, JobVerb verb)
{
    const Dps__V1__JobRequest *request = (const Dps__V1__JobRequest *)retry->message;
    retry->pending.id = request->job;
    verb(manager_find(retry->pending.services->jobs, request->job), call_peer(retry->pending.call),
         on_changed, retry);
}

static void attempt_pause(Retry *retry)
{
    attempt_verb(retry, job_pause);
}

static void attempt_resume(Retry *retry)
{
    attempt_verb(retry, job_resume);
}

static void attempt_cancel(Retry *retry)
{
    attempt_verb(retry, job_cancel);
}

static void attempt_restore(Retry *retry)
{
    const Dps__V1__RestoreRequest *request = (const Dps__V1__RestoreRequest *)retry->message;
    retry->pending.id = request->job;
    job_restore(manager_find(retry->pending.services->jobs, request->job), request->checkpoint,
                call_peer(retry->pending.call), on_changed, retry);
}

void control_pause(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__JobRequest *)message)->job))
        retry_begin(call, server, attempt_pause);
}

void control_resume(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__JobRequest *)message)->job))
        retry_begin(call, server, attempt_resume);
}

void control_cancel(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__JobRequest *)message)->job))
        retry_begin(call, server, attempt_cancel);
}

void control_restore(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__RestoreRequest *)message)->job))
        retry_begin(call, server, attempt_restore);
}

/* ---- settings -------------------------------------------------------------------------------- */

enum { MAX_SETTINGS = 32 }; /* at once: there are not that many names */

static void on_updated(void *data, int r, const Error *err, uint64_t round)
{
    Dps__V1__UpdateReply reply = DPS__V1__UPDATE_REPLY__INIT;
    reply.round = round;
    retry_reply(data, r, err, &reply.base);
}

static void attempt_update(Retry *retry)
{
    const Dps__V1__UpdateRequest *request = (const Dps__V1__UpdateRequest *)retry->message;
    SettingText settings[MAX_SETTINGS];
    for (size_t i = 0; i < request->n_settings; i++)
        settings[i] = (SettingText){request->settings[i]->key, request->settings[i]->value};
    job_update(manager_find(retry->pending.services->jobs, request->job), settings,
               request->n_settings, call_peer(retry->pending.call), on_updated, retry);
}

void control_update(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__UpdateRequest *request = (const Dps__V1__UpdateRequest *)message;
    if (!call_find_job(call, server, request->job))
        return;
    if (request->n_settings > MAX_SETTINGS)
        call_fail(call, GRPC_INVALID_ARGUMENT, "%zu settings at once; the most is %d",
                  request->n_settings, MAX_SETTINGS);
    else
        retry_begin(call, server, attempt_update);
}
