/* Sentences about what is wrong with a file. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Fills problem, if there is one. */
#define problem_write(problem, size, ...)                                                          \
    ((problem) != NULL && (size) > 0 ? (void)snprintf(problem, size, __VA_ARGS__) : (void)0)

/* The same, and gives code, so that `return problem_set(…, -EINVAL, "…")` reads well. A macro, so
 * that analysers see what is returned. */
#define problem_set(problem, size, code, ...) (problem_write(problem, size, __VA_ARGS__), (code))

/* "PATH: what the system said", from errno. */
static inline int problem_errno(char *problem, size_t size, const char *path)
{
    int code = errno > 0 ? errno : EIO;

    return problem_set(problem, size, -code, "%s: %s", path, strerror(code));
}
