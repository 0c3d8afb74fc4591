/* The Train stream of one session: leases come in, batches that were read ahead go out, results are
 * counted. Main thread. */
#pragma once

#include <stdint.h>

#include "ctl/client.h"
#include "ctl/data/dataset.h"
#include "ctl/trainer/fit.h"
#include "ctl/trainer/progress.h"

typedef enum FeedEnd {
    FEED_DONE,    /* the server's last message: `reason` */
    FEED_ENDED,   /* the stream ended without it: `status` */
    FEED_WRONG,   /* the data set and the leases do not fit: status.message */
    FEED_STOPPED, /* a signal came */
} FeedEnd;

typedef struct FeedOutcome {
    FeedEnd end;
    ClientStatus status;
    char reason[64];
    uint64_t steps; /* that were answered */
} FeedOutcome;

/* accumulate: batches to an optimizer step (group.h), at least 1; above that the window must be
 * GROUP_MIN_WINDOW or more. */
void feed_run(Client *client, uint64_t session, Dataset *dataset, const Fit *fit,
              uint32_t accumulate, Progress *progress, FeedOutcome *ret);
