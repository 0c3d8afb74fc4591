/* diloco: the mean change of a round is a gradient for an outer step of SGD with Nesterov momentum
 * (Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023).
 * With outer learning rate 1 and momentum 0 it is average, bit for bit. */
#include "job/policy.h"

static int combine(const PolicyMeeting *meeting, MeanResult *ret, Error *err)
{
    const JobSettings *settings = meeting->settings;
    const OuterRule rule = {.lr = settings->outer_lr, .momentum = settings->outer_momentum};
    const MeanSpec spec = {.samples =
                               settings->weights == WEIGHTS_SAMPLES ? meeting->samples : NULL};
    return replicas_outer(meeting->replicas, meeting->contributes, meeting->count, meeting->centre,
                          &rule, &spec, ret, err);
}

const SyncPolicy policy_diloco = {
    .name = "diloco",
    .description = "the mean change of K steps is a gradient for an outer Nesterov step",
    .pace = PACE_ROUND,
    .centre = true,
    .combine = combine,
};
