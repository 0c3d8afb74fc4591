/* A version of shared parameters, as shared.c keeps it and contexts read it. Internal to
 * daemon/replica. */
#pragma once

#include "replica/shared.h"

struct SharedVersion {
    Engine *engine; /* whose device allocated it */
    float *params;
    uint64_t number;
    unsigned holds;      /* the loop's */
    SharedVersion *next; /* among the spare ones */
};
