/* average: a replica a rank; every K steps all live replicas meet and take their mean. */
#include "job/policy.h"

static bool must_wait(const Round *round, uint64_t step)
{
    return step >= round->end;
}

const SyncPolicy policy_average = {
    .name = "average",
    .description = "a replica a trainer; every K steps all live replicas meet and take their mean",
    .must_wait = must_wait,
    .combine = replicas_mean,
};
