#include "replica/replica.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "model/init.h"
#include "replica/batch.h"
#include "replica/replica_internal.h"

/* ---- life ------------------------------------------------------------------------------------ */

/* The seed's initial weights, made in host memory. */
static int write_initial(Replica *replica)
{
    const EngineSpec *spec = engine_spec(replica->engine);
    const Accelerator *accelerator = engine_accelerator(replica->engine);
    Weights *weights = &replica->weights;
    _cleanup_free_ float *params = malloc(weights->n_params * sizeof *params);
    _cleanup_free_ float *buffers = malloc((weights->n_buffers + 1) * sizeof *buffers);
    if (!params || !buffers)
        return -ENOMEM;
    init_weights(spec->graph, spec->seed, params, buffers, weights->counters);
    int r =
        accelerator_write(accelerator, params, weights->params, weights->n_params * sizeof *params);
    if (r == 0)
        r = accelerator_write(accelerator, buffers, weights->buffers,
                              weights->n_buffers * sizeof *buffers);
    return r;
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
    engine_count_bytes(engine, (ptrdiff_t)weights_bytes(&replica->weights));
    if (r == 0)
        r = write_initial(replica);
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

Replica *replica_free(Replica *replica)
{
    if (!replica)
        return NULL;
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
    int r = engine_plan(replica->engine, batch->samples, training, plan, err);
    if (r < 0)
        return r;
    r = engine_activations(replica->engine, *plan, activations);
    if (r < 0)
        return error_set(err, r, "not enough memory for the activations of %" PRId64 " samples",
                         batch->samples);
    return 0;
}

int replica_apply(Replica *replica, const float *gradients, float lr)
{
    Weights *weights = &replica->weights;
    Optimizer optimizer = engine_spec(replica->engine)->optimizer;
    optimizer.lr = lr;
    int r = accelerator_optimizer_step(engine_accelerator(replica->engine), &optimizer,
                                       weights->updates + 1, weights->params, gradients,
                                       weights->states, weights->n_params);
    if (r < 0)
        return r;
    weights->updates++;
    weights->version++;
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

static int train(Replica *replica, Plan *plan, Activations *activations, const Batch *batch,
                 const RngKey *rng, float lr, float *loss)
{
    float *output_gradient = plan_output_gradient(plan), *gradients = plan_gradients(plan);
    int r = run_loss(replica, plan, activations, batch, rng, loss, output_gradient, NULL);
    if (r >= 0)
        r = plan_backward(plan, activations, &replica->weights, rng, output_gradient, gradients);
    return r >= 0 ? replica_apply(replica, gradients, lr) : r;
}

int replica_train(Replica *replica, const Batch *batch, uint64_t step, float lr, StepResult *ret,
                  Error *err)
{
    uint64_t begin = clock_monotonic_us();
    Plan *plan;
    Activations *activations;
    int r = batch_check(replica->engine, batch, true, err);
    if (r >= 0)
        r = replica_prepare(replica, batch, true, &plan, &activations, err);
    if (r < 0)
        return r;
    RngKey rng = replica_rng(replica, step, 0);
    float loss;
    r = train(replica, plan, activations, batch, &rng, lr, &loss);
    engine_recycle(replica->engine, plan, activations);
    if (r < 0)
        return replica_device_error(replica, r, "a training step", err);
    *ret = (StepResult){.loss = loss, .compute_us = clock_monotonic_us() - begin};
    return 0;
}

int replica_evaluate(Replica *replica, const Batch *batch, Evaluation *total, Error *err)
{
    Plan *plan;
    Activations *activations;
    int r = batch_check(replica->engine, batch, true, err);
    if (r >= 0)
        r = replica_prepare(replica, batch, false, &plan, &activations, err);
    if (r < 0)
        return r;
    RngKey rng = replica_rng(replica, 0, 0); /* no operator draws in evaluation */
    bool classes = loss_takes_classes(engine_spec(replica->engine)->loss);
    float loss;
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
