#include "job/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool json_add_u64(cJSON *object, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddStringToObject(object, name, text) != NULL;
}

uint64_t json_u64(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(value) ? strtoull(value->valuestring, NULL, 10) : 0;
}

double json_double(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}
