/* Export: the averaged parameters and buffers, tensor by tensor. */
#include "rpc/control_internal.h"

#include <stdlib.h>

#include "dps.pb-c.h"
#include "rpc/tensor_stream.h"

typedef struct Export {
    Pending pending; /* first */
    const Graph *graph;
    Snapshot *mean;
    TensorStream stream;
    int next; /* parameters first, then buffers */
} Export;

static void end(Export *export)
{
    snapshot_free(export->mean);
    free(export);
}

static const void *tensor_data(const Export *export, const ParamInfo *info, bool buffer)
{
    if (info->counter)
        return export->mean->counters + info->offset;
    return (buffer ? export->mean->buffers : export->mean->params) + info->offset;
}

static bool begin_next(Export *export)
{
    int params = graph_param_count(export->graph), i = export->next;
    if (i >= params + graph_buffer_count(export->graph))
        return false;
    bool buffer = i >= params;
    const ParamInfo *info =
        buffer ? graph_buffer(export->graph, i - params) : graph_param(export->graph, i);
    export->next++;
    tensor_stream_begin(&export->stream, info, tensor_data(export, info, buffer));
    return true;
}

static void go_on(Export *export)
{
    for (;;) {
        if (!export->stream.data && !begin_next(export))
            break;
        if (!tensor_stream_send(&export->stream, export->pending.call))
            return; /* on_writable goes on */
    }
    call_finish(export->pending.call);
    end(export);
}

static void on_writable(Call *call, void *data)
{
    Export *export = data;
    (void)call;
    if (export->mean)
        go_on(export);
}

/* While the mean is being made the callback is still to come, and frees. */
static void on_cancel(void *data)
{
    Export *export = data;
    export->pending.call = NULL;
    if (export->mean)
        end(export);
}

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    Export *export = data;
    export->mean = mean;
    if (!export->pending.call) {
        end(export);
    } else if (r < 0) {
        call_fail_error(export->pending.call, r, err);
        end(export);
    } else {
        go_on(export);
    }
}

void control_export(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_writable = on_writable, .on_cancel = on_cancel};
    const Dps__V1__ExportRequest *request = (const Dps__V1__ExportRequest *)message;
    Error err = {0};
    Job *job = call_find_job(call, server, request->job);
    if (!job)
        return;
    int r = job_prepare(job, &err);
    if (r < 0) {
        call_fail_error(call, r, &err);
        return;
    }
    Export *export = pending_new(call, server, sizeof *export);
    if (!export)
        return;
    export->graph = job_plan(job)->graph;
    call_set_events(call, &events, export);
    job_mean(job, request->checkpoint, on_mean, export);
}
