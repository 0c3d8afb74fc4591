#include "rpc/unpack_spec.h"

#include <stdio.h>
#include <string.h>

typedef struct TextField {
    const char *name, *from;
    char *to;
    size_t size;
} TextField;

static int copy_text(const TextField *field, Error *err)
{
    size_t length = strlen(field->from);
    if (length >= field->size)
        return error_set(err, -EINVAL, "%s has %zu bytes; the most is %zu", field->name, length,
                         field->size - 1);
    memcpy(field->to, field->from, length + 1);
    return 0;
}

static int copy_options(const Dps__V1__JobSpec *message, JobSpec *spec, Error *err)
{
    if (message->n_options > JOB_MAX_OPTIONS)
        return error_set(err, -EINVAL, "%zu model options; the most is %d", message->n_options,
                         JOB_MAX_OPTIONS);
    for (size_t i = 0; i < message->n_options; i++) {
        const TextField fields[] = {
            {"a model option's name", message->options[i]->key, spec->options[i].key,
             sizeof spec->options[i].key},
            {"a model option's value", message->options[i]->value, spec->options[i].value,
             sizeof spec->options[i].value},
        };
        int r = copy_text(&fields[0], err);
        if (r == 0)
            r = copy_text(&fields[1], err);
        if (r < 0)
            return r;
    }
    spec->n_options = (int)message->n_options;
    return 0;
}

static int copy_settings(const Dps__V1__JobSpec *message, JobSpec *spec, Error *err)
{
    if (message->n_settings > JOB_MAX_SETTINGS)
        return error_set(err, -EINVAL, "%zu settings; the most is %d", message->n_settings,
                         JOB_MAX_SETTINGS);
    for (size_t i = 0; i < message->n_settings; i++) {
        SettingPair *pair = &spec->settings[i];
        const TextField fields[] = {
            {"a setting's name", message->settings[i]->key, pair->key, sizeof pair->key},
            {"a setting's value", message->settings[i]->value, pair->value, sizeof pair->value},
        };
        int r = copy_text(&fields[0], err);
        if (r == 0)
            r = copy_text(&fields[1], err);
        if (r < 0)
            return r;
    }
    spec->n_settings = (int)message->n_settings;
    return 0;
}

static void copy_numbers(const Dps__V1__JobSpec *message, JobSpec *spec)
{
    spec->samples = message->samples;
    spec->steps = message->steps;
    spec->seed = message->seed;
    spec->trainers = message->trainers;
    spec->max_trainers = message->max_trainers;
    spec->accumulate = message->accumulate;
    spec->interval = message->interval;
    spec->epochs = message->epochs;
    spec->batch = message->batch;
    spec->threads = message->threads;
    spec->checkpoint_rounds = message->checkpoint_rounds;
    spec->checkpoint_keep = message->checkpoint_keep;
    spec->lr = message->lr;
    spec->external_trainers = message->external_trainers;
}

int unpack_spec(const Dps__V1__JobSpec *message, JobSpec *ret, Error *err)
{
    JobSpec spec = {0};
    const TextField fields[] = {
        {"name", message->name, spec.name, sizeof spec.name},
        {"model", message->model, spec.model, sizeof spec.model},
        {"data", message->data, spec.data, sizeof spec.data},
        {"policy", message->policy, spec.policy, sizeof spec.policy},
        {"optimizer", message->optimizer, spec.optimizer, sizeof spec.optimizer},
        {"loss", message->loss, spec.loss, sizeof spec.loss},
        {"device", message->device, spec.device, sizeof spec.device},
        {"backend", message->backend, spec.backend, sizeof spec.backend},
        {"eval_data", message->eval_data, spec.eval_data, sizeof spec.eval_data},
        {"stop_when", message->stop_when, spec.stop_when, sizeof spec.stop_when},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int r = copy_text(&fields[i], err);
        if (r < 0)
            return r;
    }
    int r = copy_options(message, &spec, err);
    if (r == 0)
        r = copy_settings(message, &spec, err);
    if (r < 0)
        return r;
    copy_numbers(message, &spec);
    *ret = spec;
    return 0;
}
