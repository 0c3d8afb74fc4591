/* The settings that a job is known to have. dpsd alone decides what there is and what it takes;
 * this table is for help, for near misses, and for leaving unsaid what is as usual. Pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ctl/settings.h"

typedef struct KnownSetting {
    const char *key;
    const char
        *usual; /* dpsd's default; NULL: it has none, or status shows the value in any case */
} KnownSetting;

extern const KnownSetting known_settings[];
extern const size_t known_settings_count;

/* NULL: not known here. */
const KnownSetting *known_setting_find(const char *key);
/* Whether the value is the default, as text or as a number ("0.50" is 0.5). */
bool known_setting_is_usual(const KnownSetting *setting, const char *value);

/* The first key that is not known but near one that is; *ret_meant is that one. NULL: none. */
const char *known_settings_misspelt(const Settings *settings, const char **ret_meant);
