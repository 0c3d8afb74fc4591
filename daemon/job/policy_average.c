/* average: a replica a trainer; every K steps all live replicas meet and take their mean. */
#include "job/policy.h"

int policy_mean(const PolicyMeeting *meeting, MeanResult *ret, Error *err)
{
    static const MeanStates states[] = {[STATE_KEEP] = MEAN_STATES_KEEP,
                                        [STATE_AVERAGE] = MEAN_STATES_AVERAGE,
                                        [STATE_RESET] = MEAN_STATES_RESET};
    const MeanSpec spec = {
        .samples = meeting->settings->weights == WEIGHTS_SAMPLES ? meeting->samples : NULL,
        .states = states[meeting->settings->state],
    };
    return replicas_mean(meeting->replicas, meeting->contributes, meeting->count, &spec, ret, err);
}

const SyncPolicy policy_average = {
    .name = "average",
    .description = "a replica a trainer; every K steps all live replicas meet and take their mean",
    .pace = PACE_ROUND,
    .combine = policy_mean,
};
