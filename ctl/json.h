/* Messages as JSON, with the names that scripts rely on (design, section 8). Numbers keep all their
 * digits; NaN and infinities are null. Each returns a new object that is the caller's, or NULL when
 * memory ran out. */
#pragma once

#include <cjson/cJSON.h>

#include "dps.pb-c.h"

cJSON *json_job(const Dps__V1__JobStatus *job);
cJSON *json_jobs(const Dps__V1__ListReply *reply);
cJSON *json_checkpoint(const Dps__V1__CheckpointInfo *checkpoint);
cJSON *json_checkpoints(const Dps__V1__CheckpointList *list);
cJSON *json_metrics_row(const Dps__V1__MetricsRow *row);
cJSON *json_evaluations_row(const Dps__V1__EvaluationsRow *row);
cJSON *json_event(const Dps__V1__Event *event);
cJSON *json_evaluation(const Dps__V1__EvaluateReply *reply);
cJSON *json_server(const Dps__V1__ServerInfoReply *server);

/* Members of an object; they do nothing where object is NULL. */
void json_add_text(cJSON *object, const char *name, const char *text);
void json_add_u64(cJSON *object, const char *name, uint64_t number);
void json_add_double(cJSON *object, const char *name, double number);
void json_add_float(cJSON *object, const char *name, float number);
void json_add_bool(cJSON *object, const char *name, int truth);

/* Prints the object as one line to stdout and frees it. 0; -ENOMEM (NULL too), -EIO. */
int json_print(cJSON *object);
