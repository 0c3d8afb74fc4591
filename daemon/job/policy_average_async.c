/* average-async: a replica a trainer; every K steps it takes the mean of all as they stand, waiting
 * for none. The job ends with a meeting all the same: its result is the mean of its replicas. */
#include "job/policy.h"

const SyncPolicy policy_average_async = {
    .name = "average-async",
    .description = "every K steps a replica takes the mean of all as they stand, waiting for none",
    .pace = PACE_FREE,
    .refreshes = true,
    .combine = policy_mean,
};
