/* barrier: one set of parameters. Each trainer's gradient is computed on the same numbers, at the
 * same time on different lanes; their mean, in rank order and weighted by samples, makes one
 * optimizer step. A round of K steps is what metrics, settings and checkpoints go by. */
#include "job/policy.h"

const SyncPolicy policy_barrier = {
    .name = "barrier",
    .description =
        "one replica; the gradients of all trainers are averaged, then one optimizer step",
    .pace = PACE_STEP,
    .shared = true,
};
