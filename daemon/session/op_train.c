/* Train: forward, loss, backward and step on one batch, in one task. */
#include "session/session_internal.h"

typedef struct TrainOp {
    Op op; /* first */
    uint64_t step, round;
    bool hold;   /* its gradient waits for the step of a later batch */
    bool booked; /* its gradient waits for the optimizer step */
    bool again;  /* it was refused as too old */
    StepOrder order;
    OwnedBatch batch;
    StepResult result;
    SessionTrained done;
    void *data;
} TrainOp;

static void prepare(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    Session *session = op->session;
    DealerBatch lease;
    member_order(session->member, train->hold, &train->order);
    train->order.rule.again = train->again;
    train->booked = false;
    train->round = member_round(session->member);
    if (train->step != member_step(session->member)) {
        op_refuse(op, -EINVAL, "this batch is for step %llu; the next step of rank %u is %llu",
                  (unsigned long long)train->step, member_rank(session->member),
                  (unsigned long long)member_step(session->member));
        return;
    }
    if (!member_own_data(session->member) &&
        member_batch(session->member, train->step, &lease) == 0 &&
        lease.samples != (uint64_t)train->batch.batch.samples)
        op_refuse(op, -EINVAL, "the batch has %lld samples; its lease has %u",
                  (long long)train->batch.batch.samples, lease.samples);
}

static void work(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    op->r = step_order_train(&train->order, op->task.replica, &train->batch.batch, &train->result,
                             &op->err);
}

/* Done, whether its session is still there or not. */
static bool book_step(TrainOp *train)
{
    Op *op = &train->op;
    StepAccount account = session_account(op->session, train->result.loss,
                                          train->batch.batch.samples, train->result.compute_us);
    train->booked = true;
    return member_trained(op->task.member, &train->order, &train->result, &account);
}

/* A gradient that was refused as too old is computed anew, on the parameters of now: the batch is
 * here. */
static OpBooked book(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    Member *member = op->task.member;
    bool done = true;
    if (op->started_us && op->r == 0 && !train->booked)
        done = book_step(train);
    else if (train->booked)
        done = !member_contribution_waits(member);
    if (!done)
        return BOOKED_WAITS;
    if (train->booked && member_shares(member) && !train->hold) {
        op->r = member_contribution_result(member, &op->err);
        if (op->r == -ESTALE) {
            op->r = 0;
            train->again = true;
            return BOOKED_AGAIN;
        }
    }
    if (op->session)
        op->session->trains--;
    return BOOKED;
}

static void answer(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    TrainResult result = {.step = train->step,
                          .round = train->round,
                          .loss = train->result.loss,
                          .compute_us = train->result.compute_us,
                          .queue_us = op->started_us - op->queued_us};
    train->done(train->data, op->r, &op->err, &result);
}

static void clear(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    train->batch.release(train->batch.owner);
}

static const OpType type = {.name = "train",
                            .takes_step = true,
                            .prepare = prepare,
                            .work = work,
                            .book = book,
                            .answer = answer,
                            .clear = clear};

void session_train(Session *session, uint64_t step, OwnedBatch *batch, bool hold,
                   SessionTrained done, void *data)
{
    Op *op;
    if (op_new(&type, sizeof(TrainOp), &op) < 0) {
        Error err;
        batch->release(batch->owner);
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, NULL);
        return;
    }
    TrainOp *train = (TrainOp *)op;
    train->step = step;
    train->batch = *batch;
    train->hold = hold;
    train->done = done;
    train->data = data;
    if (session->trains >= session->table->limits.window)
        op_refuse(op, -ENOBUFS, "%u batches are under way, which is the window", session->trains);
    else
        session->trains++;
    op_submit(session, op);
}
