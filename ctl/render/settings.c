#include "ctl/render/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/known_settings.h"
#include "ctl/render/units.h"

typedef Dps__V1__JobStatus__SettingsEntry Entry;

char *settings_policy(const Dps__V1__JobStatus *job, char *text, size_t size)
{
    bool shared = strcmp(job->policy, "barrier") == 0 || strcmp(job->policy, "async") == 0;

    snprintf(text, size, shared ? "%s, rounds of %" PRIu32 : "%s every %" PRIu32, job->policy,
             job->interval);
    return text;
}

const char *settings_value(const Dps__V1__JobStatus *job, const char *key)
{
    for (size_t i = 0; i < job->n_settings; i++)
        if (strcmp(job->settings[i]->key, key) == 0)
            return job->settings[i]->value;
    return NULL;
}

/* A float over the wire may have nine digits where fewer say the same. */
static const char *shorten(const char *value, char buffer[static UNITS_SIZE])
{
    char *end;
    float number = strtof(value, &end);

    if (end == value || *end || !isfinite(number) || !strchr(value, '.'))
        return value;
    return units_float(number, buffer);
}

static void append(char *text, size_t size, const char *name, const char *value)
{
    char number[UNITS_SIZE];
    size_t used = strlen(text);

    snprintf(text + used, size - used, ", %s %s", name, shorten(value, number));
}

static bool is_of(const char *key, const char *group)
{
    return strncmp(key, group, strlen(group)) == 0;
}

/* Appends the entry of this key, if it is there and not as usual. */
static void append_unusual(const Dps__V1__JobStatus *job, const KnownSetting *known,
                           const char *name, char *text, size_t size)
{
    for (size_t i = 0; i < job->n_settings; i++) {
        const Entry *entry = job->settings[i];
        if (strcmp(entry->key, known->key) == 0 && !known_setting_is_usual(known, entry->value))
            append(text, size, name, entry->value);
    }
}

/* What has no usual value is shown elsewhere, but for that of the policy in force. */
static bool may_be_unusual(const Dps__V1__JobStatus *job, const KnownSetting *known)
{
    return known->usual ||
           (strcmp(known->key, "sync.alpha") == 0 && strcmp(job->policy, "elastic") == 0);
}

/* In dpsd's order first, then what it has and we do not know. */
char *settings_unusual(const Dps__V1__JobStatus *job, const char *group, char *text, size_t size)
{
    *text = '\0';
    for (size_t k = 0; k < known_settings_count; k++) {
        const KnownSetting *known = &known_settings[k];
        if (may_be_unusual(job, known) && is_of(known->key, group))
            append_unusual(job, known, known->key + strlen(group), text, size);
    }
    for (size_t i = 0; i < job->n_settings; i++) {
        const Entry *entry = job->settings[i];
        if (is_of(entry->key, group) && !known_setting_find(entry->key))
            append(text, size, entry->key + strlen(group), entry->value);
    }
    return text;
}

/* Whether some setting that we know stands in the same group: alike up to the dot. */
static bool has_known_group(const char *key)
{
    size_t group_size = strcspn(key, ".");

    for (size_t k = 0; k < known_settings_count; k++)
        if (strcspn(known_settings[k].key, ".") == group_size && key[group_size] == '.' &&
            strncmp(known_settings[k].key, key, group_size) == 0)
            return true;
    return false;
}

char *settings_unknown(const Dps__V1__JobStatus *job, char *text, size_t size)
{
    *text = '\0';
    for (size_t i = 0; i < job->n_settings; i++) {
        const Entry *entry = job->settings[i];
        if (!known_setting_find(entry->key) && !has_known_group(entry->key))
            append(text, size, entry->key, entry->value);
    }
    return text;
}
