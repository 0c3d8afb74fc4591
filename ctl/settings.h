/* KEY=VALUE pairs, of `set` and of `submit --option`. */
#pragma once

#include <stddef.h>

enum { SETTINGS_MAX = 64, SETTINGS_TEXT = 8192 };

typedef struct Settings {
    char *keys[SETTINGS_MAX], *values[SETTINGS_MAX]; /* point into text */
    size_t count;
    char text[SETTINGS_TEXT];
} Settings;

/* Keys are of letters, digits and ._-; a value may be anything but empty, '=' too. -EINVAL: no such
 * pair, a key twice, or too many; `problem` then has the sentence. */
int settings_parse(const char *const *pairs, size_t count, Settings *ret, char *problem,
                   size_t size);
