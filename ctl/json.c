#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/json.h"
#include "ctl/messages.h"
#include "ctl/render/status.h"
#include "ctl/render/units.h"
#include "ctl/text.h"

/* ---- members --------------------------------------------------------------------------------- */

void json_add_text(cJSON *object, const char *name, const char *text)
{
    _cleanup_free_ char *clean = strdup(text ? text : "");

    /* Control characters cJSON would escape, but bytes that are not UTF-8 it would pass. */
    if (clean)
        cJSON_AddStringToObject(object, name, ctl_sanitise(clean));
}

/* A double holds no seed of 64 bits and no float without strange digits, so numbers are written
 * here. */
static void add_raw(cJSON *object, const char *name, const char *text)
{
    cJSON_AddRawToObject(object, name, text);
}

void json_add_u64(cJSON *object, const char *name, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, number);
    add_raw(object, name, text);
}

void json_add_double(cJSON *object, const char *name, double number)
{
    char text[32];

    if (!isfinite(number)) {
        cJSON_AddNullToObject(object, name);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    add_raw(object, name, text);
}

void json_add_float(cJSON *object, const char *name, float number)
{
    char text[UNITS_SIZE];

    if (isfinite(number))
        add_raw(object, name, units_float(number, text));
    else
        cJSON_AddNullToObject(object, name);
}

void json_add_bool(cJSON *object, const char *name, int truth)
{
    cJSON_AddBoolToObject(object, name, truth);
}

static void add_time(cJSON *object, const char *name, const char *name_ms, uint64_t unix_ms)
{
    char text[UNITS_SIZE];

    json_add_text(object, name, units_time(unix_ms, text));
    json_add_u64(object, name_ms, unix_ms);
}

static void add_texts(cJSON *object, const char *name, char *const *texts, size_t count)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);

    for (size_t i = 0; i < count; i++) {
        _cleanup_free_ char *clean = strdup(texts[i]);
        cJSON_AddItemToArray(list, cJSON_CreateString(clean ? ctl_sanitise(clean) : ""));
    }
}

static void add_dims(cJSON *object, const char *name, const int64_t *dims, size_t count)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);

    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)dims[i]));
}

/* ---- messages -------------------------------------------------------------------------------- */

static cJSON *json_trainer(const Dps__V1__TrainerStatus *trainer)
{
    cJSON *object = cJSON_CreateObject();

    json_add_u64(object, "rank", trainer->rank);
    json_add_text(object, "state", trainer->state);
    json_add_u64(object, "step", trainer->step);
    json_add_float(object, "loss", trainer->loss);
    json_add_text(object, "device", trainer->device);
    json_add_double(object, "waiting_s", trainer->waiting_s);
    json_add_text(object, "waiting_for", trainer->waiting_for);
    json_add_u64(object, "restarts", trainer->restarts);
    json_add_text(object, "client", trainer->client);
    return object;
}

/* Null until there is one. */
static void add_evaluation(cJSON *object, const Dps__V1__JobStatus *job)
{
    if (status_is_evaluated(job)) {
        json_add_double(object, "accuracy", job->accuracy);
        json_add_u64(object, "accuracy_round", job->accuracy_round);
    } else {
        cJSON_AddNullToObject(object, "accuracy");
        cJSON_AddNullToObject(object, "accuracy_round");
    }
}

/* Values are text, as `set` takes them. */
static void add_settings(cJSON *object, const Dps__V1__JobStatus *job)
{
    cJSON *settings = cJSON_AddObjectToObject(object, "settings");

    for (size_t i = 0; i < job->n_settings; i++) {
        char key[128];
        json_add_text(settings, ctl_sanitise_to(job->settings[i]->key, key, sizeof key),
                      job->settings[i]->value);
    }
}

/* The names beyond those of the design: what else a status holds. */
static void add_job_details(cJSON *object, const Dps__V1__JobStatus *job)
{
    json_add_u64(object, "samples_total", job->samples_total);
    json_add_double(object, "samples_per_s", job->samples_per_s);
    json_add_double(object, "eta_s", job->eta_s >= 0 ? job->eta_s : NAN);
    add_time(object, "created", "created_unix_ms", job->created_unix_ms);
    json_add_double(object, "running_s", job->running_s);
    json_add_u64(object, "checkpoint", job->checkpoint);
    json_add_text(object, "optimizer", job->optimizer);
    json_add_u64(object, "batch", job->batch);
    json_add_text(object, "data", job->data);
    json_add_bool(object, "external_trainers", job->external_trainers);
    json_add_text(object, "loss_function", job->loss_function);
    json_add_text(object, "owner", job->owner);
    add_dims(object, "input_dims", job->input_dims, job->n_input_dims);
    add_dims(object, "output_dims", job->output_dims, job->n_output_dims);
    json_add_u64(object, "max_trainers", job->max_trainers);
    add_evaluation(object, job);
    add_settings(object, job);
}

cJSON *json_job(const Dps__V1__JobStatus *job)
{
    cJSON *object = cJSON_CreateObject(), *trainers;

    json_add_u64(object, "id", job->id);
    json_add_text(object, "name", job->name);
    json_add_text(object, "state", job_state_name(job->state));
    json_add_text(object, "reason", job->reason);
    json_add_text(object, "model", job->model);
    json_add_text(object, "policy", job->policy);
    json_add_u64(object, "interval", job->interval);
    json_add_u64(object, "round", job->round);
    json_add_u64(object, "step", job->step);
    json_add_u64(object, "epoch", job->epoch);
    json_add_u64(object, "samples", job->samples);
    json_add_float(object, "loss", job->loss);
    json_add_float(object, "lr", job->lr);
    json_add_u64(object, "seed", job->seed);
    json_add_text(object, "device", job->device);
    json_add_text(object, "checksum", job->checksum);
    trainers = cJSON_AddArrayToObject(object, "trainers");
    for (size_t i = 0; i < job->n_trainers; i++)
        cJSON_AddItemToArray(trainers, json_trainer(job->trainers[i]));
    add_job_details(object, job);
    return object;
}

cJSON *json_jobs(const Dps__V1__ListReply *reply)
{
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < reply->n_jobs; i++)
        cJSON_AddItemToArray(list, json_job(reply->jobs[i]));
    return list;
}

cJSON *json_checkpoint(const Dps__V1__CheckpointInfo *checkpoint)
{
    cJSON *object = cJSON_CreateObject();

    json_add_u64(object, "id", checkpoint->id);
    json_add_u64(object, "job", checkpoint->job);
    json_add_u64(object, "step", checkpoint->step);
    json_add_u64(object, "round", checkpoint->round);
    add_time(object, "created", "created_unix_ms", checkpoint->created_unix_ms);
    json_add_u64(object, "bytes", checkpoint->bytes);
    json_add_bool(object, "valid", checkpoint->valid);
    json_add_text(object, "problem", checkpoint->problem);
    json_add_bool(object, "best", checkpoint->best);
    return object;
}

cJSON *json_checkpoints(const Dps__V1__CheckpointList *list)
{
    cJSON *array = cJSON_CreateArray();

    for (size_t i = 0; i < list->n_checkpoints; i++)
        cJSON_AddItemToArray(array, json_checkpoint(list->checkpoints[i]));
    return array;
}

cJSON *json_metrics_row(const Dps__V1__MetricsRow *row)
{
    cJSON *object = cJSON_CreateObject();

    json_add_u64(object, "round", row->round);
    json_add_u64(object, "rank", row->rank);
    json_add_u64(object, "step", row->step);
    json_add_double(object, "loss", row->loss);
    json_add_u64(object, "samples", row->samples);
    json_add_double(object, "compute_ms", row->compute_ms);
    json_add_double(object, "wait_ms", row->wait_ms);
    json_add_u64(object, "bytes_in", row->bytes_in);
    json_add_u64(object, "bytes_out", row->bytes_out);
    json_add_double(object, "lr", row->lr);
    json_add_bool(object, "contributed", row->contributed);
    return object;
}

cJSON *json_evaluations_row(const Dps__V1__EvaluationsRow *row)
{
    cJSON *object = cJSON_CreateObject();

    json_add_u64(object, "round", row->round);
    json_add_u64(object, "checkpoint", row->checkpoint);
    json_add_double(object, "accuracy", row->accuracy);
    json_add_double(object, "loss", row->loss);
    json_add_u64(object, "samples", row->samples);
    add_time(object, "time", "unix_ms", row->unix_ms);
    json_add_bool(object, "best", row->best);
    return object;
}

cJSON *json_event(const Dps__V1__Event *event)
{
    cJSON *object = cJSON_CreateObject();

    json_add_u64(object, "id", event->id);
    add_time(object, "time", "unix_ms", event->unix_ms);
    json_add_text(object, "kind", event->kind);
    json_add_text(object, "who", event->who);
    json_add_text(object, "text", event->text);
    json_add_u64(object, "round", event->round);
    return object;
}

cJSON *json_evaluation(const Dps__V1__EvaluateReply *reply)
{
    cJSON *object = cJSON_CreateObject();

    json_add_double(object, "accuracy", reply->accuracy);
    json_add_double(object, "loss", reply->loss);
    json_add_u64(object, "samples", reply->samples);
    return object;
}

cJSON *json_server(const Dps__V1__ServerInfoReply *server)
{
    cJSON *object = cJSON_CreateObject(), *devices;

    json_add_text(object, "version", server->version);
    devices = cJSON_AddArrayToObject(object, "devices");
    for (size_t i = 0; i < server->n_devices; i++) {
        const Dps__V1__DeviceInfo *device = server->devices[i];
        cJSON *one = cJSON_CreateObject();
        json_add_text(one, "name", device->name);
        json_add_text(one, "backend", device->backend);
        json_add_u64(one, "replicas", device->replicas);
        json_add_u64(one, "memory_bytes", device->memory_bytes);
        json_add_double(one, "busy", device->busy);
        cJSON_AddItemToArray(devices, one);
    }
    add_texts(object, "models", server->models, server->n_models);
    add_texts(object, "policies", server->policies, server->n_policies);
    add_texts(object, "listeners", server->listeners, server->n_listeners);
    json_add_text(object, "state_dir", server->state_dir);
    json_add_u64(object, "jobs_running", server->jobs_running);
    json_add_u64(object, "sessions", server->sessions);
    json_add_u64(object, "connections", server->connections);
    json_add_double(object, "uptime_s", server->uptime_s);
    json_add_u64(object, "rss_bytes", server->rss_bytes);
    json_add_text(object, "note", server->note);
    return object;
}

int json_print(cJSON *object)
{
    _cleanup_free_ char *text = object ? cJSON_PrintUnformatted(object) : NULL;

    cJSON_Delete(object);
    if (!text)
        return -ENOMEM;
    return puts(text) < 0 || fflush(stdout) != 0 ? -EIO : 0;
}
