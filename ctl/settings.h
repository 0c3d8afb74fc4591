/* KEY=VALUE pairs, of `set` and of `submit --set` and `--option`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { SETTINGS_MAX = 64, SETTINGS_TEXT = 8192 };

typedef struct Settings {
    char *keys[SETTINGS_MAX], *values[SETTINGS_MAX]; /* point into text */
    size_t count, used;                              /* pairs; bytes of text */
    char text[SETTINGS_TEXT];
} Settings;

/* Keys are of letters, digits and ._-; a value may be anything but empty, '=' too. -EINVAL: no such
 * pair, a key twice, or too many; `problem` then has the sentence. */
int settings_parse(const char *const *pairs, size_t count, Settings *ret, char *problem,
                   size_t size);
/* One more pair; the same errors. */
int settings_add(Settings *settings, const char *key, const char *value, char *problem,
                 size_t size);
bool settings_has(const Settings *settings, const char *key);
