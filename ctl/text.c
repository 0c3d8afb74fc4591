#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/text.h"

/* Decodes one UTF-8 character; returns its bytes, 0 if there is none here. */
static size_t decode(const unsigned char *text, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size;
    uint32_t point;

    if (text[0] < 0x80) {
        *ret = text[0];
        return 1;
    }
    if (text[0] >= 0xC2 && text[0] < 0xE0)
        size = 2;
    else if (text[0] >= 0xE0 && text[0] < 0xF0)
        size = 3;
    else if (text[0] >= 0xF0 && text[0] < 0xF5)
        size = 4;
    else
        return 0;
    point = text[0] & (0xFFU >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xC0) != 0x80) /* the terminating 0 too */
            return 0;
        point = point << 6 | (text[i] & 0x3FU);
    }
    if (point < least[size] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
        return 0;
    *ret = point;
    return size;
}

static int is_harmless(uint32_t point)
{
    if (point < 0x20 || (point >= 0x7F && point < 0xA0))
        return 0;
    if (point == 0x200E || point == 0x200F || (point >= 0x2028 && point <= 0x202E))
        return 0;
    return !(point >= 0x2066 && point <= 0x2069) && point != 0xFEFF;
}

/* Reads at *from and writes at *to, which is not ahead of it. */
static void sanitise_one(const char **from, char **to)
{
    uint32_t point = 0;
    size_t size = decode((const unsigned char *)*from, &point);

    if (size > 0 && is_harmless(point)) {
        memmove(*to, *from, size);
        *to += size;
    } else {
        *(*to)++ = '?';
    }
    *from += size > 0 ? size : 1;
}

char *ctl_sanitise(char *text)
{
    const char *from = text;
    char *to = text;

    if (!text)
        return NULL;
    while (*from)
        sanitise_one(&from, &to);
    *to = '\0';
    return text;
}

const char *ctl_sanitise_to(const char *text, char *buffer, size_t size)
{
    char *to = buffer;

    while (text && *text && (size_t)(to - buffer) + 4 < size)
        sanitise_one(&text, &to);
    *to = '\0';
    return buffer;
}

/* Edits (insert, delete, replace) from a to b; words longer than the table count as far. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t row[LONGEST + 1];
    size_t a_size = strlen(a), b_size = strlen(b);

    if (a_size > LONGEST || b_size > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[b_size];
}

const char *ctl_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t nearest_distance = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        size_t far = distance(word, candidates[i]);
        size_t length = strlen(candidates[i]);
        /* A third of the word may be wrong; a beginning of at least two letters counts as one. */
        if (strlen(word) >= 2 && strncmp(word, candidates[i], strlen(word)) == 0)
            far = 1;
        if (far < nearest_distance && far <= (length + 2) / 3) {
            nearest = candidates[i];
            nearest_distance = far;
        }
    }
    return nearest;
}
