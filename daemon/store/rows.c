#include "store/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int text_copy(const char *text, char **ret)
{
    char *copy = strdup(text ? text : "");
    if (!copy)
        return -ENOMEM;
    *ret = copy;
    return 0;
}

int rows_grow(void **rows, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return 0;
    size_t larger = *capacity ? 2 * *capacity : 16;
    void *moved = reallocarray(*rows, larger, size);
    if (!moved)
        return -ENOMEM;
    memset((char *)moved + n * size, 0, (larger - n) * size);
    *rows = moved;
    *capacity = larger;
    return 0;
}
