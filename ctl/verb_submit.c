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
    const char *eval_data, *stop_when;
    /* initial values of settings, as text: dpsd checks them */
    const char *alpha, *outer_lr, *outer_momentum, *max_staleness, *on_stale, *weights, *wait;
    const char *sync_timeout, *schedule, *clip, *guard_norm, *guard_strikes, *eval_every;
    uint32_t trainers, interval, epochs, batch, threads, checkpoint_rounds, checkpoint_keep;
    uint32_t max_trainers, accumulate;
    uint64_t steps, seed, samples;
    float lr;
    bool external_trainers, watch;
    ArgList model_options, settings;
} Submit;

#define SUBMIT(member) offsetof(Submit, member)

static const ArgOption options_of[] = {
    {"model", 'm', ARG_STRING, SUBMIT(model), "NAME", "mnist-cnn, mlp or resnet-small"},
    {"data", 'd', ARG_STRING, SUBMIT(data), "DIR",
     "where the data set is, or 'synthetic': drawn digits"},
    {"trainers", 'n', ARG_U32, SUBMIT(trainers), "N", "how many feed the job (default 1)"},
    {"max-trainers", 0, ARG_U32, SUBMIT(max_trainers), "N", "room to grow to (default --trainers)"},
    {"sync", 0, ARG_STRING, SUBMIT(sync), "POLICY",
     "average (default), average-async, barrier, async, elastic or diloco"},
    {"interval", 'k', ARG_U32, SUBMIT(interval), "K", "steps between meetings (default 25)"},
    {"weights", 0, ARG_STRING, SUBMIT(weights), "W", "of replicas in a mean: uniform or samples"},
    {"wait", 0, ARG_STRING, SUBMIT(wait), "WHOM", "a meeting waits for: all, or quorum:Q"},
    {"sync-timeout", 0, ARG_STRING, SUBMIT(sync_timeout), "S",
     "seconds for the rest, once the quorum is there (default 10)"},
    {"max-staleness", 0, ARG_STRING, SUBMIT(max_staleness), "S",
     "versions a gradient may be behind (async; default 64)"},
    {"on-stale", 0, ARG_STRING, SUBMIT(on_stale), "HOW", "older ones: reject or apply (async)"},
    {"alpha", 0, ARG_STRING, SUBMIT(alpha), "X",
     "pull to the centre (elastic; default 0.9 / trainers)"},
    {"outer-lr", 0, ARG_STRING, SUBMIT(outer_lr), "X", "of the outer step (diloco; default 0.7)"},
    {"outer-momentum", 0, ARG_STRING, SUBMIT(outer_momentum), "X",
     "of the outer step (diloco; default 0.9)"},
    {"epochs", 'e', ARG_U32, SUBMIT(epochs), "E", "how often the set is dealt out (default 1)"},
    {"steps", 's', ARG_U64, SUBMIT(steps), "S",
     "batches that each trainer feeds, instead of --epochs"},
    {"batch", 'b', ARG_U32, SUBMIT(batch), "B", "samples in a batch (default 32)"},
    {"accumulate", 0, ARG_U32, SUBMIT(accumulate), "A",
     "batches whose gradients make one step (default 1)"},
    {"lr", 0, ARG_FLOAT, SUBMIT(lr), "X", "learning rate (default: the model's)"},
    {"optimizer", 0, ARG_STRING, SUBMIT(optimizer), "TEXT",
     "sgd, adam or adamw, such as sgd,momentum=0.9"},
    {"schedule", 0, ARG_STRING, SUBMIT(schedule), "TEXT",
     "such as cosine,steps=1000,warmup=50 (default constant)"},
    {"clip", 0, ARG_STRING, SUBMIT(clip), "X", "largest norm of a gradient (default: any)"},
    {"guard-norm", 0, ARG_STRING, SUBMIT(guard_norm), "X",
     "times the median norm, above which a gradient is left out"},
    {"guard-strikes", 0, ARG_STRING, SUBMIT(guard_strikes), "N",
     "left out so often in a row, the job pauses (default 3)"},
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
    {"eval-every", 0, ARG_STRING, SUBMIT(eval_every), "R", "rounds between evaluations"},
    {"eval-data", 0, ARG_STRING, SUBMIT(eval_data), "DIR", "held-out data, or 'synthetic'"},
    {"stop-when", 0, ARG_STRING, SUBMIT(stop_when), "TEXT",
     "an evaluation ends the job, such as \"accuracy>=0.98\""},
    {"name", 0, ARG_STRING, SUBMIT(name), "NAME", "of the job (default: the model's)"},
    {"option", 'o', ARG_LIST, SUBMIT(model_options), "KEY=VALUE",
     "of the model, such as dropout=0; may be repeated"},
    {"set", 0, ARG_LIST, SUBMIT(settings), "KEY=VALUE",
     "initial value of what dpsctl set changes; may be repeated"},
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
        "serves too; of --eval-data the test set is read. dpsctl set --help explains the "
        "settings.\n"
        "With --watch the exit status is that of dpsctl watch.\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
};

/* ---- settings -------------------------------------------------------------------------------- */

typedef struct SettingFlag {
    const char *key;
    size_t offset; /* of the text in Submit; NULL there: not given */
} SettingFlag;

static const SettingFlag setting_flags[] = {
    {"sync.weights", SUBMIT(weights)},        {"sync.wait", SUBMIT(wait)},
    {"sync.timeout", SUBMIT(sync_timeout)},   {"sync.max_staleness", SUBMIT(max_staleness)},
    {"sync.on_stale", SUBMIT(on_stale)},      {"sync.alpha", SUBMIT(alpha)},
    {"sync.outer_lr", SUBMIT(outer_lr)},      {"sync.outer_momentum", SUBMIT(outer_momentum)},
    {"optimizer.schedule", SUBMIT(schedule)}, {"optimizer.clip", SUBMIT(clip)},
    {"guard.norm", SUBMIT(guard_norm)},       {"guard.strikes", SUBMIT(guard_strikes)},
    {"eval.every", SUBMIT(eval_every)},
};

/* Settings whose initial value is a field of the spec. */
typedef struct SettingField {
    const char *key, *flag;
    bool given;
} SettingField;

static int check_fields(const Submit *values, const Settings *settings, char *problem, size_t size)
{
    const SettingField fields[] = {
        {"sync.policy", "sync", values->sync},
        {"sync.interval", "interval", values->interval},
        {"optimizer.lr", "lr", values->lr > 0},
        {"trainers", "trainers", values->trainers},
        {"checkpoint.rounds", "checkpoint-rounds", values->checkpoint_rounds},
        {"checkpoint.keep", "checkpoint-keep", values->checkpoint_keep},
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].given || !settings_has(settings, fields[i].key))
            continue;
        snprintf(problem, size, "'%s' is --%s, which is given, too", fields[i].key, fields[i].flag);
        return -EINVAL;
    }
    return 0;
}

/* --set and the flags that stand for settings. */
static int collect_settings(const Submit *values, Settings *ret, char *problem, size_t size)
{
    int r = settings_parse(values->settings.items, values->settings.count, ret, problem, size);

    for (size_t i = 0; r == 0 && i < sizeof setting_flags / sizeof *setting_flags; i++) {
        const SettingFlag *flag = &setting_flags[i];
        const char *text = *(const char *const *)((const char *)values + flag->offset);
        if (text)
            r = settings_add(ret, flag->key, text, problem, size);
    }
    return r < 0 ? r : check_fields(values, ret, problem, size);
}

static int parse_pairs(const Submit *values, const CtlOptions *options, Settings *ret_options,
                       Settings *ret_settings)
{
    char problem[256];

    if (settings_parse(values->model_options.items, values->model_options.count, ret_options,
                       problem, sizeof problem) < 0) {
        ctl_error(options, "USAGE", "--option: %s", problem);
        return CTL_EXIT_USAGE;
    }
    if (collect_settings(values, ret_settings, problem, sizeof problem) < 0) {
        ctl_error(options, "USAGE", "--set: %s", problem);
        return CTL_EXIT_USAGE;
    }
    return CTL_GO_ON;
}

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
    if (values->eval_every && !values->eval_data)
        return "--eval-data is missing, which --eval-every reads: a directory, or 'synthetic'";
    if (values->stop_when && !values->eval_data)
        return "--eval-data is missing, on which --stop-when is decided: a directory, or "
               "'synthetic'";
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

/* Reads a set's header, so that a wrong path or file is told before there is a job. *ret_path is
 * the caller's: absolute, since others read it elsewhere. */
static int read_data(const char *data, DatasetSplit split, uint64_t seed, const CtlOptions *options,
                     char **ret_path, uint64_t *ret_samples)
{
    _cleanup_free_ char *path = NULL;
    char problem[512];
    Dataset *set;
    int r;

    path = is_synthetic(data) ? strdup(data) : realpath(data, NULL);
    if (!path) {
        ctl_error(options, "DATA", "cannot read the data set %s: %s", data, strerror(errno));
        return CTL_EXIT_FAILED;
    }
    r = dataset_open(path, split, seed, &set, problem, sizeof problem);
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
    job->max_trainers = values->max_trainers;
    job->accumulate = values->accumulate;
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
    job->stop_when = text_or_empty(values->stop_when);
}

typedef struct SpecMaps {
    Settings option_pairs, setting_pairs;
    Dps__V1__JobSpec__OptionsEntry options[SETTINGS_MAX], *option_pointers[SETTINGS_MAX];
    Dps__V1__JobSpec__SettingsEntry settings[SETTINGS_MAX], *setting_pointers[SETTINGS_MAX];
} SpecMaps;

static void fill_maps(SpecMaps *maps, Dps__V1__JobSpec *job)
{
    for (size_t i = 0; i < maps->option_pairs.count; i++) {
        dps__v1__job_spec__options_entry__init(&maps->options[i]);
        maps->options[i].key = maps->option_pairs.keys[i];
        maps->options[i].value = maps->option_pairs.values[i];
        maps->option_pointers[i] = &maps->options[i];
    }
    for (size_t i = 0; i < maps->setting_pairs.count; i++) {
        dps__v1__job_spec__settings_entry__init(&maps->settings[i]);
        maps->settings[i].key = maps->setting_pairs.keys[i];
        maps->settings[i].value = maps->setting_pairs.values[i];
        maps->setting_pointers[i] = &maps->settings[i];
    }
    job->options = maps->option_pointers;
    job->n_options = maps->option_pairs.count;
    job->settings = maps->setting_pointers;
    job->n_settings = maps->setting_pairs.count;
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

static int submit(Request *request, const Submit *values, Dps__V1__JobSpec *job,
                  const Settings *settings)
{
    _cleanup_(message_freep) Dps__V1__JobStatus *status = NULL;
    int r = ctl_connect(&request->options, &request->client);

    if (r != CTL_EXIT_DONE)
        return r;
    r = request_call_settings(request, "Submit", &job->base, settings, &status);
    if (r == CTL_EXIT_NO_JOB) /* NOT_FOUND was said of a model, a policy or a device */
        return CTL_EXIT_FAILED;
    if (r != CTL_GO_ON)
        return r;
    request->job = status->id;
    r = print_number(request, status->id);
    return r == CTL_EXIT_DONE && values->watch ? watch_job(request) : r;
}

/* Both data sets; the paths are the caller's. */
static int read_sets(const Submit *values, const CtlOptions *options, char **ret_data,
                     char **ret_eval_data, uint64_t *ret_samples)
{
    uint64_t held_out;
    int r = CTL_GO_ON;

    if (values->data)
        r = read_data(values->data, DATASET_TRAIN, values->seed, options, ret_data, ret_samples);
    if (r == CTL_GO_ON && values->eval_data)
        r = read_data(values->eval_data, DATASET_TEST, values->seed, options, ret_eval_data,
                      &held_out);
    return r;
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_free_ char *path = NULL, *eval_path = NULL;
    Dps__V1__JobSpec job = DPS__V1__JOB_SPEC__INIT;
    Submit values = {0};
    SpecMaps maps;
    int r = request_parse(&spec, argc, argv, &values, options, &request);

    if (r == CTL_GO_ON)
        r = check(&values, &request.options);
    if (r == CTL_GO_ON)
        r = parse_pairs(&values, &request.options, &maps.option_pairs, &maps.setting_pairs);
    if (r != CTL_GO_ON)
        return r;
    job.samples = values.samples;
    r = read_sets(&values, &request.options, &path, &eval_path, &job.samples);
    if (r != CTL_GO_ON)
        return r;
    fill(&values, &job);
    fill_maps(&maps, &job);
    job.data = text_or_empty(path);
    job.eval_data = text_or_empty(eval_path);
    return submit(&request, &values, &job, &maps.setting_pairs);
}

const Verb verb_submit = {&spec, run};
