/* One connection of a trainer: connects, joins, and feeds the Train stream until it ends. What to
 * do then (try again, give up, leave) is for the caller to decide. Main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ctl/client.h"
#include "ctl/data/dataset.h"
#include "ctl/trainer/progress.h"

/* How a link came to its end. */
typedef enum LinkEnd {
    LINK_DONE,    /* the server said Done, or the job had ended: `reason` */
    LINK_LOST,    /* the daemon is not reachable, or the connection broke */
    LINK_AGAIN,   /* the daemon asks to come back, or the session is gone */
    LINK_BUSY,    /* the rank has a trainer already, or there is no free one */
    LINK_NO_JOB,  /* no such job */
    LINK_REFUSED, /* wrong in a way that trying again does not mend */
    LINK_STOPPED, /* a signal came */
} LinkEnd;

typedef struct LinkPlan {
    const char *address; /* NULL: the default */
    uint64_t job;
    bool any_rank; /* else `rank`; set by the first join, so that later ones ask for the same */
    uint32_t rank;
    const char *token; /* of a managed trainer; "" */
    bool managed;
    uint32_t accumulate; /* batches to an optimizer step; 1: each is one */
    Dataset *dataset;
    const char *data; /* its name */
} LinkPlan;

typedef struct LinkResult {
    LinkEnd end;
    ClientStatus status; /* why, except for LINK_DONE and LINK_STOPPED */
    char reason[64];     /* with LINK_DONE: completed, cancelled, failed, left … */
    bool joined;         /* the session was open */
    uint64_t steps;      /* answered on this link */
} LinkResult;

void link_run(LinkPlan *plan, Progress *progress, LinkResult *ret);
