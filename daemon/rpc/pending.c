#include "rpc/pending.h"

#include <stdlib.h>

static void on_cancel(void *data)
{
    ((Pending *)data)->call = NULL;
}

void *pending_new(Call *call, void *server, size_t size)
{
    static const CallEvents events = {.on_cancel = on_cancel};
    Pending *pending = calloc(1, size);
    if (!pending) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory; try again later");
        return NULL;
    }
    pending->call = call;
    pending->services = server;
    call_set_events(call, &events, pending);
    return pending;
}

void pending_reply(Pending *pending, int r, const Error *err, const ProtobufCMessage *message)
{
    if (pending->call && r < 0)
        call_fail_error(pending->call, r, err);
    else if (pending->call)
        call_reply(pending->call, message);
    free(pending);
}

Job *call_find_job(Call *call, Services *services, uint64_t id)
{
    Job *job = manager_find(services->jobs, id);
    if (!job)
        call_fail(call, GRPC_NOT_FOUND, "there is no job %llu; `dpsctl list` shows all",
                  (unsigned long long)id);
    return job;
}

Session *call_find_session(Call *call, Services *services, uint64_t id)
{
    Error err = {0};
    Session *session = NULL;
    int r = session_find(services->sessions, id, &session, &err);
    if (r < 0)
        call_fail_error(call, r, &err);
    return r < 0 ? NULL : session;
}
