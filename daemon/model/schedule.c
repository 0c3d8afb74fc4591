#include "model/schedule.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONSTANT = 1 << SCHEDULE_CONSTANT,
    STEP = 1 << SCHEDULE_STEP,
    COSINE = 1 << SCHEDULE_COSINE
};

typedef enum Range { RANGE_STEPS, RANGE_STEPS_OR_NONE, RANGE_NOT_NEGATIVE } Range;

static const char *const range_text[] = {
    [RANGE_STEPS] = "a number of steps, 1 or more",
    [RANGE_STEPS_OR_NONE] = "a number of steps, 0 or more",
    [RANGE_NOT_NEGATIVE] = "a number, 0 or more",
};

/* The settings that the text may name. */
static const struct Setting {
    const char *key;
    unsigned kinds;
    Range range;
    bool required;
    size_t offset; /* of a double for RANGE_NOT_NEGATIVE, else of a uint64_t */
} settings[] = {
    {"every", STEP, RANGE_STEPS, true, offsetof(Schedule, every)},
    {"gamma", STEP, RANGE_NOT_NEGATIVE, false, offsetof(Schedule, gamma)},
    {"steps", COSINE, RANGE_STEPS, true, offsetof(Schedule, steps)},
    {"min", COSINE, RANGE_NOT_NEGATIVE, false, offsetof(Schedule, min)},
    {"warmup", CONSTANT | STEP | COSINE, RANGE_STEPS_OR_NONE, false, offsetof(Schedule, warmup)},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static const struct {
    const char *name;
    Schedule defaults; /* torch.optim.lr_scheduler's */
} schedules[] = {
    [SCHEDULE_CONSTANT] = {"constant", {.kind = SCHEDULE_CONSTANT}},
    [SCHEDULE_STEP] = {"step", {.kind = SCHEDULE_STEP, .gamma = 0.1}},
    [SCHEDULE_COSINE] = {"cosine", {.kind = SCHEDULE_COSINE}},
};
enum { N_SCHEDULES = sizeof schedules / sizeof schedules[0] };

static uint64_t *setting_steps(Schedule *schedule, const struct Setting *setting)
{
    return (uint64_t *)(void *)((char *)schedule + setting->offset);
}

static double *setting_number(Schedule *schedule, const struct Setting *setting)
{
    return (double *)(void *)((char *)schedule + setting->offset);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int find_schedule(const char *name, Schedule *ret, Error *err)
{
    if (!*name)
        name = schedules[SCHEDULE_CONSTANT].name;
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcmp(schedules[i].name, name) == 0) {
            *ret = schedules[i].defaults;
            return 0;
        }
    }
    return error_set(err, -EINVAL,
                     "no learning-rate schedule is called \"%s\"; there are constant, step and "
                     "cosine",
                     name);
}

static int unknown_key(const Schedule *schedule, const char *key, Error *err)
{
    char list[64] = "";
    for (int i = 0; i < N_SETTINGS; i++) {
        size_t used = strlen(list);
        if (settings[i].kinds & 1U << schedule->kind)
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", settings[i].key);
    }
    return error_set(err, -EINVAL, "schedule %s does not take \"%s\"; it takes %s",
                     schedules[schedule->kind].name, key, list);
}

static bool parse_steps(const char *value, uint64_t least, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long steps = strtoull(value, &end, 10);
    if (errno || *value < '0' || *value > '9' || *end || steps < least)
        return false;
    *ret = steps;
    return true;
}

static bool parse_number(const char *value, double *ret)
{
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number) || number < 0)
        return false;
    *ret = number;
    return true;
}

/* key=value, both cut out of the text. */
static int parse_setting(Schedule *schedule, char *pair, unsigned *given, Error *err)
{
    char *value = strchr(pair, '=');
    if (!value)
        return error_set(err, -EINVAL, "schedule setting \"%s\" must be KEY=VALUE", pair);
    *value++ = '\0';
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct Setting *setting = &settings[i];
        if (!(setting->kinds & 1U << schedule->kind) || strcmp(setting->key, pair) != 0)
            continue;
        bool good = setting->range == RANGE_NOT_NEGATIVE
                        ? parse_number(value, setting_number(schedule, setting))
                        : parse_steps(value, setting->range == RANGE_STEPS,
                                      setting_steps(schedule, setting));
        *given |= 1U << i;
        if (good)
            return 0;
        return error_set(err, -EINVAL, "%s of schedule %s must be %s, not \"%s\"", pair,
                         schedules[schedule->kind].name, range_text[setting->range], value);
    }
    return unknown_key(schedule, pair, err);
}

static int check_required(const Schedule *schedule, unsigned given, Error *err)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct Setting *setting = &settings[i];
        if (setting->required && setting->kinds & 1U << schedule->kind && !(given & 1U << i))
            return error_set(err, -EINVAL, "schedule %s needs %s=N, %s",
                             schedules[schedule->kind].name, setting->key,
                             range_text[setting->range]);
    }
    return 0;
}

int schedule_parse(const char *text, Schedule *ret, Error *err)
{
    char copy[SCHEDULE_TEXT_MAX], *rest = copy;
    unsigned given = 0;
    if (strlen(text) >= sizeof copy)
        return error_set(err, -EINVAL, "the schedule's text must be shorter than %d characters",
                         SCHEDULE_TEXT_MAX);
    snprintf(copy, sizeof copy, "%s", text);
    Schedule schedule = {0};
    int r = find_schedule(strsep(&rest, ","), &schedule, err);
    while (r == 0 && rest)
        r = parse_setting(&schedule, strsep(&rest, ","), &given, err);
    if (r == 0)
        r = check_required(&schedule, given, err);
    if (r == 0)
        *ret = schedule;
    return r;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same double. */
static void format_number(double value, char *text, size_t size)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

const char *schedule_format(const Schedule *schedule, char *text, size_t size)
{
    Schedule now = *schedule, defaults = schedules[schedule->kind].defaults;
    size_t used = (size_t)snprintf(text, size, "%s", schedules[schedule->kind].name);
    for (int i = 0; i < N_SETTINGS && used < size; i++) {
        const struct Setting *setting = &settings[i];
        char value[32];
        if (!(setting->kinds & 1U << schedule->kind))
            continue;
        if (setting->range == RANGE_NOT_NEGATIVE) {
            double number = *setting_number(&now, setting);
            if (number == *setting_number(&defaults, setting))
                continue;
            format_number(number, value, sizeof value);
        } else {
            uint64_t steps = *setting_steps(&now, setting);
            if (steps == *setting_steps(&defaults, setting))
                continue;
            snprintf(value, sizeof value, "%llu", (unsigned long long)steps);
        }
        used += (size_t)snprintf(text + used, size - used, ",%s=%s", setting->key, value);
    }
    return text;
}

/* ---- the rate -------------------------------------------------------------------------------- */

static double rate_constant(const Schedule *schedule, double lr, uint64_t t)
{
    (void)schedule;
    (void)t;
    return lr;
}

static double rate_step(const Schedule *schedule, double lr, uint64_t t)
{
    uint64_t cuts = t / schedule->every;
    return lr * pow(schedule->gamma, (double)cuts);
}

static double rate_cosine(const Schedule *schedule, double lr, uint64_t t)
{
    if (t >= schedule->steps)
        return schedule->min;
    double angle = M_PI * (double)t / (double)schedule->steps;
    return schedule->min + (lr - schedule->min) * (1 + cos(angle)) / 2;
}

float schedule_lr(const Schedule *schedule, float lr, uint64_t step)
{
    static double (*const rates[])(const Schedule *, double, uint64_t) = {
        [SCHEDULE_CONSTANT] = rate_constant,
        [SCHEDULE_STEP] = rate_step,
        [SCHEDULE_COSINE] = rate_cosine,
    };
    if (step < schedule->warmup)
        return (float)((double)lr * (double)step / (double)schedule->warmup);
    return (float)rates[schedule->kind](schedule, (double)lr, step - schedule->warmup);
}
