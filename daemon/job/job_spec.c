#include "job/job_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "job/evaluation_spec.h"
#include "replica/engine.h"

_Static_assert((int)JOB_MAX_BATCH == (int)ENGINE_MAX_BATCH, "what is taken can be trained on");

typedef struct RangeCheck {
    const char *name;
    uint64_t value, max;
    const char *why;
} RangeCheck;

static int check_ranges(const JobSpec *spec, Error *err)
{
    const RangeCheck checks[] = {
        {"trainers", spec->trainers, JOB_MAX_TRAINERS, "one meeting takes no more replicas"},
        {"trainers.max", spec->max_trainers, JOB_MAX_TRAINERS,
         "one meeting takes no more replicas"},
        {"accumulate", spec->accumulate, JOB_MAX_ACCUMULATE, "a group that is lost is fed again"},
        {"batch", spec->batch, JOB_MAX_BATCH, "activations grow with it"},
        {"interval", spec->interval, JOB_MAX_INTERVAL, "leases dealt ahead grow with it"},
        {"epochs", spec->epochs, JOB_MAX_EPOCHS, "use --steps for an open end"},
        {"steps", spec->steps, JOB_MAX_STEPS, "that would take years"},
        {"threads", spec->threads, JOB_MAX_THREADS, "a lane has no more cores"},
        {"samples", spec->samples, JOB_MAX_SAMPLES, "split the data set into several jobs"},
        {"checkpoint.rounds", spec->checkpoint_rounds, JOB_MAX_CHECKPOINT_ROUNDS,
         "a crash would lose too much"},
        {"checkpoint.keep", spec->checkpoint_keep, JOB_MAX_CHECKPOINT_KEEP, "the disk would fill"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].value > checks[i].max)
            return error_set(err, -EINVAL, "%s is %llu; the most is %llu (%s)", checks[i].name,
                             (unsigned long long)checks[i].value, (unsigned long long)checks[i].max,
                             checks[i].why);
    return 0;
}

static void default_u32(uint32_t *value, uint32_t fallback)
{
    if (*value == 0)
        *value = fallback;
}

static void default_text(char *value, size_t size, const char *fallback)
{
    if (!*value)
        snprintf(value, size, "%s", fallback);
}

static void fill_defaults(JobSpec *spec, const JobDefaults *defaults, const ModelEntry *model)
{
    default_text(spec->name, sizeof spec->name, spec->model);
    default_text(spec->policy, sizeof spec->policy, "average");
    default_text(spec->optimizer, sizeof spec->optimizer, "sgd");
    default_text(spec->loss, sizeof spec->loss, loss_name(model->defaults.loss));
    default_text(spec->device, sizeof spec->device, "auto");
    default_u32(&spec->trainers, 1);
    if (spec->max_trainers < spec->trainers)
        spec->max_trainers = spec->trainers;
    default_u32(&spec->interval, 25);
    default_u32(&spec->batch, 32);
    default_u32(&spec->threads, 1);
    default_u32(&spec->accumulate, 1);
    default_u32(&spec->checkpoint_rounds, defaults->checkpoint_rounds);
    default_u32(&spec->checkpoint_keep, defaults->checkpoint_keep);
    if (spec->epochs == 0 && spec->steps == 0)
        spec->epochs = 1;
}

static int check_data(const JobSpec *spec, Error *err)
{
    if (spec->epochs && spec->steps)
        return error_set(err, -EINVAL,
                         "epochs and steps are both given; a job ends by one of them");
    if (spec->epochs && spec->samples == 0)
        return error_set(err, -EINVAL,
                         "epochs need the number of samples in the data set; give --samples, or "
                         "--steps for trainers that bring their own data");
    if (!spec->external_trainers && !*spec->data)
        return error_set(err, -EINVAL,
                         "no data: give --data DIR for the trainers that dpsd starts, or "
                         "--external-trainers");
    if (!spec->external_trainers && spec->samples == 0)
        return error_set(err, -EINVAL, "the data set '%s' has no samples", spec->data);
    return 0;
}

/* Names go to logs, terminals and, through JSON and protobuf, to strict UTF-8 decoders. */
static int check_printable(const char *what, const char *text, Error *err)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return error_set(err, -EINVAL, "%s has a control character (0x%02x) at byte %d", what,
                             *c, (int)(c - (const unsigned char *)text));
    return 0;
}

static int check_backend(const JobSpec *spec, Error *err)
{
    const Backend *backend;
    int r = backend_find(spec->backend, &backend, err);
    return r < 0 ? error_prefix(err, r, "backend") : 0;
}

static int resolve_training(const JobSpec *spec, JobPlan *plan, Error *err)
{
    int r = loss_from_name(spec->loss, &plan->loss, err);
    if (r < 0)
        return r;
    float default_lr = spec->lr > 0 ? spec->lr : plan->model->defaults.lr;
    r = optimizer_parse(spec->optimizer, default_lr, &plan->optimizer, err);
    if (r < 0)
        return r;
    JobSettings settings;
    r = job_spec_settings(spec, &settings, err);
    return r < 0 ? r : evaluation_check_spec(spec, &settings, err);
}

/* The paper's choice: all replicas together move the centre by 0.9 of their mean distance. From 2 on
 * they would drive it ever further away. */
static float elastic_alpha(const JobSpec *spec)
{
    uint32_t most = spec->max_trainers > spec->trainers ? spec->max_trainers : spec->trainers;
    return 0.9F / (float)(most ? most : 1);
}

int job_spec_settings(const JobSpec *spec, JobSettings *ret, Error *err)
{
    JobSettings settings;
    settings_defaults(&settings);
    settings.interval = spec->interval;
    settings.checkpoint_rounds = spec->checkpoint_rounds;
    settings.checkpoint_keep = spec->checkpoint_keep;
    settings.lr = spec->lr;
    settings.trainers = spec->trainers;
    settings.alpha = elastic_alpha(spec);
    int r = settings_apply(&settings, "sync.policy", spec->policy, err);
    for (int i = 0; i < spec->n_settings && r == 0; i++)
        r = settings_apply(&settings, spec->settings[i].key, spec->settings[i].value, err);
    if (r == 0)
        *ret = settings;
    return r;
}

static int build_model(const JobSpec *spec, JobPlan *plan, Error *err)
{
    ModelOption options[JOB_MAX_OPTIONS];
    for (int i = 0; i < spec->n_options; i++)
        options[i] = (ModelOption){spec->options[i].key, spec->options[i].value};
    int r = plan->model->build(options, spec->n_options, &plan->graph, err);
    return r < 0 ? error_prefix(err, r, "model %s", spec->model) : 0;
}

int job_spec_resolve(JobSpec *spec, const JobDefaults *defaults, JobPlan *ret, Error *err)
{
    JobPlan plan = {0};
    int r = zoo_find(spec->model, &plan.model, err);
    if (r < 0)
        return r == -ENOENT ? -EINVAL : r;
    if (!isfinite(spec->lr) || spec->lr < 0)
        return error_set(err, -EINVAL, "lr is %g; it must be a positive number", (double)spec->lr);
    fill_defaults(spec, defaults, plan.model);
    r = check_ranges(spec, err);
    if (r == 0)
        r = check_printable("name", spec->name, err);
    if (r == 0)
        r = check_printable("data", spec->data, err);
    if (r == 0)
        r = check_data(spec, err);
    if (r == 0)
        r = check_backend(spec, err);
    if (r == 0)
        r = resolve_training(spec, &plan, err);
    if (r == 0)
        r = build_model(spec, &plan, err);
    if (r < 0)
        return r == -ENOENT ? -EINVAL
                            : r; /* a name that is none is a wrong argument of this call */
    spec->lr = plan.optimizer.lr;
    *ret = plan;
    return 0;
}

void job_plan_free(JobPlan *plan)
{
    graph_free(plan->graph);
    plan->graph = NULL;
}
