#include <stdlib.h>
#include <string.h>

#include "ctl/known_settings.h"
#include "ctl/text.h"

const KnownSetting known_settings[] = {
    {"sync.policy", NULL},
    {"sync.interval", NULL},
    {"sync.weights", "uniform"},
    {"sync.state", "keep"},
    {"sync.wait", "all"},
    {"sync.timeout", "10"},
    {"sync.max_staleness", "64"},
    {"sync.on_stale", "reject"},
    {"sync.alpha", NULL},
    {"sync.outer_lr", "0.7"},
    {"sync.outer_momentum", "0.9"},
    {"optimizer.lr", NULL},
    {"optimizer.schedule", "constant"},
    {"optimizer.clip", "0"},
    {"guard.norm", "0"},
    {"guard.strikes", "3"},
    {"trainers", NULL},
    {"checkpoint.rounds", "4"},
    {"checkpoint.keep", "3"},
    {"eval.every", "0"},
};

enum { KNOWN = sizeof known_settings / sizeof *known_settings };

const size_t known_settings_count = KNOWN;

const KnownSetting *known_setting_find(const char *key)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(known_settings[i].key, key) == 0)
            return &known_settings[i];
    return NULL;
}

bool known_setting_is_usual(const KnownSetting *setting, const char *value)
{
    char *value_end, *usual_end;
    float number, usual;

    if (!setting->usual)
        return false;
    if (strcmp(setting->usual, value) == 0)
        return true;
    number = strtof(value, &value_end);
    usual = strtof(setting->usual, &usual_end);
    return value_end != value && !*value_end && !*usual_end && number == usual;
}

/* "alpha" is meant for sync.alpha. */
static const char *with_prefix(const char *key)
{
    for (size_t i = 0; i < KNOWN; i++) {
        const char *dot = strchr(known_settings[i].key, '.');
        if (dot && strcmp(dot + 1, key) == 0)
            return known_settings[i].key;
    }
    return NULL;
}

const char *known_settings_misspelt(const Settings *settings, const char **ret_meant)
{
    const char *keys[KNOWN];

    for (size_t i = 0; i < KNOWN; i++)
        keys[i] = known_settings[i].key;
    for (size_t i = 0; i < settings->count; i++) {
        if (known_setting_find(settings->keys[i]))
            continue;
        *ret_meant = with_prefix(settings->keys[i]);
        if (!*ret_meant)
            *ret_meant = ctl_nearest(settings->keys[i], keys, KNOWN);
        if (*ret_meant)
            return settings->keys[i];
    }
    return NULL;
}
