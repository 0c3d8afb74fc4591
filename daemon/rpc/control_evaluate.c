/* Evaluate: batches come in one at a time, each after the one before is through the model. What
 * comes out is answered, and recorded where the job waits for it. */
#include "rpc/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "dps.pb-c.h"
#include "job/evaluation.h"
#include "job/evaluator.h"
#include "rpc/batch.h"

typedef struct Evaluate {
    Pending pending; /* first; call is NULL once the client has given up */
    Job *job;        /* known from the first message on */
    Evaluator *evaluator;
    uint64_t checkpoint;
    char *token;      /* of one that is to be recorded; else NULL */
    OwnedBatch batch; /* of the message at hand */
    bool has_batch;
    bool half_closed, working, recording;
} Evaluate;

static void end(Evaluate *evaluate)
{
    evaluator_free(evaluate->evaluator);
    if (evaluate->has_batch)
        evaluate->batch.release(evaluate->batch.owner);
    free(evaluate->token);
    free(evaluate);
}

static void fail(Evaluate *evaluate, int r, const Error *err)
{
    call_fail_error(evaluate->pending.call, r, err);
    end(evaluate);
}

static void reply(Evaluate *evaluate)
{
    const Evaluation *total = evaluator_total(evaluate->evaluator);
    Dps__V1__EvaluateReply message = DPS__V1__EVALUATE_REPLY__INIT;
    double samples = total->samples ? (double)total->samples : 1;
    message.accuracy = (double)total->correct / samples;
    message.loss = total->loss_sum / samples;
    message.samples = (uint64_t)total->samples;
    call_reply(evaluate->pending.call, &message.base);
    end(evaluate);
}

/* The client may have gone meanwhile. */
static void on_recorded(void *data, int r, const Error *err)
{
    Evaluate *evaluate = data;
    if (!evaluate->pending.call)
        end(evaluate);
    else if (r < 0)
        fail(evaluate, r, err);
    else
        reply(evaluate);
}

/* All batches are through. */
static void finish(Evaluate *evaluate)
{
    if (!evaluate->token) {
        reply(evaluate);
        return;
    }
    evaluate->recording = true;
    job_evaluation_record(evaluate->job, evaluate->checkpoint, evaluate->token,
                          evaluator_total(evaluate->evaluator), on_recorded, evaluate);
}

static void on_run(void *data, int r, const Error *err)
{
    Evaluate *evaluate = data;
    evaluate->working = false;
    if (r < 0)
        fail(evaluate, r, err);
    else if (evaluate->half_closed)
        finish(evaluate);
    else
        call_resume(evaluate->pending.call);
}

static void run(Evaluate *evaluate)
{
    evaluate->has_batch = false; /* the evaluator's now */
    evaluator_run(evaluate->evaluator, &evaluate->batch.batch, evaluate->batch.owner,
                  evaluate->batch.release, on_run, evaluate);
}

static void on_ready(void *data, int r, const Error *err)
{
    if (r < 0)
        fail(data, r, err);
    else
        run(data);
}

/* The first message names the job. */
static bool begin(Evaluate *evaluate, const Dps__V1__EvaluateRequest *request)
{
    Error err = {0};
    evaluate->job = call_find_job(evaluate->pending.call, evaluate->pending.services, request->job);
    if (!evaluate->job) {
        end(evaluate);
        return false;
    }
    evaluate->checkpoint = request->checkpoint;
    int r = job_prepare(evaluate->job, &err);
    if (r == 0 && request->record && !(evaluate->token = strdup(request->token)))
        r = error_set(&err, -ENOMEM, "dpsd is out of memory");
    if (r < 0)
        fail(evaluate, r, &err);
    return r == 0;
}

static void on_message(Call *call, const ProtobufCMessage *message, void *data)
{
    Evaluate *evaluate = data;
    const Dps__V1__EvaluateRequest *request = (const Dps__V1__EvaluateRequest *)message;
    Error err = {0};
    if (!evaluate->job && !begin(evaluate, request))
        return;
    int r = evaluate->token
                ? job_evaluation_admit(evaluate->job, evaluate->checkpoint, evaluate->token, &err)
                : 0;
    if (r == 0)
        r = batch_from_tensors(job_plan(evaluate->job), call_steal_message(call), request->x,
                               request->y, &evaluate->batch, &err);
    if (r < 0) {
        fail(evaluate, r, &err);
        return;
    }
    evaluate->has_batch = evaluate->working = true;
    if (evaluate->evaluator) {
        run(evaluate);
        return;
    }
    r = evaluator_new(evaluate->job, evaluate->checkpoint, on_ready, evaluate,
                      &evaluate->evaluator);
    if (r < 0)
        fail(evaluate, r, (error_set(&err, r, "dpsd is out of memory"), &err));
}

static void on_half_close(Call *call, void *data)
{
    Evaluate *evaluate = data;
    evaluate->half_closed = true;
    if (evaluate->working)
        return;
    if (evaluate->evaluator) {
        finish(evaluate);
        return;
    }
    call_fail(call, GRPC_INVALID_ARGUMENT, "no batch was sent; the first message names the job");
    end(evaluate);
}

static void on_cancel(void *data)
{
    Evaluate *evaluate = data;
    evaluate->pending.call = NULL;
    if (!evaluate->recording) /* else it ends with the answer of the store */
        end(evaluate);
}

void control_evaluate(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {
        .on_message = on_message, .on_half_close = on_half_close, .on_cancel = on_cancel};
    (void)message;
    Evaluate *evaluate = pending_new(call, server, sizeof *evaluate);
    if (evaluate)
        call_set_events(call, &events, evaluate);
}
