/* Forward: leaves a context behind. */
#include "session/session_internal.h"

typedef struct ForwardOp {
    Op op; /* first */
    OwnedBatch batch;
    uint64_t step;
    uint32_t draw;
    float *output; /* (samples, output…) */
    int64_t elements;
    Context *context;
    uint64_t id, version;
    SessionForwarded done;
    void *data;
} ForwardOp;

static void prepare(Op *op)
{
    ForwardOp *forward = (ForwardOp *)op;
    forward->step = member_step(op->session->member);
    forward->draw = op->session->draws++;
}

static void work(Op *op)
{
    ForwardOp *forward = (ForwardOp *)op;
    Replica *replica = op->task.replica;
    forward->elements = replica_output_elements(replica, forward->batch.batch.samples);
    forward->output = calloc((size_t)forward->elements, sizeof *forward->output);
    if (!forward->output) {
        op_refuse(op, -ENOMEM, "out of memory for the output");
        return;
    }
    op->r = replica_forward(replica, &forward->batch.batch, forward->step, forward->draw,
                            forward->output, &forward->context, &op->err);
    if (op->r == 0)
        forward->version = context_version(forward->context);
}

static OpBooked book(Op *op)
{
    ForwardOp *forward = (ForwardOp *)op;
    if (op->session) {
        op->session->forwards--;
        session_add_bytes(op->session, 0, (uint64_t)forward->elements * sizeof(float));
    }
    if (forward->context)
        forward->id = session_keep_context(op, forward->context, forward->elements);
    return BOOKED;
}

static void answer(Op *op)
{
    ForwardOp *forward = (ForwardOp *)op;
    forward->done(forward->data, op->r, &op->err, forward->id, forward->version, forward->output,
                  forward->elements);
}

static void clear(Op *op)
{
    ForwardOp *forward = (ForwardOp *)op;
    free(forward->output);
    forward->batch.release(forward->batch.owner);
}

static const OpType type = {.name = "forward",
                            .takes_step = true,
                            .prepare = prepare,
                            .work = work,
                            .book = book,
                            .answer = answer,
                            .clear = clear};

static unsigned contexts_in_use(const Session *session)
{
    unsigned n = session->forwards;
    for (unsigned i = 0; i < session->table->limits.contexts; i++)
        n += session->contexts[i].id != 0;
    return n;
}

void session_forward(Session *session, OwnedBatch *batch, SessionForwarded done, void *data)
{
    Op *op;
    if (op_new(&type, sizeof(ForwardOp), &op) < 0) {
        Error err;
        batch->release(batch->owner);
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, 0, 0, NULL, 0);
        return;
    }
    ForwardOp *forward = (ForwardOp *)op;
    forward->batch = *batch;
    forward->done = done;
    forward->data = data;
    if (contexts_in_use(session) >= session->table->limits.contexts)
        op_refuse(op, -ENOBUFS,
                  "this session has %u contexts, which is the most; Step or Discard some",
                  contexts_in_use(session));
    else
        session->forwards++;
    op_submit(session, op);
}
