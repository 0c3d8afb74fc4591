/* Gradients: parameter by parameter, the next one when the client has taken the last. */
#include "rpc/training_internal.h"

#include <stdlib.h>
#include <string.h>

#include "dps.pb-c.h"
#include "rpc/tensor_stream.h"

typedef struct Gradients {
    Pending pending; /* first; id: the session */
    uint64_t context;
    const Graph *graph;
    int next;
    float *copy; /* of the gradient that is being sent */
    TensorStream stream;
    bool loading;
} Gradients;

static void end(Gradients *gradients)
{
    free(gradients->copy);
    free(gradients);
}

static void fail(Gradients *gradients, int r, const Error *err)
{
    call_fail_error(gradients->pending.call, r, err);
    end(gradients);
}

static void load_next(Gradients *gradients);

static void go_on(Gradients *gradients)
{
    if (!tensor_stream_send(&gradients->stream, gradients->pending.call))
        return; /* on_writable goes on */
    free(gradients->copy);
    gradients->copy = NULL;
    load_next(gradients);
}

static void on_gradient(void *data, int r, const Error *err, const float *gradient)
{
    Gradients *gradients = data;
    Error problem;
    gradients->loading = false;
    if (!gradients->pending.call) {
        end(gradients);
        return;
    }
    if (r < 0) {
        fail(gradients, r, err);
        return;
    }
    const ParamInfo *info = graph_param(gradients->graph, gradients->next++);
    size_t bytes = (size_t)info->elements * sizeof *gradient;
    gradients->copy = malloc(bytes);
    if (!gradients->copy) {
        fail(gradients, -ENOMEM, (error_set(&problem, -ENOMEM, "dpsd is out of memory"), &problem));
        return;
    }
    memcpy(gradients->copy, gradient, bytes);
    tensor_stream_begin(&gradients->stream, info, gradients->copy);
    go_on(gradients);
}

/* The session may have ended since the last one: it is looked up anew. */
static void load_next(Gradients *gradients)
{
    Session *session;
    Error err = {0};
    if (gradients->next >= graph_param_count(gradients->graph)) {
        call_finish(gradients->pending.call);
        end(gradients);
        return;
    }
    int r =
        session_find(gradients->pending.services->sessions, gradients->pending.id, &session, &err);
    if (r < 0) {
        fail(gradients, r, &err);
        return;
    }
    gradients->loading = true;
    session_gradient(session, gradients->context, gradients->next, on_gradient, gradients);
}

static void on_writable(Call *call, void *data)
{
    Gradients *gradients = data;
    (void)call;
    if (gradients->copy)
        go_on(gradients);
}

static void on_cancel(void *data)
{
    Gradients *gradients = data;
    gradients->pending.call = NULL;
    if (!gradients->loading)
        end(gradients);
}

void training_gradients(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_writable = on_writable, .on_cancel = on_cancel};
    const Dps__V1__ContextRequest *request = (const Dps__V1__ContextRequest *)message;
    Session *session = call_find_session(call, server, request->session);
    Gradients *gradients = session ? pending_new(call, server, sizeof *gradients) : NULL;
    if (!gradients)
        return;
    gradients->pending.id = request->session;
    gradients->context = request->context;
    gradients->graph = job_plan(member_job(session_member(session)))->graph;
    call_set_events(call, &events, gradients);
    load_next(gradients);
}
