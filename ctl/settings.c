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

static int add(Settings *settings, size_t *used, const char *pair, char *problem, size_t size)
{
    size_t length = strlen(pair), key_size = strcspn(pair, "=");
    char *copy = settings->text + *used;

    if (!is_key(pair, key_size) || key_size + 1 >= length) {
        snprintf(problem, size, "'%s' is not KEY=VALUE", pair);
        return -EINVAL;
    }
    if (settings->count == SETTINGS_MAX || length + 1 > sizeof settings->text - *used) {
        snprintf(problem, size, "too many settings at once (at most %d)", SETTINGS_MAX);
        return -EINVAL;
    }
    memcpy(copy, pair, length + 1);
    copy[key_size] = '\0';
    for (size_t i = 0; i < settings->count; i++) {
        if (strcmp(settings->keys[i], copy) == 0) {
            snprintf(problem, size, "'%s' is given twice", copy);
            return -EINVAL;
        }
    }
    settings->keys[settings->count] = copy;
    settings->values[settings->count++] = copy + key_size + 1;
    *used += length + 1;
    return 0;
}

int settings_parse(const char *const *pairs, size_t count, Settings *ret, char *problem,
                   size_t size)
{
    size_t used = 0;

    ret->count = 0;
    for (size_t i = 0; i < count; i++) {
        int r = add(ret, &used, pairs[i], problem, size);
        if (r < 0)
            return r;
    }
    return 0;
}
