/* Contexts: the activations of a forward until its backward, then its gradients until the step. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "replica/batch.h"
#include "replica/replica_internal.h"

struct Context {
    Engine *engine;
    Plan *plan;
    Activations *activations; /* NULL once backward has run */
    float *gradients;         /* NULL until backward begins */
    bool backward_done;
    uint64_t version; /* of the parameters that the forward read */
    int64_t samples;
    RngKey rng;
};

static void give_back_activations(Context *context)
{
    if (context->activations)
        engine_recycle(context->engine, context->plan, context->activations);
    context->activations = NULL;
    context->plan = NULL;
}

Context *context_free(Context *context)
{
    if (!context)
        return NULL;
    give_back_activations(context);
    if (context->gradients)
        engine_recycle_gradients(context->engine, context->gradients);
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
    size_t bytes = sizeof *context;
    if (context->activations)
        bytes += activations_bytes(context->activations);
    if (context->gradients)
        bytes += graph_params_length(engine_spec(context->engine)->graph) * sizeof(float);
    return bytes;
}

/* ---- forward --------------------------------------------------------------------------------- */

static int forward(Replica *replica, Context *context, const Batch *batch, float *output)
{
    size_t bytes = (size_t)replica_output_elements(replica, batch->samples) * sizeof(float);
    int r = batch_load_input(context->engine, context->plan, context->activations, batch);
    if (r == 0)
        r = plan_forward(context->plan, context->activations, &replica->weights, &context->rng);
    if (r == 0)
        r = accelerator_read(engine_accelerator(context->engine),
                             activations_output(context->activations), output, bytes);
    return r;
}

int replica_forward(Replica *replica, const Batch *batch, uint64_t step, uint32_t draw,
                    float *output, Context **ret, Error *err)
{
    int r = batch_check(replica->engine, batch, false, err);
    if (r < 0)
        return r;
    Context *context = calloc(1, sizeof *context);
    if (!context)
        return error_set(err, -ENOMEM, "not enough memory for a context");
    *context = (Context){.engine = replica->engine,
                         .version = replica->weights.version,
                         .samples = batch->samples,
                         .rng = replica_rng(replica, step, draw)};
    r = replica_prepare(replica, batch, true, &context->plan, &context->activations, err);
    if (r == 0) {
        r = forward(replica, context, batch, output);
        if (r < 0)
            (void)replica_device_error(replica, r, "a forward", err);
    }
    if (r < 0) {
        context_free(context);
        return r;
    }
    *ret = context;
    return 0;
}

/* ---- backward and step ----------------------------------------------------------------------- */

static int check_version(const Replica *replica, const Context *context, Error *err)
{
    if (context->version == replica->weights.version)
        return 0;
    const Graph *graph = engine_spec(replica->engine)->graph;
    return error_set(err, -ESTALE,
                     "%s is at version %" PRIu64 "; the context's forward read version %" PRIu64,
                     graph_param(graph, 0)->name, replica->weights.version, context->version);
}

static int backward(Replica *replica, Context *context, const float *output_gradient)
{
    size_t bytes = (size_t)replica_output_elements(replica, context->samples) * sizeof(float);
    float *on_device = plan_output_gradient(context->plan);
    int r =
        accelerator_write(engine_accelerator(context->engine), output_gradient, on_device, bytes);
    if (r == 0)
        r = plan_backward(context->plan, context->activations, &replica->weights, &context->rng,
                          on_device, context->gradients);
    return r;
}

int replica_backward(Replica *replica, Context *context, const float *output_gradient,
                     double *gradient_norm, Error *err)
{
    if (context->backward_done)
        return error_set(err, -EALREADY, "the backward of this context has already been run");
    int r = check_version(replica, context, err);
    if (r < 0)
        return r;
    if (!context->gradients) {
        r = engine_gradients(context->engine, &context->gradients);
        if (r < 0)
            return error_set(err, r, "not enough memory for the gradients of a context");
    }
    double norm2 = 0;
    r = backward(replica, context, output_gradient);
    if (r == 0)
        r = accelerator_norm2(engine_accelerator(context->engine), context->gradients,
                              replica->weights.n_params, &norm2);
    if (r < 0)
        return replica_device_error(replica, r, "a backward", err);
    context->backward_done = true;
    give_back_activations(context);
    *gradient_norm = sqrt(norm2);
    return 0;
}

static int check_backward_done(const Context *context, Error *err)
{
    if (context->backward_done)
        return 0;
    return error_set(err, -ENODATA, "the context has no gradients yet; run its backward first");
}

int replica_read_gradient(Replica *replica, Context *context, int param, float *host, Error *err)
{
    const Graph *graph = engine_spec(replica->engine)->graph;
    if (param < 0 || param >= graph_param_count(graph))
        return error_set(err, -EINVAL, "the model has parameters 0 to %d, not %d",
                         graph_param_count(graph) - 1, param);
    int r = check_backward_done(context, err);
    if (r < 0)
        return r;
    const ParamInfo *info = graph_param(graph, param);
    r = accelerator_read(engine_accelerator(context->engine), context->gradients + info->offset,
                         host, (size_t)info->elements * sizeof(float));
    return r < 0 ? replica_device_error(replica, r, "reading a gradient", err) : 0;
}

int replica_step(Replica *replica, Context *context, float lr, Error *err)
{
    int r = check_backward_done(context, err);
    if (r == 0)
        r = check_version(replica, context, err);
    if (r < 0)
        return r;
    r = replica_apply(replica, context->gradients, lr);
    return r < 0 ? replica_device_error(replica, r, "an optimizer step", err) : 0;
}
