/* dpsctl eval JOB --data DIR: streams a data set to the averaged model. dpsd itself runs it with --record
 * while a job trains: then it says nothing, and the server keeps what comes out. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/data/dataset.h"
#include "ctl/json.h"
#include "ctl/render/bar.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/trainer/stop.h"
#include "ctl/verbs.h"

DEFINE_CLEANUP(Dataset, dataset_free);

enum { BATCH = 256, BAR_WIDTH = 30, MAX_DIMS = DATASET_MAX_DIMS + 1 };

typedef struct Eval {
    const char *data;
    uint64_t checkpoint, parent;
    bool record;
} Eval;

static const ArgOption options_of[] = {
    {"data", 'd', ARG_STRING, offsetof(Eval, data), "DIR", "where the data set is, or 'synthetic'"},
    {"checkpoint", 0, ARG_U64, offsetof(Eval, checkpoint), "ID",
     "the model of a checkpoint (default: as it stands)"},
    {"record", 0, ARG_FLAG, offsetof(Eval, record), NULL, NULL},
    {"parent", 0, ARG_U64, offsetof(Eval, parent), "PID", NULL},
};

static const ArgSpec spec = {
    .verb = "eval",
    .positional = "JOB",
    .summary = "Measure the averaged model on a data set's test split",
    .details = "A set without a test split is used as it is, and said so.\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
    .min_positional = 1,
    .max_positional = 1,
};

/* ---- the set --------------------------------------------------------------------------------- */

static int open_set(const Eval *values, uint64_t seed, const CtlOptions *options, Dataset **ret)
{
    char problem[512], first[512];
    int r = dataset_open(values->data, DATASET_TEST, seed, ret, problem, sizeof problem);

    if (r == -ENOENT) {
        memcpy(first, problem, sizeof first);
        r = dataset_open(values->data, DATASET_TRAIN, seed, ret, problem, sizeof problem);
        if (r == 0 && !values->record)
            ctl_note("%s has no test split; measuring on what it has to train on", values->data);
        else if (r == -ENOENT)
            memcpy(problem, first, sizeof problem);
    }
    if (r == 0)
        return CTL_GO_ON;
    ctl_error(options, "DATA", "%s", problem);
    return CTL_EXIT_FAILED;
}

static int check_fit(const Dps__V1__JobStatus *job, const DatasetInfo *info,
                     const CtlOptions *options)
{
    int64_t wanted = 1, have = 1;

    for (size_t i = 0; i < job->n_input_dims; i++)
        wanted *= job->input_dims[i];
    for (int i = 0; i < info->ndim; i++)
        have *= info->dims[i];
    if (job->n_input_dims == 0 || job->n_input_dims >= MAX_DIMS || wanted == have)
        return CTL_GO_ON;
    ctl_error(options, "DATA", "a sample has %" PRId64 " values, but the model %s takes %" PRId64,
              have, job->model, wanted);
    return CTL_EXIT_FAILED;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* One batch as messages; the buffers are used again for the next. */
typedef struct Batch {
    uint64_t indices[BATCH];
    int64_t x_dims[MAX_DIMS], y_dims[MAX_DIMS];
    Dps__V1__Tensor x, y;
    Dps__V1__EvaluateRequest request;
} Batch;

static int batch_init(Batch *batch, const Dps__V1__JobStatus *job, const DatasetInfo *info)
{
    bool targets = info->label == DATASET_TARGETS;
    bool as_job = job->n_input_dims > 0 && job->n_input_dims < MAX_DIMS;
    size_t x_dims = as_job ? job->n_input_dims : (size_t)info->ndim;
    size_t y_bytes = targets ? info->target_elements * sizeof(float) : sizeof(int64_t);

    dps__v1__tensor__init(&batch->x);
    dps__v1__tensor__init(&batch->y);
    dps__v1__evaluate_request__init(&batch->request);
    batch->x.data.data = malloc(BATCH * info->sample_bytes);
    batch->y.data.data = malloc(BATCH * y_bytes);
    if (!batch->x.data.data || !batch->y.data.data)
        return -ENOMEM;
    for (size_t i = 0; i < x_dims; i++)
        batch->x_dims[i + 1] = as_job ? job->input_dims[i] : info->dims[i];
    for (int i = 0; i < info->target_ndim; i++)
        batch->y_dims[i + 1] = info->target_dims[i];
    batch->x.dims = batch->x_dims;
    batch->x.n_dims = x_dims + 1;
    batch->x.dtype = info->dtype;
    batch->y.dims = batch->y_dims;
    batch->y.n_dims = 1 + (targets ? (size_t)info->target_ndim : 0);
    batch->y.dtype = targets ? DPS__V1__DTYPE__F32 : DPS__V1__DTYPE__I64;
    batch->y.data.len = y_bytes; /* of one sample, until the first batch is read */
    batch->request.x = &batch->x;
    batch->request.y = &batch->y;
    return 0;
}

static void batch_free(Batch *batch)
{
    free(batch->x.data.data);
    free(batch->y.data.data);
}

static int batch_read(Batch *batch, Dataset *set, uint64_t first, size_t count)
{
    const DatasetInfo *info = dataset_info(set);
    bool targets = info->label == DATASET_TARGETS;

    for (size_t i = 0; i < count; i++)
        batch->indices[i] = first + i;
    batch->x_dims[0] = batch->y_dims[0] = (int64_t)count;
    batch->x.data.len = count * info->sample_bytes;
    batch->y.data.len = count * (targets ? info->target_elements * sizeof(float) : sizeof(int64_t));
    if (targets)
        return dataset_read_targets(set, batch->indices, count, batch->x.data.data,
                                    (float *)(void *)batch->y.data.data);
    return dataset_read(set, batch->indices, count, batch->x.data.data,
                        (int64_t *)(void *)batch->y.data.data);
}

/* ---- streaming ------------------------------------------------------------------------------- */

static void show_progress(const Term *term, uint64_t done, uint64_t total)
{
    if (!term->tty)
        return;
    fputs("\r\033[K", stderr);
    if (done < total) {
        size_t width = term->width > 40 ? BAR_WIDTH : 10;
        bar_print(stderr, term, (double)done / (double)total, width);
        fprintf(stderr, " %" PRIu64 "/%" PRIu64, done, total);
    }
    fflush(stderr);
}

static void on_reply(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    Dps__V1__EvaluateReply *reply = user;
    const Dps__V1__EvaluateReply *got = (const Dps__V1__EvaluateReply *)message;

    (void)stream;
    reply->accuracy = got->accuracy;
    reply->loss = got->loss;
    reply->samples = got->samples;
}

/* Sends all batches; stops early where the server has ended the call. */
static int send_all(Request *request, ClientStream *stream, Batch *batch, Dataset *set)
{
    uint64_t total = dataset_info(set)->samples;
    Term term = term_of(stderr);
    int r = 0;

    if (batch->request.record)
        term.tty = false; /* it is dpsd's */
    for (uint64_t done = 0; done < total && r == 0;) {
        size_t count = total - done < BATCH ? (size_t)(total - done) : BATCH;
        r = batch_read(batch, set, done, count);
        if (r == 0)
            r = client_stream_send_wait(stream, &batch->request.base);
        if (r == 0)
            client_run_once(request->client, 0);
        batch->request.job = 0; /* only the first names it */
        done += count;
        show_progress(&term, done, total);
    }
    show_progress(&term, total, total);
    client_stream_close_send(stream);
    return r == -EPIPE ? 0 : r; /* how it ended says more */
}

static int evaluate(Request *request, Batch *batch, Dataset *set, Dps__V1__EvaluateReply *reply)
{
    static const ClientStreamHandler handler = {.on_message = on_reply};
    ClientStream *stream = NULL;
    ClientStatus status;
    int r = client_stream_open(request->client, &dps__v1__control__descriptor, "Evaluate",
                               REQUEST_LONG_MS, &handler, reply, &stream);

    if (r == 0)
        r = send_all(request, stream, batch, set);
    if (r < 0) {
        client_stream_free(stream);
        ctl_error(&request->options, "FAILED", "cannot send the data set: %s", strerror(-r));
        return r == -ENOTCONN ? CTL_EXIT_UNREACHABLE : CTL_EXIT_FAILED;
    }
    r = client_stream_wait(stream, &status);
    client_stream_free(stream);
    return r == 0 ? CTL_GO_ON : ctl_report_status(&request->options, &status);
}

/* The server reads them in the first message. */
static void fill_first(const Request *request, const Eval *values,
                       Dps__V1__EvaluateRequest *message)
{
    const char *token = getenv("DPS_EVALUATION_TOKEN");

    message->job = request->job;
    message->checkpoint = values->checkpoint;
    message->record = values->record;
    message->token = (char *)(values->record && token ? token : "");
}

static int evaluate_set(Request *request, const Eval *values, const Dps__V1__JobStatus *job,
                        Dataset *set, Dps__V1__EvaluateReply *reply)
{
    Batch batch = {0};
    int r = check_fit(job, dataset_info(set), &request->options);

    if (r != CTL_GO_ON)
        return r;
    r = batch_init(&batch, job, dataset_info(set));
    if (r < 0) {
        ctl_error(&request->options, "MEMORY", "out of memory");
        r = CTL_EXIT_FAILED;
    } else {
        fill_first(request, values, &batch.request);
        r = evaluate(request, &batch, set, reply);
    }
    batch_free(&batch);
    return r;
}

static int check_usage(const Eval *values, const CtlOptions *options)
{
    if (values->data)
        return CTL_GO_ON;
    ctl_error(options, "USAGE", "--data is missing: a directory, or 'synthetic'");
    return CTL_EXIT_USAGE;
}

static int print_reply(const Request *request, const Dps__V1__EvaluateReply *reply)
{
    char loss[UNITS_SIZE];

    if (request->options.json)
        return request_printed(request, json_print(json_evaluation(reply)));
    printf("accuracy %.4f  loss %s  samples %" PRIu64 "\n", reply->accuracy,
           units_loss(reply->loss, loss), reply->samples);
    return request_printed(request, 0);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__JobStatus *job = NULL;
    _cleanup_(dataset_freep) Dataset *set = NULL;
    Dps__V1__EvaluateReply reply = DPS__V1__EVALUATE_REPLY__INIT;
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    Eval values = {0};
    int r = request_parse(&spec, argc, argv, &values, options, &request);

    if (r == CTL_GO_ON)
        r = check_usage(&values, &request.options);
    if (r == CTL_GO_ON && values.parent > 0 && !stop_with_parent((int)values.parent))
        r = CTL_EXIT_FAILED; /* whoever would read why is gone */
    if (r == CTL_GO_ON)
        r = request_connect_job(&request);
    message.job = request.job;
    if (r == CTL_GO_ON)
        r = request_call(&request, "Get", &message.base, REQUEST_MS, &job);
    if (r == CTL_GO_ON)
        r = open_set(&values, job->seed, &request.options, &set);
    if (r == CTL_GO_ON)
        r = evaluate_set(&request, &values, job, set, &reply);
    if (r == CTL_EXIT_NO_JOB && job) /* NOT_FOUND was said of the checkpoint */
        return CTL_EXIT_FAILED;
    if (r == CTL_GO_ON && values.record)
        return CTL_EXIT_DONE;
    return r == CTL_GO_ON ? print_reply(&request, &reply) : r;
}

const Verb verb_eval = {&spec, run};
