/* From a gradient to a step: judged, held or joined with what is held, clipped, applied. */
#include <math.h>

#include "replica/replica_internal.h"

/* torch.nn.utils.clip_grad_norm_ adds it to the norm. */
static const double clip_epsilon = 1e-6;

/* Squares of floats do not overflow in double: the norm is finite where every element is. */
int gradient_judge(const Accelerator *accelerator, const float *gradients, size_t n,
                   const StepRule *rule, StepVerdict *verdict, double *norm)
{
    double norm2 = 0;
    int r = accelerator_norm2(accelerator, gradients, n, &norm2);
    if (r < 0)
        return r;
    *norm = sqrt(norm2);
    if (!isfinite(*norm))
        *verdict = STEP_NOT_FINITE;
    else if (rule->norm_limit > 0 && *norm > rule->norm_limit)
        *verdict = STEP_OVER_LIMIT;
    else
        *verdict = STEP_APPLIED;
    return 0;
}

int gradient_clip(const Accelerator *accelerator, const float *from, float *to, size_t n,
                  double norm, float clip_norm, bool *scaled)
{
    float factor = (float)((double)clip_norm / (norm + clip_epsilon));
    *scaled = clip_norm > 0 && factor < 1;
    return *scaled ? accelerator_weighted_sum(accelerator, &from, &factor, 1, to, 0, n) : 0;
}

/* ---- accumulation ---------------------------------------------------------------------------- */

int replica_reserve_held(Replica *replica, const StepRule *rule, Error *err)
{
    if (!rule->hold || replica->held)
        return 0;
    int r = replica_alloc(replica, &replica->held);
    if (r < 0)
        return error_set(err, r, "not enough memory for the held gradients of replica %d",
                         replica->rank);
    return 0;
}

/* held += samples · gradients */
static int hold(Replica *replica, const float *gradients, int64_t samples)
{
    const float *arrays[] = {replica->held, gradients};
    float weights[] = {replica->held_samples > 0 ? 1 : 0, (float)samples};
    int r = accelerator_weighted_sum(engine_accelerator(replica->engine), arrays, weights, 2,
                                     replica->held, 0, replica->weights.n_params);
    if (r == 0)
        replica->held_samples += samples;
    return r;
}

/* gradients = (held + samples · gradients) / all samples; what is held stays, in case that the step
 * is refused and the batch comes again. */
static int join_held(Replica *replica, float *gradients, int64_t samples)
{
    const Accelerator *accelerator = engine_accelerator(replica->engine);
    const float *arrays[] = {replica->held, gradients}, *sum = gradients;
    const float weights[] = {1, (float)samples};
    float share = (float)(1.0 / (double)(replica->held_samples + samples));
    size_t n = replica->weights.n_params;
    int r = accelerator_weighted_sum(accelerator, arrays, weights, 2, gradients, 0, n);
    if (r < 0)
        return r;
    return accelerator_weighted_sum(accelerator, &sum, &share, 1, gradients, 0, n);
}

int64_t replica_held(const Replica *replica)
{
    return replica->held_samples;
}

void replica_drop_held(Replica *replica)
{
    replica->held_samples = 0;
}

static int judge(const Replica *replica, const float *gradients, const StepRule *rule,
                 StepResult *result)
{
    result->verdict = STEP_APPLIED;
    result->gradient_norm = 0;
    if (!rule->want_norm && !(rule->clip_norm > 0) && !(rule->norm_limit > 0))
        return 0;
    return gradient_judge(engine_accelerator(replica->engine), gradients, replica->weights.n_params,
                          rule, &result->verdict, &result->gradient_norm);
}

/* A gradient that is fit to be used goes to the others that are held, or takes them with it. */
static int hold_or_join(Replica *replica, float *gradients, int64_t samples, const StepRule *rule,
                        StepResult *result)
{
    int r = 0;
    if (rule->hold) {
        r = hold(replica, gradients, samples);
        result->verdict = STEP_HELD;
        result->samples = replica->held_samples;
    } else if (replica->held_samples > 0) {
        r = join_held(replica, gradients, samples);
        result->samples = replica->held_samples + samples;
        if (r == 0)
            r = judge(replica, gradients, rule, result);
    }
    return r;
}

int replica_settle(Replica *replica, float *gradients, int64_t samples, const StepRule *rule,
                   StepResult *result)
{
    result->samples = samples;
    if (rule->again)
        replica->held_samples = replica->joined_samples;
    int r = judge(replica, gradients, rule, result);
    if (r == 0 && result->verdict == STEP_APPLIED)
        r = hold_or_join(replica, gradients, samples, rule, result);
    if (!rule->hold) {
        replica->joined_samples = replica->held_samples;
        replica_drop_held(replica);
    }
    return r;
}

/* ---- the step -------------------------------------------------------------------------------- */

int replica_apply(Replica *replica, float *gradients, const StepRule *rule, double norm)
{
    Weights *weights = &replica->weights;
    const Accelerator *accelerator = engine_accelerator(replica->engine);
    Optimizer optimizer = engine_spec(replica->engine)->optimizer;
    optimizer.lr = rule->lr;
    bool scaled;
    int r = gradient_clip(accelerator, gradients, gradients, weights->n_params, norm,
                          rule->clip_norm, &scaled);
    if (r == 0)
        r = accelerator_optimizer_step(accelerator, &optimizer, weights->updates + 1,
                                       weights->params, gradients, weights->states,
                                       weights->n_params);
    if (r < 0)
        return r;
    weights->updates++;
    weights->version++;
    return 0;
}
