/* Finds the method for a request's path. */
#pragma once

#include "rpc/call.h"

/* NULL: none. Otherwise *ret_server is what the method's table was registered with. */
const Method *method_find(const MethodTable *tables, size_t n_tables, const char *path,
                          void **ret_server);
/* Whether some method belongs to the service of "/service/method". */
bool method_service_exists(const MethodTable *tables, size_t n_tables, const char *path);
