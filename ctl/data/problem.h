/* Sentences about what is wrong with a file. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Fills problem (if any) and returns code, so that `return problem_set(…, -EINVAL, "…")` reads
 * well. */
__attribute__((format(printf, 4, 5))) static inline int problem_set(char *problem, size_t size,
                                                                    int code, const char *format,
                                                                    ...)
{
    va_list args;

    if (problem && size > 0) {
        va_start(args, format);
        vsnprintf(problem, size, format, args);
        va_end(args);
    }
    return code;
}
