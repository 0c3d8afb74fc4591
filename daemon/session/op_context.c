/* What is done with a context: backward, reading gradients, the step, and giving it up. */
#include "session/session_internal.h"

#include <string.h>

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct BackwardOp {
    Op op; /* first */
    uint64_t id;
    Context *context;
    float *gradient;
    int64_t elements;
    double norm;
    SessionBackwarded done;
    void *data;
} BackwardOp;

/* The dimensions behind the batch were checked where the tensor was unpacked. */
static void refuse_shape(BackwardOp *backward, const SessionContext *entry)
{
    char got[100], wanted[100];
    const Graph *graph = job_plan(member_job(backward->op.session->member))->graph;
    const Shape *output = graph_value_shape(graph, graph_output(graph));
    Shape has = shape_at_batch(output, backward->elements / shape_elements(output, 1));
    Shape wants = shape_at_batch(output, context_samples(entry->context));
    op_refuse(&backward->op, -EINVAL,
              "output_gradient is F32 %s; the output of context %llu is F32 %s",
              shape_format(&has, got, sizeof got), (unsigned long long)backward->id,
              shape_format(&wants, wanted, sizeof wanted));
}

static void backward_prepare(Op *op)
{
    BackwardOp *backward = (BackwardOp *)op;
    const SessionContext *entry = session_context(op->session, backward->id, op);
    if (!entry)
        return;
    if (entry->elements != backward->elements) {
        refuse_shape(backward, entry);
        return;
    }
    backward->context = entry->context;
}

static void backward_work(Op *op)
{
    BackwardOp *backward = (BackwardOp *)op;
    op->r = replica_backward(op->task.replica, backward->context, backward->gradient,
                             &backward->norm, &op->err);
}

static OpBooked book_nothing(Op *op)
{
    (void)op;
    return BOOKED;
}

/* Its context needs the parameters of its forward no more. */
static OpBooked backward_book(Op *op)
{
    BackwardOp *backward = (BackwardOp *)op;
    Session *session = op->session;
    for (unsigned i = 0; session && op->r == 0 && i < session->table->limits.contexts; i++) {
        SessionContext *entry = &session->contexts[i];
        if (entry->id != backward->id)
            continue;
        member_drop_version(session->member, entry->version);
        entry->version = NULL;
    }
    return BOOKED;
}

static void backward_answer(Op *op)
{
    BackwardOp *backward = (BackwardOp *)op;
    backward->done(backward->data, op->r, &op->err, backward->norm);
}

static void backward_clear(Op *op)
{
    free(((BackwardOp *)op)->gradient);
}

static const OpType backward_type = {.name = "backward",
                                     .prepare = backward_prepare,
                                     .work = backward_work,
                                     .book = backward_book,
                                     .answer = backward_answer,
                                     .clear = backward_clear};

void session_backward(Session *session, uint64_t context, const float *gradient, int64_t elements,
                      SessionBackwarded done, void *data)
{
    Op *op;
    float *copy = malloc((size_t)elements * sizeof *copy + 1);
    if (!copy || op_new(&backward_type, sizeof(BackwardOp), &op) < 0) {
        Error err;
        free(copy);
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, 0);
        return;
    }
    memcpy(copy, gradient, (size_t)elements * sizeof *copy);
    BackwardOp *backward = (BackwardOp *)op;
    backward->id = context;
    backward->gradient = copy;
    backward->elements = elements;
    backward->done = done;
    backward->data = data;
    op_submit(session, op);
}

/* ---- gradients ------------------------------------------------------------------------------- */

typedef struct GradientOp {
    Op op; /* first */
    uint64_t id;
    Context *context;
    int param;
    float *gradient;
    SessionGradient done;
    void *data;
} GradientOp;

static void gradient_prepare(Op *op)
{
    GradientOp *gradient = (GradientOp *)op;
    const SessionContext *entry = session_context(op->session, gradient->id, op);
    if (!entry)
        return;
    const Graph *graph = job_plan(member_job(op->session->member))->graph;
    size_t elements = (size_t)graph_param(graph, gradient->param)->elements;
    gradient->gradient = calloc(elements, sizeof(float));
    if (!gradient->gradient)
        op_refuse(op, -ENOMEM, "out of memory for a gradient");
    gradient->context = entry->context;
}

static void gradient_work(Op *op)
{
    GradientOp *gradient = (GradientOp *)op;
    op->r = replica_read_gradient(op->task.replica, gradient->context, gradient->param,
                                  gradient->gradient, &op->err);
}

static void gradient_answer(Op *op)
{
    GradientOp *gradient = (GradientOp *)op;
    gradient->done(gradient->data, op->r, &op->err, gradient->gradient);
}

static void gradient_clear(Op *op)
{
    free(((GradientOp *)op)->gradient);
}

static const OpType gradient_type = {.name = "gradient",
                                     .prepare = gradient_prepare,
                                     .work = gradient_work,
                                     .book = book_nothing,
                                     .answer = gradient_answer,
                                     .clear = gradient_clear};

void session_gradient(Session *session, uint64_t context, int param, SessionGradient done,
                      void *data)
{
    Op *op;
    if (op_new(&gradient_type, sizeof(GradientOp), &op) < 0) {
        Error err;
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, NULL);
        return;
    }
    GradientOp *gradient = (GradientOp *)op;
    gradient->id = context;
    gradient->param = param;
    gradient->done = done;
    gradient->data = data;
    op_submit(session, op);
}

/* ---- step ------------------------------------------------------------------------------------ */

typedef struct StepOp {
    Op op; /* first */
    uint64_t id;
    Context *context;
    float loss;
    int64_t samples; /* of the context; those that were held before are counted already */
    StepOrder order;
    StepResult result;
    bool booked;
    StepOutcome outcome;
    SessionStepped done;
    void *data;
} StepOp;

static void step_prepare(Op *op)
{
    StepOp *step = (StepOp *)op;
    Member *member = op->session->member;
    const SessionContext *entry = session_context(op->session, step->id, op);
    if (!entry)
        return;
    step->context = entry->context;
    step->samples = context_samples(entry->context);
    member_order(member, false, &step->order);
    if (member_shares(member)) { /* the gradient is that of the forward's parameters */
        step->order.version = context_version(entry->context);
        step->order.undo = NULL;
        op->r = member_check_fresh(member, step->order.version, &op->err);
    }
}

static void step_work(Op *op)
{
    StepOp *step = (StepOp *)op;
    op->r =
        step_order_context(&step->order, op->task.replica, step->context, &step->result, &op->err);
    if (!member_shares(op->task.member))
        step->outcome.version = replica_version(op->task.replica);
}

static void book_step(StepOp *step)
{
    Op *op = &step->op;
    Member *member = op->task.member;
    StepAccount account = session_account(op->session, step->loss, step->samples,
                                          clock_monotonic_us() - op->started_us);
    step->booked = true;
    step->outcome.round = member_round(member);
    (void)member_trained(member, &step->order, &step->result, &account);
    if (op->session)
        session_free_contexts(op->session, step->id);
}

/* Once it is applied, and again after the meeting: what is left to do may have changed. */
static void note_outcome(StepOp *step)
{
    Member *member = step->op.task.member;
    step->outcome.step = member_step(member);
    step->outcome.done = !member_has_step(member);
    if (member_shares(member) && !step->outcome.version)
        step->outcome.version = member_shared_version(member);
}

/* Called again after each change in the job, until the step is applied and the meeting that it led
 * to is over. */
static OpBooked step_book(Op *op)
{
    StepOp *step = (StepOp *)op;
    Member *member = op->task.member;
    if (op->r < 0 || !op->started_us)
        return BOOKED;
    if (!step->booked)
        book_step(step);
    if (member_contribution_waits(member) && op->session)
        return BOOKED_WAITS;
    if (member_contribution_waits(member)) {
        op_refuse(op, -ECANCELED, "the session has ended before its gradient was applied");
        return BOOKED;
    }
    if (member_shares(member) && (op->r = member_contribution_result(member, &op->err)) < 0)
        return BOOKED;
    note_outcome(step);
    bool met = member_round(member) != step->outcome.round;
    return op->session && !met && member_waits(member) ? BOOKED_WAITS : BOOKED;
}

static void step_answer(Op *op)
{
    StepOp *step = (StepOp *)op;
    step->done(step->data, op->r, &op->err, &step->outcome);
}

static const OpType step_type = {.name = "step",
                                 .takes_step = true,
                                 .prepare = step_prepare,
                                 .work = step_work,
                                 .book = step_book,
                                 .answer = step_answer};

void session_step(Session *session, uint64_t context, float loss, SessionStepped done, void *data)
{
    Op *op;
    if (op_new(&step_type, sizeof(StepOp), &op) < 0) {
        Error err;
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, NULL);
        return;
    }
    StepOp *step = (StepOp *)op;
    step->id = context;
    step->loss = loss;
    step->done = done;
    step->data = data;
    op_submit(session, op);
}

/* ---- discard --------------------------------------------------------------------------------- */

typedef struct DiscardOp {
    Op op; /* first */
    uint64_t id;
    SessionDone done;
    void *data;
} DiscardOp;

static void discard_prepare(Op *op)
{
    (void)session_context(op->session, ((DiscardOp *)op)->id, op);
}

static void discard_work(Op *op)
{
    (void)op; /* the context is freed by a task of its own, in order after this one */
}

static OpBooked discard_book(Op *op)
{
    if (op->session && op->r == 0)
        session_free_contexts(op->session, ((DiscardOp *)op)->id);
    return BOOKED;
}

static void discard_answer(Op *op)
{
    DiscardOp *discard = (DiscardOp *)op;
    discard->done(discard->data, op->r, &op->err);
}

static const OpType discard_type = {.name = "discard",
                                    .prepare = discard_prepare,
                                    .work = discard_work,
                                    .book = discard_book,
                                    .answer = discard_answer};

void session_discard(Session *session, uint64_t context, SessionDone done, void *data)
{
    Op *op;
    if (op_new(&discard_type, sizeof(DiscardOp), &op) < 0) {
        Error err;
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err);
        return;
    }
    DiscardOp *discard = (DiscardOp *)op;
    discard->id = context;
    discard->done = done;
    discard->data = data;
    op_submit(session, op);
}
