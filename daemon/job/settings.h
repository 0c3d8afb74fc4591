/* What can be changed while a job runs: names, checks, application. A table; plain values. */
#pragma once

#include <stdint.h>

#include "base/error.h"

enum { SETTING_KEY_MAX = 40, SETTING_VALUE_MAX = 40 };

typedef struct JobSettings {
    uint32_t interval; /* K */
    uint32_t checkpoint_rounds, checkpoint_keep;
    float lr;
} JobSettings;

/* A change that holds from the beginning of `round` on. */
typedef struct SettingChange {
    uint64_t round;
    char key[SETTING_KEY_MAX], value[SETTING_VALUE_MAX];
} SettingChange;

/* Checks and applies one setting. -EINVAL with a sentence that lists the keys or gives the range.
 */
int settings_apply(JobSettings *settings, const char *key, const char *value, Error *err);
