#include "backend/backends.h"

#include <stdio.h>
#include <string.h>

int backend_count(void)
{
    return backend_table_length;
}

const Backend *backend_entry(int index)
{
    return backend_table[index];
}

static const char *list_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < backend_table_length && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 backend_table[i]->name);
    return text;
}

int backend_find(const char *name, const Backend **ret, Error *err)
{
    if (!name || !*name || strcmp(name, "auto") == 0) {
        *ret = backend_table[0];
        return 0;
    }
    for (int i = 0; i < backend_table_length; i++) {
        if (strcmp(name, backend_table[i]->name) == 0) {
            *ret = backend_table[i];
            return 0;
        }
    }
    char names[128];
    return error_set(err, -ENOENT, "no backend \"%.40s\" in this build; there are: %s", name,
                     list_names(names, sizeof names));
}
