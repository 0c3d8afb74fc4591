/* Train: forward, loss, backward and step on one batch, in one task. */
#include "session/session_internal.h"

typedef struct TrainOp {
    Op op; /* first */
    uint64_t step, round;
    float lr;
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
    train->lr = member_lr(session->member);
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
    StepRule rule = {.lr = train->lr};
    op->r = replica_train(op->task.replica, &train->batch.batch, train->step, &rule, &train->result,
                          &op->err);
}

static bool book(Op *op)
{
    TrainOp *train = (TrainOp *)op;
    Session *session = op->session;
    if (session)
        session->trains--;
    if (op->started_us && op->r == 0) { /* done, whether its session is still there or not */
        StepAccount account = session_account(session, train->result.loss,
                                              train->batch.batch.samples, train->result.compute_us);
        member_step_done(op->task.member, &account);
    }
    return true;
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

void session_train(Session *session, uint64_t step, OwnedBatch *batch, SessionTrained done,
                   void *data)
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
    train->done = done;
    train->data = data;
    if (session->trains >= session->table->limits.window)
        op_refuse(op, -ENOBUFS, "%u batches are under way, which is the window", session->trains);
    else
        session->trains++;
    op_submit(session, op);
}
