#include "rpc/method.h"

#include <string.h>

/* Some forty paths, each compared up to its first difference: a map would not be noticed. */
const Method *method_find(const MethodTable *tables, size_t n_tables, const char *path,
                          void **ret_server)
{
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].n; i++)
            if (strcmp(tables[t].methods[i].path, path) == 0) {
                *ret_server = tables[t].server;
                return &tables[t].methods[i];
            }
    return NULL;
}

/* Length of "/service/" in a path; 0 where it has no such form. */
static size_t service_length(const char *path)
{
    if (path[0] != '/')
        return 0;
    const char *slash = strchr(path + 1, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

bool method_service_exists(const MethodTable *tables, size_t n_tables, const char *path)
{
    size_t length = service_length(path);
    if (length == 0)
        return false;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].n; i++)
            if (strncmp(tables[t].methods[i].path, path, length) == 0)
                return true;
    return false;
}
