/* Running a plan. Nothing here allocates but activations_new. */
#include "replica/plan.h"

#include <stdlib.h>

#include "replica/plan_internal.h"

struct Activations {
    Plan *plan;
    char *memory;
};

int64_t plan_batch(const Plan *plan)
{
    return plan->batch;
}

size_t plan_bytes(const Plan *plan)
{
    size_t gradients = plan->gradients ? graph_params_length(plan->graph) * sizeof(float) : 0;
    return plan->workspace_bytes + gradients;
}

int activations_new(Plan *plan, Activations **ret)
{
    Activations *activations = calloc(1, sizeof *activations);
    if (!activations)
        return -ENOMEM;
    void *memory;
    int r = accelerator_alloc(plan->accelerator, plan->arena_bytes, &memory);
    if (r < 0) {
        free(activations);
        return r;
    }
    activations->plan = plan;
    activations->memory = memory;
    *ret = activations;
    return 0;
}

Activations *activations_free(Activations *activations)
{
    if (!activations)
        return NULL;
    accelerator_release(activations->plan->accelerator, activations->memory);
    free(activations);
    return NULL;
}

size_t activations_bytes(const Activations *activations)
{
    return activations->plan->arena_bytes;
}

static void *value_memory(const Activations *activations, ValueId value)
{
    return activations->memory + activations->plan->values[value].offset;
}

float *activations_input(Activations *activations)
{
    return value_memory(activations, 0);
}

float *activations_output(Activations *activations)
{
    return value_memory(activations, graph_output(activations->plan->graph));
}

static void add_weights(const Plan *plan, const Node *node, const Weights *weights,
                        KernelArgs *args)
{
    for (int i = 0; i < node->n_params; i++)
        args->params[i] = weights->params + graph_param(plan->graph, node->params[i])->offset;
    for (int i = 0; i < node->n_buffers; i++) {
        const ParamInfo *info = graph_buffer(plan->graph, node->buffers[i]);
        if (info->counter)
            args->counter = weights->counters + info->offset;
        else
            args->buffers[i] = weights->buffers + info->offset;
    }
}

/* What forward and backward have in common. */
static KernelArgs kernel_args(const Plan *plan, const Activations *activations,
                              const PlanNode *self, const Weights *weights, const RngKey *rng)
{
    const Node *node = self->node;
    KernelArgs args = {.output = value_memory(activations, node->output), .rng = *rng};
    for (int i = 0; i < node->n_inputs; i++)
        args.inputs[i] = value_memory(activations, node->inputs[i]);
    if (self->info.saved_bytes > 0)
        args.saved = activations->memory + self->saved_offset;
    if (self->info.scratch_bytes > 0)
        args.scratch = plan->workspace + plan->scratch_offset;
    add_weights(plan, node, weights, &args);
    return args;
}

int plan_forward(Plan *plan, Activations *activations, Weights *weights, const RngKey *rng)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const PlanNode *self = &plan->nodes[i];
        if (self->alias)
            continue;
        KernelArgs args = kernel_args(plan, activations, self, weights, rng);
        int r = kernel_forward(plan->accelerator, self->kernel, &args);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Adds what the node wrote aside to the gradients of values that other nodes read as well. */
static int accumulate(Plan *plan, const PlanNode *self)
{
    for (int k = 0; k < self->node->n_inputs; k++) {
        if (!self->accumulate[k])
            continue;
        const PlanValue *root = &plan->values[plan->values[self->node->inputs[k]].root];
        int r = accelerator_accumulate(plan->accelerator, root->layout,
                                       plan->workspace + root->gradient_offset,
                                       plan->workspace + self->input_gradient_offset[k]);
        if (r < 0)
            return r;
    }
    return 0;
}

static int backward_node(Plan *plan, const PlanNode *self, KernelArgs *args,
                         const float *output_gradient, float *gradients)
{
    const Node *node = self->node;
    ValueId output = graph_output(plan->graph);
    if (plan->values[node->output].root == plan->values[output].root)
        args->output_gradient = output_gradient;
    else
        args->output_gradient = plan->workspace + plan->values[node->output].gradient_offset;
    for (int k = 0; k < node->n_inputs; k++) {
        if (self->need_input_gradient[k])
            args->input_gradients[k] = plan->workspace + self->input_gradient_offset[k];
    }
    for (int k = 0; k < node->n_params; k++)
        args->param_gradients[k] = gradients + graph_param(plan->graph, node->params[k])->offset;
    int r = kernel_backward(plan->accelerator, self->kernel, args);
    return r < 0 ? r : accumulate(plan, self);
}

int plan_backward(Plan *plan, Activations *activations, Weights *weights, const RngKey *rng,
                  const float *output_gradient, float *gradients)
{
    for (int i = plan->n_nodes - 1; i >= 0; i--) {
        const PlanNode *self = &plan->nodes[i];
        if (!self->backward)
            continue;
        KernelArgs args = kernel_args(plan, activations, self, weights, rng);
        int r = backward_node(plan, self, &args, output_gradient, gradients);
        if (r < 0)
            return r;
    }
    return 0;
}

float *plan_output_gradient(Plan *plan)
{
    ValueId output = graph_output(plan->graph);
    return (float *)(void *)(plan->workspace + plan->values[output].gradient_offset);
}

float *plan_gradients(Plan *plan)
{
    return plan->gradients;
}

void *plan_staging(Plan *plan)
{
    return plan->workspace + plan->staging_offset;
}
