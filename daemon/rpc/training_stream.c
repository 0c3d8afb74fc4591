/* Train: leases go out ahead, batches come in, results follow in order; one stream is one
 * session's.
 *
 * The stream takes up to a window of batches; the next message is asked for only while there is a
 * place in it, so that a trainer that sends faster than its lane computes is held back by flow
 * control. */
#include "rpc/training_internal.h"

#include <stdlib.h>
#include <string.h>

#include "dps.pb-c.h"
#include "rpc/batch.h"
#include "rpc/pack_lease.h"

typedef struct Stream {
    Call *call; /* NULL once the stream is over */
    Services *services;
    Session *session;   /* NULL before the start message, and once the session has ended */
    unsigned under_way; /* batches given to the session */
    bool holding;       /* a message was taken and the next is not asked for yet */
    bool half_closed;
    uint64_t bytes_in; /* of the call, as far as counted for the session */
} Stream;

/* Batches under way still call back: the last of them frees. */
static void free_if_over(Stream *stream)
{
    if (!stream->call && stream->under_way == 0)
        free(stream);
}

static void let_go_of_session(Stream *stream)
{
    if (stream->session)
        session_detach_stream(stream->session);
    stream->session = NULL;
}

static void fail(Stream *stream, int r, const Error *err)
{
    let_go_of_session(stream);
    if (stream->call)
        call_fail_error(stream->call, r, err);
    stream->call = NULL;
}

static void send(Stream *stream, const Dps__V1__TrainReply *reply)
{
    uint64_t before = call_bytes_out(stream->call);
    (void)call_send(stream->call, &reply->base); /* bounded by the window */
    if (stream->session)
        session_add_bytes(stream->session, 0, call_bytes_out(stream->call) - before);
}

static void send_leases(Stream *stream)
{
    DealerBatch batch;
    uint64_t step;
    unsigned window = session_limits(stream->services->sessions)->window;
    while (session_next_lease(stream->session, window, &batch, &step) == 0) {
        Dps__V1__TrainReply reply = DPS__V1__TRAIN_REPLY__INIT;
        Dps__V1__Lease lease;
        pack_lease(&batch, step, &lease);
        reply.kind_case = DPS__V1__TRAIN_REPLY__KIND_LEASE;
        reply.lease = &lease;
        send(stream, &reply);
    }
}

static void ask_for_more(Stream *stream)
{
    unsigned window = session_limits(stream->services->sessions)->window;
    if (!stream->holding || stream->under_way >= window)
        return;
    stream->holding = false;
    call_resume(stream->call);
}

/* The client has said its last word: the stream ends when what it sent is done. The session stays,
 * and with it the place in the job, until the connection goes or Leave comes. */
static void end_if_drained(Stream *stream)
{
    if (!stream->call || !stream->half_closed || stream->under_way)
        return;
    let_go_of_session(stream);
    call_finish(stream->call);
    stream->call = NULL;
}

/* ---- from the session ------------------------------------------------------------------------ */

static void send_result(Stream *stream, const TrainResult *result)
{
    Dps__V1__TrainReply reply = DPS__V1__TRAIN_REPLY__INIT;
    Dps__V1__BatchResult message = DPS__V1__BATCH_RESULT__INIT;
    message.step = result->step;
    message.loss = result->loss;
    message.round = result->round;
    message.compute_us = result->compute_us;
    message.queue_us = result->queue_us;
    reply.kind_case = DPS__V1__TRAIN_REPLY__KIND_RESULT;
    reply.result = &message;
    send(stream, &reply);
}

static void on_trained(void *data, int r, const Error *err, const TrainResult *result)
{
    Stream *stream = data;
    stream->under_way--;
    if (stream->call && r == -ECANCELED) {
        /* the session's end says it to the client, with the reason */
    } else if (stream->call && r < 0) {
        fail(stream, r, err);
    } else if (stream->call) {
        send_result(stream, result);
        if (stream->session)
            send_leases(stream);
        ask_for_more(stream);
        end_if_drained(stream);
    }
    free_if_over(stream);
}

static void on_session_ready(void *data)
{
    send_leases(data);
}

static bool is_final(const char *reason)
{
    static const char *const final[] = {"completed", "cancelled", "failed", "left"};
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (strcmp(reason, final[i]) == 0)
            return true;
    return false;
}

static void send_done(Stream *stream, const char *reason)
{
    Dps__V1__TrainReply reply = DPS__V1__TRAIN_REPLY__INIT;
    Dps__V1__Done done = DPS__V1__DONE__INIT;
    done.reason = (char *)reason;
    reply.kind_case = DPS__V1__TRAIN_REPLY__KIND_DONE;
    reply.done = &done;
    send(stream, &reply);
    call_finish(stream->call);
}

/* Where the job itself goes on ("stopping", "restored") the trainer is to come back: UNAVAILABLE.
 */
static void on_session_end(void *data, const char *reason)
{
    Stream *stream = data;
    stream->session = NULL;
    if (stream->call && is_final(reason))
        send_done(stream, reason);
    else if (stream->call)
        call_fail(stream->call, GRPC_UNAVAILABLE, "the session has ended: %s; join again", reason);
    stream->call = NULL;
    free_if_over(stream);
}

static const StreamEvents stream_events = {.on_ready = on_session_ready, .on_end = on_session_end};

/* ---- from the client ------------------------------------------------------------------------- */

static int start(Stream *stream, const Dps__V1__TrainRequest *request, Error *err)
{
    Session *session;
    if (request->kind_case != DPS__V1__TRAIN_REQUEST__KIND_START)
        return error_set(err, -EINVAL, "the first message of Train is `start` with the session");
    int r = session_find(stream->services->sessions, request->start->session, &session, err);
    if (r == 0)
        r = session_attach_stream(session, &stream_events, stream, err);
    if (r < 0)
        return r;
    stream->session = session;
    send_leases(stream);
    return 0;
}

static int take_batch(Stream *stream, const Dps__V1__TrainRequest *request, Error *err)
{
    OwnedBatch batch;
    if (request->kind_case != DPS__V1__TRAIN_REQUEST__KIND_BATCH)
        return error_set(err, -EINVAL, "after `start` every message of Train is a `batch`");
    const Dps__V1__Batch *message = request->batch;
    uint64_t step = message->step;
    if (!message->y)
        return error_set(err, -EINVAL, "y is missing");
    const JobPlan *plan = job_plan(member_job(session_member(stream->session)));
    int r = batch_from_tensors(plan, call_steal_message(stream->call), message->x, message->y,
                               &batch, err);
    if (r < 0)
        return r;
    stream->under_way++;
    session_train(stream->session, step, &batch, on_trained, stream);
    return 0;
}

static void on_message(Call *call, const ProtobufCMessage *message, void *data)
{
    Stream *stream = data;
    const Dps__V1__TrainRequest *request = (const Dps__V1__TrainRequest *)message;
    Error err = {0};
    stream->under_way++; /* keeps the stream while session_train may call back at once */
    stream->holding = true;
    uint64_t bytes_in = call_bytes_in(call);
    if (stream->session)
        session_add_bytes(stream->session, bytes_in - stream->bytes_in, 0);
    stream->bytes_in = bytes_in;
    int r = stream->session ? take_batch(stream, request, &err) : start(stream, request, &err);
    stream->under_way--;
    if (r < 0 && stream->call)
        fail(stream, r, &err);
    if (stream->call)
        ask_for_more(stream);
    free_if_over(stream);
}

static void on_half_close(Call *call, void *data)
{
    Stream *stream = data;
    (void)call;
    stream->half_closed = true;
    end_if_drained(stream);
    free_if_over(stream);
}

static void on_cancel(void *data)
{
    Stream *stream = data;
    stream->call = NULL;
    let_go_of_session(stream);
    free_if_over(stream);
}

void training_train(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {
        .on_message = on_message, .on_half_close = on_half_close, .on_cancel = on_cancel};
    Stream *stream = calloc(1, sizeof *stream);
    (void)message;
    if (!stream) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory; try again later");
        return;
    }
    stream->call = call;
    stream->services = server;
    call_set_events(call, &events, stream);
}
