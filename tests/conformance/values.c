#include "values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NAME_BYTES = 64, MAX_RECORDS = 1024 };

static struct {
    char name[NAME_BYTES];
    Array values;
} records[MAX_RECORDS];
static int n_records;

static bool read_record(FILE *file)
{
    uint64_t n = 0;
    char *name = records[n_records].name;
    if (fread(name, NAME_BYTES, 1, file) != 1)
        return false; /* the end */
    assert_true(fread(&n, sizeof n, 1, file) == 1 && n < 1000000 && name[NAME_BYTES - 1] == '\0');
    float *data = malloc((size_t)n * sizeof *data + 1);
    assert_non_null(data);
    records[n_records].values = (Array){data, (size_t)n};
    assert_true(fread(data, sizeof *data, (size_t)n, file) == n);
    n_records++;
    return true;
}

void values_open(void)
{
    FILE *file = fopen(TORCH_VALUES, "rb");
    if (!file)
        fail_msg("%s cannot be read", TORCH_VALUES);
    while (n_records < MAX_RECORDS && read_record(file))
        ;
    assert_true(feof(file));
    fclose(file);
}

void values_close(void)
{
    while (n_records > 0)
        free(records[--n_records].values.data);
}

static const Array *find(const char *name)
{
    for (int i = 0; i < n_records; i++)
        if (strcmp(records[i].name, name) == 0)
            return &records[i].values;
    return NULL;
}

const Array *values_find(const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return find(name);
}

const float *values_get(size_t n, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const Array *values = find(name);
    if (values && values->n == n)
        return values->data;
    fail_msg("torch.bin has no record \"%s\" of %zu values", name, n);
    return NULL;
}

uint32_t stream_of(const char *name)
{
    uint32_t hash = 0x811C9DC5;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x01000193;
    return hash;
}
