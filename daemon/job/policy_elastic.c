/* elastic: EASGD (Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", 2015), the
 * synchronous form: every K steps replicas and centre draw each other nearer by the coefficient α.
 * The centre is the job's result. */
#include "job/policy.h"

static int combine(const PolicyMeeting *meeting, MeanResult *ret, Error *err)
{
    return replicas_elastic(meeting->replicas, meeting->contributes, meeting->count,
                            meeting->centre, meeting->settings->alpha, ret, err);
}

const SyncPolicy policy_elastic = {
    .name = "elastic",
    .description = "a replica a trainer and a centre, which draw each other nearer every K steps",
    .pace = PACE_ROUND,
    .centre = true,
    .centre_is_result = true,
    .combine = combine,
};
