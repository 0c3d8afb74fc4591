#include "rpc/pack_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Dps__V1__TrainerStatus TrainerMessage;

enum { SETTINGS_MAX = 48 }; /* more than there are */

struct PackedStatus {
    Dps__V1__JobStatus message;
    Dps__V1__Normalisation normalisation;
    TrainerMessage trainers[JOB_MAX_TRAINERS];
    TrainerMessage *pointers[JOB_MAX_TRAINERS];
    char waiting[JOB_MAX_TRAINERS][320];
    char checksum[17];
    JobSettings values_of; /* in force */
    Dps__V1__JobStatus__SettingsEntry settings[SETTINGS_MAX];
    Dps__V1__JobStatus__SettingsEntry *setting_pointers[SETTINGS_MAX];
    char values[SETTINGS_MAX][SETTING_VALUE_MAX];
};

static void pack_trainers(Job *job, PackedStatus *packed)
{
    uint32_t n = job_member_count(job);
    for (uint32_t r = 0; r < n; r++) {
        MemberStatus status;
        TrainerMessage *trainer = &packed->trainers[r];
        job_member_status(job, r, &status);
        dps__v1__trainer_status__init(trainer);
        snprintf(packed->waiting[r], sizeof packed->waiting[r], "%s", status.waiting_for);
        trainer->rank = r;
        trainer->state = (char *)status.state;
        trainer->step = status.step;
        trainer->loss = status.loss;
        trainer->device = (char *)status.device;
        trainer->waiting_s = status.waiting_s;
        trainer->waiting_for = packed->waiting[r];
        trainer->restarts = status.restarts;
        trainer->client = (char *)status.client;
        packed->pointers[r] = trainer;
    }
    packed->message.n_trainers = n;
    packed->message.trainers = packed->pointers;
}

static void pack_model(const JobPlan *plan, PackedStatus *packed)
{
    Dps__V1__JobStatus *message = &packed->message;
    const ModelDefaults *defaults = &plan->model->defaults;
    const Shape *output = graph_value_shape(plan->graph, graph_output(plan->graph));
    message->n_input_dims = (size_t)defaults->input.ndim - 1;
    message->input_dims = (int64_t *)defaults->input.dims + 1;
    message->n_output_dims = (size_t)output->ndim - 1;
    message->output_dims = (int64_t *)output->dims + 1;
    dps__v1__normalisation__init(&packed->normalisation);
    packed->normalisation.scale = defaults->scale;
    packed->normalisation.n_mean = packed->normalisation.n_deviation = (size_t)defaults->channels;
    packed->normalisation.mean = (float *)defaults->mean;
    packed->normalisation.deviation = (float *)defaults->deviation;
    message->normalisation = &packed->normalisation;
}

static void pack_settings(const JobSettings *settings, PackedStatus *packed)
{
    int n = settings_count() < SETTINGS_MAX ? settings_count() : SETTINGS_MAX;
    for (int i = 0; i < n; i++) {
        Dps__V1__JobStatus__SettingsEntry *entry = &packed->settings[i];
        dps__v1__job_status__settings_entry__init(entry);
        entry->key = (char *)settings_key(i);
        entry->value = (char *)settings_format(settings, i, packed->values[i], SETTING_VALUE_MAX);
        packed->setting_pointers[i] = entry;
    }
    packed->message.n_settings = (size_t)n;
    packed->message.settings = packed->setting_pointers;
}

static void pack_progress(const JobStatus *status, Dps__V1__JobStatus *message)
{
    message->round = status->round;
    message->step = status->step;
    message->epoch = status->epoch;
    message->samples = status->samples;
    message->samples_total = status->samples_total;
    message->loss = status->loss;
    message->samples_per_s = status->samples_per_s;
    message->eta_s = status->eta_s;
    message->running_s = status->running_s;
    message->checkpoint = status->checkpoint;
    message->accuracy = status->accuracy;
    message->accuracy_round = status->accuracy_round;
    message->interval = status->settings.interval;
    message->lr = status->settings.lr;
}

static void pack_spec(const JobSpec *spec, Dps__V1__JobStatus *message)
{
    message->name = (char *)spec->name;
    message->model = (char *)spec->model;
    message->optimizer = (char *)spec->optimizer;
    message->loss_function = (char *)spec->loss;
    message->data = (char *)spec->data;
    message->seed = spec->seed;
    message->max_trainers = spec->max_trainers;
    message->batch = spec->batch;
    message->external_trainers = spec->external_trainers;
}

int pack_status(Job *job, bool trainers, PackedStatus **ret)
{
    JobStatus status;
    PackedStatus *packed = calloc(1, sizeof *packed);
    if (!packed)
        return -ENOMEM;
    job_status(job, &status);
    Dps__V1__JobStatus *message = &packed->message;
    dps__v1__job_status__init(message);
    message->id = status.id;
    message->state = (Dps__V1__JobState)status.state;
    message->reason = (char *)status.reason;
    message->owner = (char *)status.owner;
    message->device = (char *)status.device;
    message->created_unix_ms = status.created_ms;
    pack_spec(status.spec, message);
    pack_progress(&status, message);
    packed->values_of = status.settings;
    message->policy = packed->values_of.policy;
    pack_settings(&packed->values_of, packed);
    if (status.checksum)
        snprintf(packed->checksum, sizeof packed->checksum, "%016" PRIx64, status.checksum);
    message->checksum = packed->checksum;
    if (status.plan)
        pack_model(status.plan, packed);
    if (trainers)
        pack_trainers(job, packed);
    *ret = packed;
    return 0;
}

PackedStatus *packed_status_free(PackedStatus *packed)
{
    free(packed);
    return NULL;
}

const Dps__V1__JobStatus *packed_status_message(const PackedStatus *packed)
{
    return &packed->message;
}
