/* In place of replica/context.c. */
#include <stdlib.h>

#include "fake_replica.h"

struct Context {
    Engine *engine;
    uint64_t version;
    SharedVersion *read; /* of a shared replica, until its backward */
    int64_t samples;
    bool backward_done;
    SimBatch batch;
    Gradient gradient;
};

enum { OUTPUT_WIDTH = 10 };

int64_t replica_output_elements(const Replica *replica, int64_t samples)
{
    (void)replica;
    return samples * OUTPUT_WIDTH;
}

int replica_forward(Replica *replica, const Batch *batch, uint64_t step, uint32_t draw,
                    float *output, Context **ret, Error *err)
{
    const SimBatch *sim = batch_of(batch);
    (void)draw;
    (void)output;
    replica_touch(replica, "replica_forward");
    if (sim->step != step)
        sim_fail("job %llu rank %d: the forward of step %llu is taken for step %llu",
                 (unsigned long long)replica->job->id, replica->rank, (unsigned long long)sim->step,
                 (unsigned long long)step);
    if (replica->shared && !replica->attached)
        sim_fail("replica_forward without parameters");
    if (sim->fails)
        return error_set(err, -EIO, "the device failed");
    Context *context = calloc(1, sizeof *context);
    if (!context)
        return error_set(err, -ENOMEM, "out of memory");
    *context = (Context){.engine = replica->engine,
                         .version = replica->version,
                         .samples = batch->samples,
                         .batch = *sim};
    if (replica->shared) {
        version_read(replica->attached, "replica_forward");
        context->read = replica->attached;
        context->version = replica->attached->number;
    }
    replica->engine->contexts++;
    *ret = context;
    return 0;
}

Context *context_free(Context *context)
{
    if (!context)
        return NULL;
    if (fake_lane_current() != context->engine->lane)
        sim_fail("a context is freed on lane %d; its lane is %d", fake_lane_current(),
                 context->engine->lane);
    context->engine->contexts--;
    free(context);
    return NULL;
}

uint64_t context_version(const Context *context)
{
    return context->version;
}

int64_t context_samples(const Context *context)
{
    return context->samples;
}

size_t context_bytes(const Context *context)
{
    return sizeof *context;
}

/* A shared replica's backward reads the version of its forward, however old it is. */
static int check_version(const Replica *replica, const Context *context, Error *err)
{
    if (replica->shared || context->version == replica->version)
        return 0;
    return error_set(err, -ESTALE, "it is at version %llu; the forward read version %llu",
                     (unsigned long long)replica->version, (unsigned long long)context->version);
}

int replica_backward(Replica *replica, Context *context, const float *output_gradient,
                     double *gradient_norm, Error *err)
{
    (void)output_gradient;
    replica_touch(replica, "replica_backward");
    if (context->backward_done)
        return error_set(err, -EALREADY, "the backward of this context has already been run");
    int r = check_version(replica, context, err);
    if (r < 0)
        return r;
    if (context->read) {
        version_read(context->read, "replica_backward");
        if (context->read->number != context->version)
            sim_fail("job %llu rank %d: the parameters of a forward, version %llu, are version "
                     "%llu at its backward",
                     (unsigned long long)replica->job->id, replica->rank,
                     (unsigned long long)context->version,
                     (unsigned long long)context->read->number);
        context->read = NULL;
    }
    gradient_begin(&context->gradient, replica, &context->batch, (uint64_t)context->samples);
    context->backward_done = true;
    *gradient_norm = context->batch.norm;
    return 0;
}

int replica_read_gradient(Replica *replica, Context *context, int param, float *host, Error *err)
{
    (void)param;
    (void)host;
    replica_touch(replica, "replica_read_gradient");
    if (!context->backward_done)
        return error_set(err, -ENODATA, "the context has no gradients yet");
    return 0;
}

int replica_step(Replica *replica, Context *context, const StepRule *rule, StepResult *ret,
                 Error *err)
{
    StepResult result = {0};
    replica_touch(replica, "replica_step");
    if (replica->shared)
        sim_fail("replica_step for a shared replica");
    if (!context->backward_done)
        return error_set(err, -ENODATA, "the context has no gradients yet");
    int r = check_version(replica, context, err);
    if (r < 0)
        return r;
    check_rate(replica->job, replica->rank, rule->lr);
    gradient_settle(replica, &context->gradient, rule, &result);
    if (result.verdict == STEP_APPLIED) {
        replica->version++;
        replica->updates++;
        replica->state = state_mix(replica->state, gradient_print(&context->gradient));
    }
    if (!rule->hold)
        gradient_used(&context->gradient);
    if (ret)
        *ret = result;
    return 0;
}

int replica_take_gradient(Replica *replica, const Context *context, const StepRule *rule,
                          StepResult *ret, Error *err)
{
    if (!replica->shared)
        sim_fail("replica_take_gradient for a replica of its own");
    if (!context->backward_done)
        return error_set(err, -ENODATA, "the context has no gradients yet");
    hold_alone(&replica->gradient.holder, "replica_take_gradient", replica->rank);
    gradient_begin(&replica->gradient, replica, &context->batch, (uint64_t)context->samples);
    gradient_settle(replica, &replica->gradient, rule, ret);
    return 0;
}
