/* Errors: a negative errno says what kind, an Error carries the sentence for the person who reads
 * it.
 *
 * A function that can fail for a reason worth a sentence takes `Error *err` last; NULL is allowed
 * and means that the caller does not want the sentence. The sentence names the thing and the
 * remedy. No thread affinity: an Error belongs to whoever declared it. */
#pragma once

#include <errno.h>

typedef struct Error {
    int code; /* 0 or a negative errno */
    char message[480];
} Error;

/* Fills *err (if any) and gives code, so that `return error_set(err, -EINVAL, "…")` reads well. A
 * macro, so that static analysis sees that what it gives is the code. */
#define error_set(err, code, ...)                                                                  \
    ({                                                                                             \
        int error_code_ = (code);                                                                  \
        error_fill((err), error_code_, __VA_ARGS__);                                               \
        error_code_;                                                                               \
    })
void error_fill(Error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the sentence that is already there; returns err->code (or code if err is
 * NULL). */
int error_prefix(Error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
