#include "model/optimizer.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SGD = 1 << OPTIMIZER_SGD, ADAMS = 1 << OPTIMIZER_ADAM | 1 << OPTIMIZER_ADAMW, ALL = 7 };

typedef enum Range { RANGE_ANY, RANGE_NOT_NEGATIVE, RANGE_BETA, RANGE_FLAG } Range;

static const char *const range_text[] = {
    [RANGE_ANY] = "a number",
    [RANGE_NOT_NEGATIVE] = "a number, 0 or more",
    [RANGE_BETA] = "a number from 0 to below 1",
    [RANGE_FLAG] = "true or false",
};

/* The settings that the text may name; ranges are torch.optim's. */
static const struct Setting {
    const char *key;
    unsigned kinds;
    Range range;
    size_t offset; /* of a float, or of a bool for RANGE_FLAG */
} settings[] = {
    {"lr", ALL, RANGE_NOT_NEGATIVE, offsetof(Optimizer, lr)},
    {"weight_decay", ALL, RANGE_NOT_NEGATIVE, offsetof(Optimizer, weight_decay)},
    {"momentum", SGD, RANGE_NOT_NEGATIVE, offsetof(Optimizer, momentum)},
    {"dampening", SGD, RANGE_ANY, offsetof(Optimizer, dampening)},
    {"nesterov", SGD, RANGE_FLAG, offsetof(Optimizer, nesterov)},
    {"beta1", ADAMS, RANGE_BETA, offsetof(Optimizer, beta1)},
    {"beta2", ADAMS, RANGE_BETA, offsetof(Optimizer, beta2)},
    {"eps", ADAMS, RANGE_NOT_NEGATIVE, offsetof(Optimizer, eps)},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static const struct {
    const char *name;
    Optimizer defaults; /* torch.optim's, but for lr, which the model gives */
} optimizers[] = {
    {"sgd", {.kind = OPTIMIZER_SGD}},
    {"adam", {.kind = OPTIMIZER_ADAM, .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F}},
    {"adamw",
     {.kind = OPTIMIZER_ADAMW,
      .beta1 = 0.9F,
      .beta2 = 0.999F,
      .eps = 1e-8F,
      .weight_decay = 1e-2F}},
};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static float *setting_float(Optimizer *optimizer, const struct Setting *setting)
{
    return (float *)(void *)((char *)optimizer + setting->offset);
}

static bool *setting_flag(Optimizer *optimizer, const struct Setting *setting)
{
    return (bool *)((char *)optimizer + setting->offset);
}

static int find_optimizer(const char *name, Optimizer *ret, Error *err)
{
    for (int i = 0; i < N_OPTIMIZERS; i++) {
        if (strcmp(optimizers[i].name, name) == 0) {
            *ret = optimizers[i].defaults;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "no optimizer is called \"%s\"; there are sgd, adam and adamw",
                     name);
}

static int unknown_key(const Optimizer *optimizer, const char *key, Error *err)
{
    char list[128] = "";
    for (int i = 0; i < N_SETTINGS; i++) {
        size_t used = strlen(list);
        if (settings[i].kinds & 1U << optimizer->kind)
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", settings[i].key);
    }
    return error_set(err, -EINVAL, "%s does not take \"%s\"; it takes %s",
                     optimizers[optimizer->kind].name, key, list);
}

static bool parse_flag(const char *value, bool *ret)
{
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (!yes && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
        return false;
    *ret = yes;
    return true;
}

static bool parse_number(const char *value, Range range, float *ret)
{
    char *end;
    float number = strtof(value, &end);
    if (end == value || *end || !isfinite(number))
        return false;
    if (range != RANGE_ANY && number < 0)
        return false;
    if (range == RANGE_BETA && number >= 1)
        return false;
    *ret = number;
    return true;
}

/* key=value, both cut out of the text. */
static int parse_setting(Optimizer *optimizer, char *pair, Error *err)
{
    char *value = strchr(pair, '=');
    if (!value)
        return error_set(err, -EINVAL, "optimizer setting \"%s\" must be KEY=VALUE", pair);
    *value++ = '\0';
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct Setting *setting = &settings[i];
        if (!(setting->kinds & 1U << optimizer->kind) || strcmp(setting->key, pair) != 0)
            continue;
        bool good = setting->range == RANGE_FLAG
                        ? parse_flag(value, setting_flag(optimizer, setting))
                        : parse_number(value, setting->range, setting_float(optimizer, setting));
        if (good)
            return 0;
        return error_set(err, -EINVAL, "%s of %s must be %s, not \"%s\"", pair,
                         optimizers[optimizer->kind].name, range_text[setting->range], value);
    }
    return unknown_key(optimizer, pair, err);
}

static int check_together(const Optimizer *optimizer, Error *err)
{
    if (optimizer->nesterov && !(optimizer->momentum > 0 && optimizer->dampening == 0))
        return error_set(err, -EINVAL,
                         "nesterov of sgd needs momentum above 0 and no dampening, but momentum is "
                         "%g and dampening %g",
                         (double)optimizer->momentum, (double)optimizer->dampening);
    return 0;
}

int optimizer_parse(const char *text, float default_lr, Optimizer *ret, Error *err)
{
    char copy[OPTIMIZER_TEXT_MAX], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return error_set(err, -EINVAL, "the optimizer's text must be shorter than %d characters",
                         OPTIMIZER_TEXT_MAX);
    snprintf(copy, sizeof copy, "%s", text);
    Optimizer optimizer;
    int r = find_optimizer(strsep(&rest, ","), &optimizer, err);
    if (r < 0)
        return r;
    optimizer.lr = default_lr;
    while (rest) {
        r = parse_setting(&optimizer, strsep(&rest, ","), err);
        if (r < 0)
            return r;
    }
    r = check_together(&optimizer, err);
    if (r < 0)
        return r;
    *ret = optimizer;
    return 0;
}

/* The shortest decimal that reads back as the same float. */
static void format_float(float value, char *text, size_t size)
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, size, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return;
    }
}

const char *optimizer_format(const Optimizer *optimizer, char *text, size_t size)
{
    Optimizer now = *optimizer, defaults = optimizers[optimizer->kind].defaults;
    defaults.lr = now.lr;
    size_t used = (size_t)snprintf(text, size, "%s", optimizers[optimizer->kind].name);
    for (int i = 0; i < N_SETTINGS && used < size; i++) {
        const struct Setting *setting = &settings[i];
        char value[32] = "true";
        if (!(setting->kinds & 1U << optimizer->kind))
            continue;
        if (setting->range == RANGE_FLAG) {
            if (!*setting_flag(&now, setting))
                continue;
        } else {
            if (*setting_float(&now, setting) == *setting_float(&defaults, setting))
                continue;
            format_float(*setting_float(&now, setting), value, sizeof value);
        }
        used += (size_t)snprintf(text + used, size - used, ",%s=%s", setting->key, value);
    }
    return text;
}

int optimizer_state_count(const Optimizer *optimizer)
{
    if (optimizer->kind == OPTIMIZER_SGD)
        return optimizer->momentum > 0 ? 1 : 0;
    return 2;
}
