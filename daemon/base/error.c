#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void error_fill(Error *err, int code, const char *format, ...)
{
    if (!err)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = code;
}

int error_prefix(Error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof err->message)
        snprintf(err->message + used, sizeof err->message - (size_t)used, ": %s", old);
    err->code = code;
    return code;
}
