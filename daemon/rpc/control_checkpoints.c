/* Checkpoints: taking one, listing them. */
#include "rpc/control_internal.h"

#include <stdlib.h>

#include "dps.pb-c.h"

enum {
    LIST_MAX = 2000
}; /* more than JOB_MAX_CHECKPOINT_KEEP and what may be corrupt beside them */

static void pack_checkpoint(const CheckpointRecord *record, Dps__V1__CheckpointInfo *info)
{
    dps__v1__checkpoint_info__init(info);
    info->id = record->id;
    info->job = record->job;
    info->step = record->step;
    info->round = record->round;
    info->created_unix_ms = record->created_ms;
    info->bytes = record->bytes;
    info->valid = record->valid;
    info->problem = record->problem ? record->problem : "";
    info->best = record->best;
}

static void on_checkpointed(void *data, int r, const Error *err, const CheckpointRecord *record)
{
    Dps__V1__CheckpointInfo info;
    if (r == 0)
        pack_checkpoint(record, &info);
    retry_reply(data, r, err, r == 0 ? &info.base : NULL);
}

static void attempt_checkpoint(Retry *retry)
{
    const Dps__V1__JobRequest *request = (const Dps__V1__JobRequest *)retry->message;
    job_checkpoint(manager_find(retry->pending.services->jobs, request->job), on_checkpointed,
                   retry);
}

void control_checkpoint(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__JobRequest *)message)->job))
        retry_begin(call, server, attempt_checkpoint);
}

static void on_listed(void *data, int r, const Error *err, const CheckpointRecord *records,
                      size_t n)
{
    Dps__V1__CheckpointList list = DPS__V1__CHECKPOINT_LIST__INIT;
    Error problem;
    n = n > LIST_MAX ? LIST_MAX : n;
    Dps__V1__CheckpointInfo *infos = calloc(n + 1, sizeof *infos);
    Dps__V1__CheckpointInfo **pointers = calloc(n + 1, sizeof *pointers);
    if (r == 0 && (!infos || !pointers)) {
        r = error_set(&problem, -ENOMEM, "dpsd is out of memory");
        err = &problem;
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        pack_checkpoint(&records[i], &infos[i]);
        pointers[i] = &infos[i];
    }
    list.n_checkpoints = n;
    list.checkpoints = pointers;
    pending_reply(data, r, err, &list.base);
    free(infos);
    free(pointers);
}

void control_list_checkpoints(Call *call, const ProtobufCMessage *message, void *server)
{
    Services *services = server;
    uint64_t id = ((const Dps__V1__JobRequest *)message)->job;
    if (!call_find_job(call, services, id))
        return;
    Pending *pending = pending_new(call, server, sizeof *pending);
    if (!pending)
        return;
    int r = store_checkpoints_list(services->store, id, true, on_listed, pending);
    if (r < 0) {
        Error err;
        error_set(&err, r, "dpsd is out of memory");
        pending_reply(pending, r, &err, NULL);
    }
}
