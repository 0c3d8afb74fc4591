/* Scope-bound cleanup for dpsctl: `_cleanup_free_ char *p` frees p at the end of the scope;
 * `return MOVE(p)` hands it out and leaves NULL behind. dpsctl shares no code with the daemon, so
 * it has its own. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

#define MOVE(pointer)                                                                              \
    ({                                                                                             \
        __typeof__(pointer) moved_ = (pointer);                                                    \
        (pointer) = NULL;                                                                          \
        moved_;                                                                                    \
    })

/* Defines `name##p`, the cleanup function for a type whose destructor takes NULL. */
#define DEFINE_CLEANUP(type, destructor)                                                           \
    static inline void destructor##p(type **pointer)                                               \
    {                                                                                              \
        if (*pointer)                                                                              \
            destructor(*pointer);                                                                  \
    }                                                                                              \
    struct cleanup_needs_a_semicolon

static inline void cleanup_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_fclose(FILE **file)
{
    if (*file)
        fclose(*file);
}

#define _cleanup_free_   _cleanup_(cleanup_free)
#define _cleanup_close_  _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)
