/* The calls of the PyTorch example, one by one: Forward, Backward, Step, and Discard. */
#include "rpc/training_internal.h"

#include "dps.pb-c.h"
#include "proto/tensor.h"
#include "rpc/batch.h"

/* ---- Forward --------------------------------------------------------------------------------- */

typedef struct Forward {
    Pending pending; /* first */
    int64_t samples;
    Shape output; /* of one batch */
} Forward;

static void on_forward(void *data, int r, const Error *err, uint64_t context, uint64_t version,
                       const float *output, int64_t elements)
{
    Forward *forward = data;
    Dps__V1__ForwardReply reply = DPS__V1__FORWARD_REPLY__INIT;
    Dps__V1__Tensor tensor = DPS__V1__TENSOR__INIT;
    Shape shape = shape_at_batch(&forward->output, forward->samples);
    tensor.dtype = DPS__V1__DTYPE__F32;
    tensor.dims = shape.dims;
    tensor.n_dims = (size_t)shape.ndim;
    tensor.data.data = (uint8_t *)output;
    tensor.data.len = (size_t)elements * sizeof *output;
    reply.context = context;
    reply.version = version;
    reply.output = &tensor;
    pending_reply(&forward->pending, r, err, &reply.base);
}

void training_forward(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__ForwardRequest *request = (const Dps__V1__ForwardRequest *)message;
    Session *session = call_find_session(call, server, request->session);
    if (!session)
        return;
    const JobPlan *plan = job_plan(member_job(session_member(session)));
    OwnedBatch batch;
    Error err = {0};
    int r = batch_from_tensors(plan, call_steal_message(call), request->x, NULL, &batch, &err);
    if (r < 0) {
        call_fail_error(call, r, &err);
        return;
    }
    Forward *forward = pending_new(call, server, sizeof *forward);
    if (!forward) {
        batch.release(batch.owner);
        return;
    }
    forward->samples = batch.batch.samples;
    forward->output = *graph_value_shape(plan->graph, graph_output(plan->graph));
    session_forward(session, &batch, on_forward, forward);
}

/* ---- Backward -------------------------------------------------------------------------------- */

static void on_backward(void *data, int r, const Error *err, double norm)
{
    Dps__V1__BackwardReply reply = DPS__V1__BACKWARD_REPLY__INIT;
    reply.gradient_norm = norm;
    pending_reply(data, r, err, &reply.base);
}

static bool view_gradient(Call *call, const Session *session, const Dps__V1__Tensor *tensor,
                          TensorView *ret)
{
    char problem[240], got[120], wanted[120];
    const Graph *graph = job_plan(member_job(session_member(session)))->graph;
    const Shape *output = graph_value_shape(graph, graph_output(graph));
    if (!tensor) {
        call_fail(call, GRPC_INVALID_ARGUMENT, "output_gradient is missing");
        return false;
    }
    if (!tensor_view(tensor, "output_gradient", ret, problem, sizeof problem)) {
        call_fail(call, GRPC_INVALID_ARGUMENT, "%s", problem);
        return false;
    }
    Shape shape = shape_at_batch(output, ret->ndim ? ret->dims[0] : 1);
    bool fits = ret->dtype == DPS__V1__DTYPE__F32 && ret->ndim == shape.ndim;
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = ret->dims[i] == shape.dims[i];
    if (!fits)
        call_fail(call, GRPC_INVALID_ARGUMENT,
                  "output_gradient is %s; the model's output is F32 %s",
                  tensor_format(ret, got, sizeof got), shape_format(&shape, wanted, sizeof wanted));
    return fits;
}

void training_backward(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__BackwardRequest *request = (const Dps__V1__BackwardRequest *)message;
    TensorView gradient;
    Session *session = call_find_session(call, server, request->session);
    if (!session || !view_gradient(call, session, request->output_gradient, &gradient))
        return;
    Pending *pending = pending_new(call, server, sizeof *pending);
    if (pending)
        session_backward(session, request->context, gradient.data, gradient.elements, on_backward,
                         pending);
}

/* ---- Step ------------------------------------------------------------------------------------ */

static void on_step(void *data, int r, const Error *err, const StepOutcome *outcome)
{
    Dps__V1__StepReply reply = DPS__V1__STEP_REPLY__INIT;
    if (outcome) {
        reply.step = outcome->step;
        reply.round = outcome->round;
        reply.version = outcome->version;
        reply.done = outcome->done;
    }
    pending_reply(data, r, err, &reply.base);
}

void training_step(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__StepRequest *request = (const Dps__V1__StepRequest *)message;
    Session *session = call_find_session(call, server, request->session);
    Pending *pending = session ? pending_new(call, server, sizeof *pending) : NULL;
    if (pending)
        session_step(session, request->context, request->loss, on_step, pending);
}

/* ---- Discard --------------------------------------------------------------------------------- */

static void on_discard(void *data, int r, const Error *err)
{
    Dps__V1__Empty reply = DPS__V1__EMPTY__INIT;
    pending_reply(data, r, err, &reply.base);
}

void training_discard(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__ContextRequest *request = (const Dps__V1__ContextRequest *)message;
    Session *session = call_find_session(call, server, request->session);
    Pending *pending = session ? pending_new(call, server, sizeof *pending) : NULL;
    if (pending)
        session_discard(session, request->context, on_discard, pending);
}
