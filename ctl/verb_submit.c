/* dpsctl submit: from options to a JobSpec. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ctl/data/dataset.h"
#include "ctl/json.h"
#include "ctl/request.h"
#include "ctl/settings.h"
#include "ctl/verbs.h"
#include "ctl/watch.h"

typedef struct Submit {
    const char *model, *data, *name, *sync, *optimizer, *loss, *device, *backend;
    uint32_t trainers, interval, epochs, batch, threads, checkpoint_rounds, checkpoint_keep;
    uint64_t steps, seed, samples;
    float lr;
    bool external_trainers, watch;
    ArgList model_options;
} Submit;

#define SUBMIT(member) offsetof(Submit, member)

static const ArgOption options_of[] = {
    {"model", 'm', ARG_STRING, SUBMIT(model), "NAME", "mnist-cnn, mlp or resnet-small"},
    {"data", 'd', ARG_STRING, SUBMIT(data), "DIR",
     "where the data set is, or 'synthetic': drawn digits"},
    {"trainers", 'n', ARG_U32, SUBMIT(trainers), "N", "how many feed the job (default 1)"},
    {"sync", 0, ARG_STRING, SUBMIT(sync), "POLICY", "how replicas meet: average (the default)"},
    {"interval", 'k', ARG_U32, SUBMIT(interval), "K", "steps between meetings (default 25)"},
    {"epochs", 'e', ARG_U32, SUBMIT(epochs), "E", "how often the set is dealt out (default 1)"},
    {"steps", 's', ARG_U64, SUBMIT(steps), "S",
     "batches that each trainer feeds, instead of --epochs"},
    {"batch", 'b', ARG_U32, SUBMIT(batch), "B", "samples in a batch (default 32)"},
    {"lr", 0, ARG_FLOAT, SUBMIT(lr), "X", "learning rate (default: the model's)"},
    {"optimizer", 0, ARG_STRING, SUBMIT(optimizer), "TEXT",
     "sgd, adam or adamw, such as sgd,momentum=0.9"},
    {"loss", 0, ARG_STRING, SUBMIT(loss), "NAME",
     "nll, cross-entropy or mse (default: the model's)"},
    {"seed", 0, ARG_U64, SUBMIT(seed), "S", "of all that is random (default 0)"},
    {"device", 0, ARG_STRING, SUBMIT(device), "D", "auto, cpu or cpu:N (default auto)"},
    {"backend", 0, ARG_STRING, SUBMIT(backend), "NAME", "onednn or ref (default: the best)"},
    {"threads", 0, ARG_U32, SUBMIT(threads), "T", "of each lane (default 1)"},
    {"checkpoint-rounds", 0, ARG_U32, SUBMIT(checkpoint_rounds), "R",
     "rounds between checkpoints (default: the daemon's)"},
    {"checkpoint-keep", 0, ARG_U32, SUBMIT(checkpoint_keep), "N",
     "checkpoints to keep (default: the daemon's)"},
    {"name", 0, ARG_STRING, SUBMIT(name), "NAME", "of the job (default: the model's)"},
    {"option", 'o', ARG_LIST, SUBMIT(model_options), "KEY=VALUE",
     "of the model, such as dropout=0; may be repeated"},
    {"external-trainers", 0, ARG_FLAG, SUBMIT(external_trainers), NULL,
     "dpsd starts no trainers; they come by themselves"},
    {"samples", 0, ARG_U64, SUBMIT(samples), "N", "that external trainers share, without --data"},
    {"watch", 'w', ARG_FLAG, SUBMIT(watch), NULL, "then watch the job until it ends"},
};

static const ArgSpec spec = {
    .verb = "submit",
    .positional = "",
    .summary = "Start a job, and print its number",
    .details =
        "DIR holds MNIST-style IDX files (plain or gzipped) or train.npz with x and y; a FILE.npz\n"
        "serves too. With --watch the exit status is that of dpsctl watch.\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
};

/* ---- checks ---------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);

    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

static const char *usage_problem(const Submit *values)
{
    if (!values->model)
        return "--model is missing: mnist-cnn, mlp or resnet-small";
    if (values->epochs && values->steps)
        return "--epochs and --steps exclude each other";
    if (!values->data && !values->external_trainers)
        return "--data is missing: a directory, or 'synthetic'";
    if (values->samples && values->data)
        return "--samples is for external trainers without --data";
    return NULL;
}

static int check(const Submit *values, const CtlOptions *options)
{
    const char *problem = usage_problem(values);

    if (problem) {
        ctl_error(options, "USAGE", "%s", problem);
        return CTL_EXIT_USAGE;
    }
    if (ends_with(values->model, ".onnx")) {
        ctl_error(options, "UNIMPLEMENTED",
                  "cannot submit %s: ONNX import is not in this version; --model takes mnist-cnn, "
                  "mlp or resnet-small",
                  values->model);
        return CTL_EXIT_FAILED;
    }
    return CTL_GO_ON;
}

/* ---- data ------------------------------------------------------------------------------------ */

static bool is_synthetic(const char *data)
{
    return strcmp(data, "synthetic") == 0 || strncmp(data, "synthetic:", 10) == 0;
}

/* Reads the set's header, so that a wrong path or file is told before there is a job. *ret_path is
 * the caller's: absolute, since trainers run elsewhere. */
static int read_data(const Submit *values, const CtlOptions *options, char **ret_path,
                     uint64_t *ret_samples)
{
    _cleanup_free_ char *path = NULL;
    char problem[512];
    Dataset *set;
    int r;

    path = is_synthetic(values->data) ? strdup(values->data) : realpath(values->data, NULL);
    if (!path) {
        ctl_error(options, "DATA", "cannot read the data set %s: %s", values->data,
                  strerror(errno));
        return CTL_EXIT_FAILED;
    }
    r = dataset_open(path, DATASET_TRAIN, values->seed, &set, problem, sizeof problem);
    if (r < 0) {
        ctl_error(options, "DATA", "%s", problem);
        return CTL_EXIT_FAILED;
    }
    *ret_samples = dataset_info(set)->samples;
    dataset_free(set);
    *ret_path = MOVE(path);
    return CTL_GO_ON;
}

/* ---- the call -------------------------------------------------------------------------------- */

static char *text_or_empty(const char *text)
{
    return (char *)(text ? text : "");
}

static void fill(const Submit *values, Dps__V1__JobSpec *job)
{
    job->name = text_or_empty(values->name);
    job->model = text_or_empty(values->model);
    job->trainers = values->trainers;
    job->external_trainers = values->external_trainers;
    job->policy = text_or_empty(values->sync);
    job->interval = values->interval;
    job->epochs = values->epochs;
    job->steps = values->steps;
    job->batch = values->batch;
    job->optimizer = text_or_empty(values->optimizer);
    job->lr = values->lr;
    job->loss = text_or_empty(values->loss);
    job->seed = values->seed;
    job->device = text_or_empty(values->device);
    job->threads = values->threads;
    job->checkpoint_rounds = values->checkpoint_rounds;
    job->checkpoint_keep = values->checkpoint_keep;
    job->backend = text_or_empty(values->backend);
}

static int print_number(Request *request, uint64_t job)
{
    if (request->options.json) {
        cJSON *object = cJSON_CreateObject();
        json_add_u64(object, "id", job);
        return request_printed(request, json_print(object));
    }
    printf("%" PRIu64 "\n", job);
    return request_printed(request, 0);
}

static int submit(Request *request, const Submit *values, Dps__V1__JobSpec *job)
{
    _cleanup_(message_freep) Dps__V1__JobStatus *status = NULL;
    int r = ctl_connect(&request->options, &request->client);

    if (r != CTL_EXIT_DONE)
        return r;
    r = request_call(request, "Submit", &job->base, REQUEST_MS, &status);
    if (r == CTL_EXIT_NO_JOB) /* NOT_FOUND was said of a model, a policy or a device */
        return CTL_EXIT_FAILED;
    if (r != CTL_GO_ON)
        return r;
    request->job = status->id;
    r = print_number(request, status->id);
    return r == CTL_EXIT_DONE && values->watch ? watch_job(request) : r;
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_free_ char *path = NULL;
    Dps__V1__JobSpec job = DPS__V1__JOB_SPEC__INIT;
    Dps__V1__JobSpec__OptionsEntry entries[SETTINGS_MAX], *pointers[SETTINGS_MAX];
    Submit values = {0};
    Settings settings;
    char problem[256];
    int r = request_parse(&spec, argc, argv, &values, options, &request);

    if (r == CTL_GO_ON)
        r = check(&values, &request.options);
    if (r != CTL_GO_ON)
        return r;
    if (settings_parse(values.model_options.items, values.model_options.count, &settings, problem,
                       sizeof problem) < 0) {
        ctl_error(&request.options, "USAGE", "--option: %s", problem);
        return CTL_EXIT_USAGE;
    }
    job.samples = values.samples;
    if (values.data)
        r = read_data(&values, &request.options, &path, &job.samples);
    if (r != CTL_GO_ON)
        return r;
    fill(&values, &job);
    job.data = text_or_empty(path);
    for (size_t i = 0; i < settings.count; i++) {
        dps__v1__job_spec__options_entry__init(&entries[i]);
        entries[i].key = settings.keys[i];
        entries[i].value = settings.values[i];
        pointers[i] = &entries[i];
    }
    job.options = pointers;
    job.n_options = settings.count;
    return submit(&request, &values, &job);
}

const Verb verb_submit = {&spec, run};
