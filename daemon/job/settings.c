#include "job/settings.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_spec.h"
#include "job/policy.h"
#include "model/schedule.h"

typedef enum SettingKind {
    KIND_WHOLE,  /* uint32_t in [min, max] */
    KIND_NUMBER, /* float in [min, max] */
    KIND_WORD,   /* an enum, by its words */
    KIND_TEXT,   /* text that a function checks */
    KIND_WAIT,   /* all, or quorum:Q */
} SettingKind;

typedef struct Setting {
    const char *key;
    SettingKind kind;
    size_t offset;
    double min, max;
    const char *const *words; /* ends with NULL */
    int (*check)(const char *value, Error *err);
} Setting;

static const char *const weights_words[] = {"uniform", "samples", NULL};
static const char *const state_words[] = {"keep", "average", "reset", NULL};
static const char *const stale_words[] = {"reject", "apply", NULL};

static int check_policy(const char *value, Error *err)
{
    const SyncPolicy *policy;
    int r = policy_find(value, &policy, err);
    return r == -ENOENT ? -EINVAL : r;
}

static int check_schedule(const char *value, Error *err)
{
    Schedule schedule;
    return schedule_parse(value, &schedule, err);
}

#define AT(member) offsetof(JobSettings, member)

static const Setting settings[] = {
    {"sync.policy", KIND_TEXT, AT(policy), .check = check_policy},
    {"sync.interval", KIND_WHOLE, AT(interval), 1, JOB_MAX_INTERVAL},
    {"sync.weights", KIND_WORD, AT(weights), .words = weights_words},
    {"sync.state", KIND_WORD, AT(state), .words = state_words},
    {"sync.wait", KIND_WAIT, AT(quorum), 1, JOB_MAX_TRAINERS},
    {"sync.timeout", KIND_WHOLE, AT(timeout_s), 1, 86400},
    {"sync.max_staleness", KIND_WHOLE, AT(max_staleness), 0, 1000000},
    {"sync.on_stale", KIND_WORD, AT(on_stale), .words = stale_words},
    {"sync.alpha", KIND_NUMBER, AT(alpha), 0, 1},
    {"sync.outer_lr", KIND_NUMBER, AT(outer_lr), 0, 1000},
    {"sync.outer_momentum", KIND_NUMBER, AT(outer_momentum), 0, 1},
    {"optimizer.lr", KIND_NUMBER, AT(lr), 0, FLT_MAX},
    {"optimizer.schedule", KIND_TEXT, AT(schedule), .check = check_schedule},
    {"optimizer.clip", KIND_NUMBER, AT(clip), 0, FLT_MAX},
    {"guard.norm", KIND_NUMBER, AT(guard_norm), 0, FLT_MAX},
    {"guard.strikes", KIND_WHOLE, AT(guard_strikes), 1, 1000000},
    {"trainers", KIND_WHOLE, AT(trainers), 1, JOB_MAX_TRAINERS},
    {"checkpoint.rounds", KIND_WHOLE, AT(checkpoint_rounds), 1, JOB_MAX_CHECKPOINT_ROUNDS},
    {"checkpoint.keep", KIND_WHOLE, AT(checkpoint_keep), 1, JOB_MAX_CHECKPOINT_KEEP},
    {"eval.every", KIND_WHOLE, AT(eval_every), 0, 1000000},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

void settings_defaults(JobSettings *values)
{
    *values = (JobSettings){.policy = "average",
                            .interval = 25,
                            .timeout_s = 10,
                            .max_staleness = JOB_MAX_TRAINERS,
                            .alpha = 0.5F,
                            .outer_lr = 0.7F,
                            .outer_momentum = 0.9F,
                            .schedule = "constant",
                            .guard_strikes = 3,
                            .trainers = 1,
                            .checkpoint_rounds = 4,
                            .checkpoint_keep = 3};
}

static bool parse_whole(const char *value, double min, double max, uint32_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || (double)number < min ||
        (double)number > max)
        return false;
    *ret = (uint32_t)number;
    return true;
}

static int apply_whole(const Setting *setting, void *at, const char *value, Error *err)
{
    if (!parse_whole(value, setting->min, setting->max, at))
        return error_set(err, -EINVAL, "%s=%.60s: it takes a whole number from %.0f to %.0f",
                         setting->key, value, setting->min, setting->max);
    return 0;
}

static int apply_number(const Setting *setting, float *at, const char *value, Error *err)
{
    char *end;
    float number = strtof(value, &end);
    bool begins_well = (*value >= '0' && *value <= '9') || *value == '.'; /* strtof takes more */
    if (!begins_well || *end || !isfinite(number) || (double)number < setting->min ||
        (double)number > setting->max) {
        if (setting->max >= (double)FLT_MAX)
            return error_set(err, -EINVAL, "%s=%.60s: it takes a number of %g or more",
                             setting->key, value, setting->min);
        return error_set(err, -EINVAL, "%s=%.60s: it takes a number from %g to %g", setting->key,
                         value, setting->min, setting->max);
    }
    *at = number;
    return 0;
}

static int apply_word(const Setting *setting, unsigned *at, const char *value, Error *err)
{
    char known[80] = "";
    for (unsigned i = 0; setting->words[i]; i++) {
        if (strcmp(setting->words[i], value) == 0) {
            *at = i;
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", setting->words[i]);
    }
    return error_set(err, -EINVAL, "%s=%.60s: it takes one of %s", setting->key, value, known);
}

static int apply_text(const Setting *setting, char *at, const char *value, Error *err)
{
    if (strlen(value) >= SETTING_VALUE_MAX)
        return error_set(err, -EINVAL, "%s: the value is longer than %d bytes", setting->key,
                         SETTING_VALUE_MAX - 1);
    int r = setting->check(value, err);
    if (r == 0)
        snprintf(at, SETTING_VALUE_MAX, "%s", value);
    return r;
}

static int apply_wait(const Setting *setting, uint32_t *at, const char *value, Error *err)
{
    static const char prefix[] = "quorum:";
    if (strcmp(value, "all") == 0) {
        *at = 0;
        return 0;
    }
    if (strncmp(value, prefix, sizeof prefix - 1) == 0 &&
        parse_whole(value + sizeof prefix - 1, setting->min, setting->max, at))
        return 0;
    return error_set(err, -EINVAL, "%s=%.60s: it takes all, or quorum:Q with Q from %.0f to %.0f",
                     setting->key, value, setting->min, setting->max);
}

static int apply(JobSettings *values, const Setting *setting, const char *value, Error *err)
{
    void *at = (char *)values + setting->offset;
    switch (setting->kind) {
    case KIND_WHOLE:
        return apply_whole(setting, at, value, err);
    case KIND_NUMBER:
        return apply_number(setting, at, value, err);
    case KIND_WORD:
        return apply_word(setting, at, value, err);
    case KIND_TEXT:
        return apply_text(setting, at, value, err);
    case KIND_WAIT:
        return apply_wait(setting, at, value, err);
    }
    return -EINVAL;
}

int settings_apply(JobSettings *values, const char *key, const char *value, Error *err)
{
    char known[400] = "";
    if (strlen(value) >= SETTING_VALUE_MAX)
        return error_set(err, -EINVAL, "%.40s: the value is longer than %d bytes", key,
                         SETTING_VALUE_MAX - 1);
    for (int i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].key, key) == 0)
            return apply(values, &settings[i], value, err);
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", settings[i].key);
    }
    return error_set(err, -EINVAL, "there is no setting '%.40s'; a job has: %s", key, known);
}

int settings_count(void)
{
    return SETTINGS;
}

const char *settings_key(int index)
{
    return settings[index].key;
}

/* The shortest text that reads back as the same float. */
static void format_number(float number, char *text, size_t size)
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, size, "%.*g", digits, (double)number);
        if (strtof(text, NULL) == number)
            return;
    }
}

const char *settings_format(const JobSettings *values, int index, char *text, size_t size)
{
    const Setting *setting = &settings[index];
    const void *at = (const char *)values + setting->offset;
    switch (setting->kind) {
    case KIND_WHOLE:
        snprintf(text, size, "%u", *(const uint32_t *)at);
        break;
    case KIND_NUMBER:
        format_number(*(const float *)at, text, size);
        break;
    case KIND_WORD:
        snprintf(text, size, "%s", setting->words[*(const unsigned *)at]);
        break;
    case KIND_TEXT:
        snprintf(text, size, "%s", (const char *)at);
        break;
    case KIND_WAIT:
        if (*(const uint32_t *)at)
            snprintf(text, size, "quorum:%u", *(const uint32_t *)at);
        else
            snprintf(text, size, "all");
        break;
    }
    return text;
}
