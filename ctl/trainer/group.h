/* Gradient accumulation: which batches are sent with `hold`, so that one optimizer step is taken
 * for `size` of them.
 *
 * A held gradient must be followed by one that is not held, or it is never stepped with; and the
 * server does not say which lease is the last. So a batch is held only when a further lease of its
 * group is in hand already. While answers are due, the next lease may come with them (the server
 * leases a window ahead of what it has answered) and the batch waits; once none is due, only the
 * rest of what the server has just sent can still be on its way, and after GROUP_PATIENCE_MS the
 * batch goes out unheld and closes a smaller group. Thus groups do not depend on how fast leases
 * come, and only the last one can be smaller. That takes leases that come at least two ahead: a
 * window of GROUP_MIN_WINDOW.
 *
 * A group begins with the first batch of a session: what was held by a session before is gone, and
 * a checkpoint lies between groups. Plain values, no I/O. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    GROUP_MIN_WINDOW = 2,
    /* Leases of one window leave dpsd together; that is long on any network. It passes once, before
     * a rank's last batch. */
    GROUP_PATIENCE_MS = 500,
};

typedef struct Group {
    uint32_t size;       /* batches to a step; 1: nothing is held */
    uint32_t held;       /* of the group under way */
    int64_t alone_since; /* monotonic ms: a batch without a successor waits; 0: none does */
} Group;

typedef enum GroupVerdict {
    GROUP_STEP, /* send it: its step takes what is held along */
    GROUP_HOLD, /* send it with hold */
    GROUP_WAIT, /* ask again when a lease or an answer comes, or in group_wait_ms */
} GroupVerdict;

/* What is to be done with the batch in front. has_next: a lease behind it is in hand; answers_due:
 * batches were sent that are not answered. */
GroupVerdict group_judge(Group *group, bool has_next, bool answers_due, int64_t now_ms);
/* It was sent as told. */
void group_sent(Group *group, GroupVerdict verdict);
/* Milliseconds until a batch that waits is to be judged again; -1: no time is set. */
int group_wait_ms(const Group *group, int64_t now_ms);
