#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl/settings.h"

static int is_key(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
            return 0;
    return size > 0;
}

bool settings_has(const Settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->keys[i], key) == 0)
            return true;
    return false;
}

int settings_add(Settings *settings, const char *key, const char *value, char *problem, size_t size)
{
    size_t key_size = strlen(key) + 1, value_size = strlen(value) + 1;
    char *copy = settings->text + settings->used;

    if (settings->count == SETTINGS_MAX ||
        key_size + value_size > sizeof settings->text - settings->used) {
        snprintf(problem, size, "too many settings at once (at most %d)", SETTINGS_MAX);
        return -EINVAL;
    }
    if (settings_has(settings, key)) {
        snprintf(problem, size, "'%s' is given twice", key);
        return -EINVAL;
    }
    settings->keys[settings->count] = memcpy(copy, key, key_size);
    settings->values[settings->count++] = memcpy(copy + key_size, value, value_size);
    settings->used += key_size + value_size;
    return 0;
}

static int add_pair(Settings *settings, const char *pair, char *problem, size_t size)
{
    size_t key_size = strcspn(pair, "=");
    char key[128];

    if (!is_key(pair, key_size) || key_size >= sizeof key || !pair[key_size] ||
        !pair[key_size + 1]) {
        snprintf(problem, size, "'%s' is not KEY=VALUE, such as sync.interval=50", pair);
        return -EINVAL;
    }
    snprintf(key, sizeof key, "%.*s", (int)key_size, pair);
    return settings_add(settings, key, pair + key_size + 1, problem, size);
}

int settings_parse(const char *const *pairs, size_t count, Settings *ret, char *problem,
                   size_t size)
{
    ret->count = ret->used = 0;
    for (size_t i = 0; i < count; i++) {
        int r = add_pair(ret, pairs[i], problem, size);
        if (r < 0)
            return r;
    }
    return 0;
}
