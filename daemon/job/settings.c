#include "job/settings.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_spec.h"

typedef struct SettingEntry {
    const char *key;
    int (*apply)(JobSettings *settings, const char *key, const char *value, Error *err);
} SettingEntry;

static int parse_u32(const char *key, const char *value, uint32_t max, uint32_t *ret, Error *err)
{
    char *end;
    errno = 0;
    bool begins_well = isdigit((unsigned char)*value); /* strtoull takes blanks and signs */
    unsigned long long number = strtoull(value, &end, 10);
    if (!begins_well || *end || errno || number < 1 || number > max)
        return error_set(err, -EINVAL, "%s=%s: it takes a whole number from 1 to %u", key, value,
                         max);
    *ret = (uint32_t)number;
    return 0;
}

static int apply_interval(JobSettings *settings, const char *key, const char *value, Error *err)
{
    return parse_u32(key, value, JOB_MAX_INTERVAL, &settings->interval, err);
}

static int apply_rounds(JobSettings *settings, const char *key, const char *value, Error *err)
{
    return parse_u32(key, value, JOB_MAX_CHECKPOINT_ROUNDS, &settings->checkpoint_rounds, err);
}

static int apply_keep(JobSettings *settings, const char *key, const char *value, Error *err)
{
    return parse_u32(key, value, JOB_MAX_CHECKPOINT_KEEP, &settings->checkpoint_keep, err);
}

static int apply_lr(JobSettings *settings, const char *key, const char *value, Error *err)
{
    char *end;
    bool begins_well = isdigit((unsigned char)*value) || *value == '.';
    float lr = strtof(value, &end);
    if (!begins_well || *end || !isfinite(lr))
        return error_set(err, -EINVAL, "%s=%s: it takes a number of 0 or more", key, value);
    settings->lr = lr;
    return 0;
}

static const SettingEntry entries[] = {
    {"sync.interval", apply_interval},
    {"optimizer.lr", apply_lr},
    {"checkpoint.rounds", apply_rounds},
    {"checkpoint.keep", apply_keep},
};

int settings_apply(JobSettings *settings, const char *key, const char *value, Error *err)
{
    char known[160] = "";
    if (strlen(value) >= SETTING_VALUE_MAX) /* it is kept as text */
        return error_set(err, -EINVAL, "%.40s: its value has %zu bytes; the most is %d", key,
                         strlen(value), SETTING_VALUE_MAX - 1);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].key, key) == 0)
            return entries[i].apply(settings, key, value, err);
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", entries[i].key);
    }
    return error_set(err, -EINVAL, "there is no setting '%.40s'; a job has: %s", key, known);
}
