/* 64-bit numbers in JSON: as strings, since JSON's numbers are doubles. Pure functions. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* False: out of memory. */
bool json_add_u64(cJSON *object, const char *name, uint64_t value);
/* 0 where it is missing or no number. */
uint64_t json_u64(const cJSON *object, const char *name);
double json_double(const cJSON *object, const char *name);
