/* What every verb is given: the options that stand before the verb, read by dpsctl.c. */
#pragma once

#include <stdbool.h>

typedef struct CtlOptions {
    const char *address; /* as given, or NULL: DPS_ADDRESS or the default, by client_open */
    bool json;           /* results and errors as JSON */
} CtlOptions;

/* Exit statuses that scripts rely on. */
enum {
    CTL_EXIT_DONE = 0,
    CTL_EXIT_FAILED = 1,
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_NO_JOB = 4,
    CTL_EXIT_UNREACHABLE = 5,
};
