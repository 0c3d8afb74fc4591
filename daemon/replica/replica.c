#include "replica/replica.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "replica/batch.h"
#include "replica/replica_internal.h"

/* ---- life ------------------------------------------------------------------------------------ */

int replica_begin(Replica *replica, Replica **ret, Error *err)
{
    const EngineSpec *spec = engine_spec(replica->engine);
    int rank = replica->rank;
    int r = weights_initialise(engine_accelerator(replica->engine), spec->graph, spec->seed,
                               &replica->weights);
    if (r < 0) {
        replica_free(replica);
        return error_set(err, r,
                         r == -ENOMEM ? "not enough memory for replica %d"
                                      : "the device failed to take the weights of replica %d",
                         rank);
    }
    *ret = replica;
    return 0;
}

int replica_new(Engine *engine, int rank, Replica **ret, Error *err)
{
    const EngineSpec *spec = engine_spec(engine);
    Replica *replica = calloc(1, sizeof *replica);
    if (!replica)
        return error_set(err, -ENOMEM, "not enough memory for replica %d", rank);
    replica->engine = engine;
    replica->rank = rank;
    int r =
        weights_new(engine_accelerator(engine), spec->graph, &spec->optimizer, &replica->weights);
    if (r < 0) {
        replica_free(replica);
        return error_set(err, r, "not enough memory for replica %d", rank);
    }
    engine_count_bytes(engine, (ptrdiff_t)weights_bytes(&replica->weights));
    return replica_begin(replica, ret, err);
}

int replica_alloc(Replica *replica, float **ret)
{
    size_t bytes = replica->weights.n_params * sizeof **ret;
    void *memory;
    int r = accelerator_alloc(engine_accelerator(replica->engine), bytes, &memory);
    if (r < 0)
        return r;
    engine_count_bytes(replica->engine, (ptrdiff_t)bytes);
    *ret = memory;
    return 0;
}

void replica_release(Replica *replica, float *array)
{
    if (!array)
        return;
    accelerator_release(engine_accelerator(replica->engine), array);
    engine_count_bytes(replica->engine, -(ptrdiff_t)(replica->weights.n_params * sizeof *array));
}

Replica *replica_free(Replica *replica)
{
    if (!replica)
        return NULL;
    replica_release(replica, replica->gradients);
    replica_release(replica, replica->held);
    if (replica->shared)
        replica->weights.params = NULL; /* not its own */
    engine_count_bytes(replica->engine, -(ptrdiff_t)weights_bytes(&replica->weights));
    weights_free(engine_accelerator(replica->engine), &replica->weights);
    free(replica);
    return NULL;
}

Engine *replica_engine(const Replica *replica)
{
    return replica->engine;
}

int replica_rank(const Replica *replica)
{
    return replica->rank;
}

uint64_t replica_version(const Replica *replica)
{
    return replica->weights.version;
}

Weights *replica_weights(Replica *replica)
{
    return &replica->weights;
}

int64_t replica_output_elements(const Replica *replica, int64_t samples)
{
    return samples * engine_output_width(replica->engine);
}

/* ---- what all ways of running share ---------------------------------------------------------- */

/* Steps fill the low 40 bits, so that the forwards of one step draw apart. */
RngKey replica_rng(const Replica *replica, uint64_t step, uint32_t draw)
{
    return (RngKey){.seed = engine_spec(replica->engine)->seed,
                    .purpose = RNG_DROPOUT,
                    .a = (uint32_t)replica->rank,
                    .b = step + ((uint64_t)draw << 40)};
}

int replica_device_error(const Replica *replica, int code, const char *what, Error *err)
{
    return error_set(err, code, "replica %d: the device failed in %s (%s)", replica->rank, what,
                     strerrorname_np(-code));
}

int replica_prepare(Replica *replica, const Batch *batch, bool training, Plan **plan,
                    Activations **activations, Error *err)
{
    if (!replica->weights.params)
        return error_set(err, -EINVAL, "no parameters are attached to replica %d", replica->rank);
    int r = engine_plan(replica->engine, batch->samples, training, plan, err);
    if (r < 0)
        return r;
    r = engine_activations(replica->engine, *plan, activations);
    if (r < 0)
        return error_set(err, r, "not enough memory for the activations of %" PRId64 " samples",
                         batch->samples);
    return 0;
}

/* ---- the fast path --------------------------------------------------------------------------- */

/* Forward and the mean loss; its gradient too if the plan trains. correct may be NULL. */
static int run_loss(Replica *replica, Plan *plan, Activations *activations, const Batch *batch,
                    const RngKey *rng, float *loss, float *gradient, int64_t *correct)
{
    const Engine *engine = replica->engine;
    int r = batch_load_input(engine, plan, activations, batch);
    if (r >= 0)
        r = plan_forward(plan, activations, &replica->weights, rng);
    if (r >= 0)
        r = batch_load_target(engine, plan, batch);
    if (r >= 0)
        r = accelerator_loss(engine_accelerator(engine), engine_spec(engine)->loss,
                             activations_output(activations), plan_staging(plan), batch->samples,
                             engine_output_width(engine), loss, gradient, correct);
    return r;
}

static int run_gradient(Replica *replica, Plan *plan, Activations *activations, const Batch *batch,
                        const RngKey *rng, float *gradients, float *loss)
{
    float *output_gradient = plan_output_gradient(plan);
    int r = run_loss(replica, plan, activations, batch, rng, loss, output_gradient, NULL);
    if (r >= 0)
        r = plan_backward(plan, activations, &replica->weights, rng, output_gradient, gradients);
    return r;
}

int replica_run(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                float *gradients, float **used, StepResult *result, Error *err)
{
    Plan *plan = NULL;
    Activations *activations = NULL;
    int r = batch_check(replica->engine, batch, true, err);
    if (r == 0)
        r = replica_reserve_held(replica, rule, err);
    if (r == 0)
        r = replica_prepare(replica, batch, true, &plan, &activations, err);
    if (r < 0)
        return r;
    RngKey rng = replica_rng(replica, step, 0);
    *used = gradients ? gradients : plan_gradients(plan);
    r = run_gradient(replica, plan, activations, batch, &rng, *used, &result->loss);
    if (r == 0)
        r = replica_settle(replica, *used, batch->samples, rule, result);
    engine_recycle(replica->engine, plan, activations);
    return r < 0 ? replica_device_error(replica, r, "a training step", err) : 0;
}

int replica_train(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                  StepResult *ret, Error *err)
{
    uint64_t begin = clock_monotonic_us();
    StepResult result = {0};
    float *gradients = NULL;
    if (replica->shared)
        return error_set(err, -EINVAL, "replica %d has no parameters of its own to train",
                         replica->rank);
    int r = replica_run(replica, batch, step, rule, NULL, &gradients, &result, err);
    if (r < 0)
        return r;
    if (result.verdict == STEP_APPLIED) {
        r = replica_apply(replica, gradients, rule, result.gradient_norm);
        if (r < 0)
            return replica_device_error(replica, r, "a training step", err);
    }
    result.compute_us = clock_monotonic_us() - begin;
    *ret = result;
    return 0;
}

int replica_evaluate(Replica *replica, const Batch *batch, Evaluation *total, Error *err)
{
    Plan *plan = NULL;
    Activations *activations = NULL;
    int r = batch_check(replica->engine, batch, true, err);
    if (r >= 0)
        r = replica_prepare(replica, batch, false, &plan, &activations, err);
    if (r < 0)
        return r;
    RngKey rng = replica_rng(replica, 0, 0); /* no operator draws in evaluation */
    bool classes = loss_takes_classes(engine_spec(replica->engine)->loss);
    float loss = 0;
    int64_t correct = 0;
    r = run_loss(replica, plan, activations, batch, &rng, &loss, NULL, classes ? &correct : NULL);
    engine_recycle(replica->engine, plan, activations);
    if (r < 0)
        return replica_device_error(replica, r, "an evaluation", err);
    total->loss_sum += (double)loss * (double)batch->samples;
    total->correct += correct;
    total->samples += batch->samples;
    return 0;
}
