/* JobSpec as JSON. 64-bit numbers are strings, since JSON's are doubles. */
#include "job/job_spec.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum FieldKind { FIELD_TEXT, FIELD_U32, FIELD_U64, FIELD_FLOAT, FIELD_BOOL } FieldKind;

typedef struct Field {
    const char *name;
    FieldKind kind;
    size_t offset, size;
} Field;

#define FIELD(kind, member)                                                                        \
    {                                                                                              \
#member, kind, offsetof(JobSpec, member), sizeof((JobSpec *)0)->member                     \
    }

static const Field fields[] = {
    FIELD(FIELD_TEXT, name),
    FIELD(FIELD_TEXT, model),
    FIELD(FIELD_TEXT, data),
    FIELD(FIELD_TEXT, policy),
    FIELD(FIELD_TEXT, optimizer),
    FIELD(FIELD_TEXT, loss),
    FIELD(FIELD_TEXT, device),
    FIELD(FIELD_TEXT, backend),
    FIELD(FIELD_U64, samples),
    FIELD(FIELD_U64, steps),
    FIELD(FIELD_U64, seed),
    FIELD(FIELD_U32, trainers),
    FIELD(FIELD_U32, interval),
    FIELD(FIELD_U32, epochs),
    FIELD(FIELD_U32, batch),
    FIELD(FIELD_U32, threads),
    FIELD(FIELD_U32, checkpoint_rounds),
    FIELD(FIELD_U32, checkpoint_keep),
    FIELD(FIELD_FLOAT, lr),
    FIELD(FIELD_BOOL, external_trainers),
    FIELD(FIELD_U32, max_trainers),
    FIELD(FIELD_U32, accumulate),
    FIELD(FIELD_TEXT, eval_data),
    FIELD(FIELD_TEXT, stop_when),
};

static const void *field_of(const JobSpec *spec, const Field *field)
{
    return (const char *)spec + field->offset;
}

static cJSON *add_field(cJSON *json, const JobSpec *spec, const Field *field)
{
    const void *value = field_of(spec, field);
    char text[24];
    switch (field->kind) {
    case FIELD_TEXT:
        return cJSON_AddStringToObject(json, field->name, value);
    case FIELD_U32:
        return cJSON_AddNumberToObject(json, field->name, *(const uint32_t *)value);
    case FIELD_U64:
        snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)value);
        return cJSON_AddStringToObject(json, field->name, text);
    case FIELD_FLOAT:
        return cJSON_AddNumberToObject(json, field->name, (double)*(const float *)value);
    case FIELD_BOOL:
        return cJSON_AddBoolToObject(json, field->name, *(const bool *)value);
    }
    return NULL;
}

static bool add_options(cJSON *json, const JobSpec *spec)
{
    cJSON *options = cJSON_AddObjectToObject(json, "options");
    for (int i = 0; options && i < spec->n_options; i++)
        if (!cJSON_AddStringToObject(options, spec->options[i].key, spec->options[i].value))
            return false;
    return options;
}

static bool add_settings(cJSON *json, const JobSpec *spec)
{
    cJSON *settings = cJSON_AddObjectToObject(json, "settings");
    for (int i = 0; settings && i < spec->n_settings; i++)
        if (!cJSON_AddStringToObject(settings, spec->settings[i].key, spec->settings[i].value))
            return false;
    return settings;
}

int job_spec_to_json(const JobSpec *spec, char **ret)
{
    cJSON *json = cJSON_CreateObject();
    bool whole = json && add_options(json, spec) && add_settings(json, spec);
    for (size_t i = 0; whole && i < sizeof fields / sizeof *fields; i++)
        whole = add_field(json, spec, &fields[i]);
    char *text = whole ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}

static void read_field(const cJSON *value, JobSpec *spec, const Field *field)
{
    void *to = (char *)spec + field->offset;
    switch (field->kind) {
    case FIELD_TEXT:
        if (cJSON_IsString(value))
            snprintf(to, field->size, "%s", value->valuestring);
        break;
    case FIELD_U32:
        if (cJSON_IsNumber(value))
            *(uint32_t *)to = (uint32_t)value->valuedouble;
        break;
    case FIELD_U64:
        if (cJSON_IsString(value))
            *(uint64_t *)to = strtoull(value->valuestring, NULL, 10);
        break;
    case FIELD_FLOAT:
        if (cJSON_IsNumber(value))
            *(float *)to = (float)value->valuedouble;
        break;
    case FIELD_BOOL:
        *(bool *)to = cJSON_IsTrue(value);
        break;
    }
}

static void read_options(const cJSON *options, JobSpec *spec)
{
    const cJSON *option;
    cJSON_ArrayForEach(option, options)
    {
        if (!cJSON_IsString(option) || spec->n_options >= JOB_MAX_OPTIONS)
            continue;
        int i = spec->n_options++;
        snprintf(spec->options[i].key, sizeof spec->options[i].key, "%s", option->string);
        snprintf(spec->options[i].value, sizeof spec->options[i].value, "%s", option->valuestring);
    }
}

static void read_settings(const cJSON *settings, JobSpec *spec)
{
    const cJSON *setting;
    cJSON_ArrayForEach(setting, settings)
    {
        if (!cJSON_IsString(setting) || spec->n_settings >= JOB_MAX_SETTINGS)
            continue;
        SettingPair *pair = &spec->settings[spec->n_settings++];
        snprintf(pair->key, sizeof pair->key, "%s", setting->string);
        snprintf(pair->value, sizeof pair->value, "%s", setting->valuestring);
    }
}

int job_spec_from_json(const char *text, JobSpec *ret, Error *err)
{
    cJSON *json = cJSON_Parse(text);
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return error_set(err, -EBADMSG, "the job's spec is not a JSON object");
    }
    JobSpec spec = {0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        read_field(cJSON_GetObjectItemCaseSensitive(json, fields[i].name), &spec, &fields[i]);
    read_options(cJSON_GetObjectItemCaseSensitive(json, "options"), &spec);
    read_settings(cJSON_GetObjectItemCaseSensitive(json, "settings"), &spec);
    if (spec.max_trainers < spec.trainers)
        spec.max_trainers = spec.trainers; /* written by a dps that had no such number */
    cJSON_Delete(json);
    *ret = spec;
    return 0;
}
