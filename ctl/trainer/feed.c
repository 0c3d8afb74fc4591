#include "ctl/trainer/feed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ctl/trainer/feeder.h"
#include "ctl/trainer/stop.h"
#include "dps.pb-c.h"

/* A batch that was sent and is not answered. */
typedef struct UnderWay {
    uint64_t step, epoch;
    uint32_t samples;
} UnderWay;

typedef struct Feed {
    Client *client;
    ClientStream *stream;
    const Fit *fit;
    Feeder *feeder;
    Progress *progress;
    UnderWay under_way[FIT_MAX_WINDOW]; /* a ring */
    uint64_t sent, answered;
    bool over;
    FeedOutcome *outcome;
} Feed;

/* The first end counts. */
static void finish(Feed *f, FeedEnd end)
{
    if (f->over)
        return;
    f->over = true;
    f->outcome->end = end;
}

/* The same with a status; returns where its sentence goes, CLIENT_MESSAGE_SIZE bytes. */
static char *finish_with(Feed *f, FeedEnd end, GrpcStatus code)
{
    finish(f, end);
    f->outcome->status = (ClientStatus){.code = code};
    return f->outcome->status.message;
}

/* ---- out ------------------------------------------------------------------------------------- */

/* 0 or what client_stream_send says. */
static int send_batch(Feed *f, const FeederBatch *batch)
{
    Dps__V1__Tensor x = DPS__V1__TENSOR__INIT, y = DPS__V1__TENSOR__INIT;
    Dps__V1__Batch message = DPS__V1__BATCH__INIT;
    Dps__V1__TrainRequest request = DPS__V1__TRAIN_REQUEST__INIT;
    int64_t x_dims[FIT_MAX_DIMS + 1] = {(int64_t)batch->samples};
    int64_t y_dims[FIT_MAX_DIMS + 1] = {(int64_t)batch->samples};

    memcpy(x_dims + 1, f->fit->dims, sizeof(f->fit->dims));
    memcpy(y_dims + 1, f->fit->target_dims, sizeof(f->fit->target_dims));
    x.dtype = f->fit->x_dtype;
    x.dims = x_dims;
    x.n_dims = (size_t)f->fit->ndim + 1;
    x.data = (ProtobufCBinaryData){.data = batch->x, .len = batch->x_bytes};
    y.dtype = f->fit->y_dtype;
    y.dims = y_dims;
    y.n_dims = (size_t)f->fit->target_ndim + 1;
    y.data = (ProtobufCBinaryData){.data = batch->y, .len = batch->y_bytes};
    message.step = batch->step;
    message.x = &x;
    message.y = &y;
    request.kind_case = DPS__V1__TRAIN_REQUEST__KIND_BATCH;
    request.batch = &message;
    return client_stream_send(f->stream, &request.base);
}

/* Sends what was read, as far as the window and the stream's queue allow. */
static void pump(Feed *f)
{
    const FeederBatch *batch;

    while (!f->over && f->sent - f->answered < f->fit->window &&
           (batch = feeder_front(f->feeder)) != NULL) {
        int r;

        if (batch->error < 0) {
            snprintf(finish_with(f, FEED_WRONG, GRPC_FAILED_PRECONDITION), CLIENT_MESSAGE_SIZE,
                     "%s", batch->problem);
            return;
        }
        r = send_batch(f, batch);
        if (r == -EPIPE || r == -EAGAIN) /* on_end and on_writable tell */
            return;
        if (r < 0) {
            snprintf(finish_with(f, FEED_WRONG, GRPC_RESOURCE_EXHAUSTED), CLIENT_MESSAGE_SIZE,
                     "no memory for a batch");
            return;
        }
        f->under_way[f->sent++ % FIT_MAX_WINDOW] =
            (UnderWay){batch->step, batch->epoch, (uint32_t)batch->samples};
        feeder_pop(f->feeder);
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

static void on_lease(Feed *f, const Dps__V1__Lease *lease)
{
    int r = feeder_push(f->feeder, lease->step, lease->epoch, lease->indices, lease->n_indices);

    if (r == -EMSGSIZE)
        snprintf(finish_with(f, FEED_WRONG, GRPC_FAILED_PRECONDITION), CLIENT_MESSAGE_SIZE,
                 "the server leased %zu samples for step %" PRIu64 ", where a batch has 1 to "
                 "%" PRIu32,
                 lease->n_indices, lease->step, f->fit->batch);
    else if (r < 0)
        snprintf(finish_with(f, FEED_WRONG, GRPC_RESOURCE_EXHAUSTED), CLIENT_MESSAGE_SIZE,
                 "the server sends leases further ahead than %zu batches",
                 FEEDER_LEASES(f->fit->window));
}

static void on_result(Feed *f, const Dps__V1__BatchResult *result)
{
    const UnderWay *first = &f->under_way[f->answered % FIT_MAX_WINDOW];

    if (f->answered == f->sent || first->step != result->step) {
        snprintf(finish_with(f, FEED_ENDED, GRPC_INTERNAL), CLIENT_MESSAGE_SIZE,
                 "the server answered step %" PRIu64 ", which is not the next in line",
                 result->step);
        return;
    }
    f->answered++;
    f->outcome->steps++;
    f->progress->epoch = first->epoch;
    f->progress->round = result->round;
    progress_result(f->progress, result->loss, first->samples);
    pump(f);
}

static void on_done(Feed *f, const Dps__V1__Done *done)
{
    snprintf(f->outcome->reason, sizeof(f->outcome->reason), "%s", done->reason);
    finish(f, FEED_DONE);
}

static void on_message(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    const Dps__V1__TrainReply *reply = (const Dps__V1__TrainReply *)message;

    (void)stream;
    if (((Feed *)user)->over) /* what came with the end is not looked at any more */
        return;
    switch (reply->kind_case) {
    case DPS__V1__TRAIN_REPLY__KIND_LEASE:
        on_lease(user, reply->lease);
        break;
    case DPS__V1__TRAIN_REPLY__KIND_RESULT:
        on_result(user, reply->result);
        break;
    case DPS__V1__TRAIN_REPLY__KIND_DONE:
        on_done(user, reply->done);
        break;
    default: /* of a later version of the contract */
        break;
    }
}

static void on_writable(ClientStream *stream, void *user)
{
    (void)stream;
    pump(user);
}

static void on_end(ClientStream *stream, const ClientStatus *status, void *user)
{
    Feed *f = user;

    (void)stream;
    if (f->over)
        return;
    finish(f, FEED_ENDED);
    f->outcome->status = *status;
    if (status->code == GRPC_OK)
        snprintf(f->outcome->status.message, sizeof(f->outcome->status.message),
                 "the server closed the stream");
}

static const ClientStreamHandler handler = {
    .on_message = on_message,
    .on_writable = on_writable,
    .on_end = on_end,
};

/* ---- running --------------------------------------------------------------------------------- */

static void on_batch_read(int fd, void *user)
{
    Feed *f = user;

    (void)fd;
    feeder_clear(f->feeder);
    pump(f);
}

static void on_stop(int fd, void *user)
{
    (void)fd;
    finish(user, FEED_STOPPED);
}

static int start_stream(Feed *f, uint64_t session)
{
    Dps__V1__TrainStart start = DPS__V1__TRAIN_START__INIT;
    Dps__V1__TrainRequest request = DPS__V1__TRAIN_REQUEST__INIT;
    int r = client_stream_open(f->client, &dps__v1__training__descriptor, "Train", -1, &handler, f,
                               &f->stream);

    if (r < 0)
        return r;
    start.session = session;
    request.kind_case = DPS__V1__TRAIN_REQUEST__KIND_START;
    request.start = &start;
    return client_stream_send(f->stream, &request.base);
}

static void run(Feed *f, uint64_t session)
{
    int r = start_stream(f, session);

    if (r == 0)
        r = client_watch_fd(f->client, feeder_fd(f->feeder), on_batch_read, f);
    if (r == 0)
        r = client_watch_fd(f->client, stop_fd(), on_stop, f);
    while (r == 0 && !f->over)
        r = client_run_once(f->client, -1);
    if (!f->over) {
        snprintf(finish_with(f, FEED_ENDED, GRPC_UNAVAILABLE), CLIENT_MESSAGE_SIZE, "%s",
                 client_problem(f->client) ? client_problem(f->client) : strerror(-r));
        f->outcome->status.lost = !client_is_connected(f->client);
    }
}

void feed_run(Client *client, uint64_t session, Dataset *dataset, const Fit *fit,
              Progress *progress, FeedOutcome *ret)
{
    Feed f = {.client = client, .fit = fit, .progress = progress, .outcome = ret};

    *ret = (FeedOutcome){0};
    if (feeder_new(dataset, fit, &f.feeder) < 0) {
        snprintf(finish_with(&f, FEED_WRONG, GRPC_RESOURCE_EXHAUSTED), CLIENT_MESSAGE_SIZE,
                 "no memory for %" PRIu32 " batches to be read ahead", fit->window);
        return;
    }
    run(&f, session);
    client_stream_free(f.stream);
    client_unwatch_fd(client, stop_fd());
    client_unwatch_fd(client, feeder_fd(f.feeder));
    feeder_free(f.feeder);
}
