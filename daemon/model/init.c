#include "model/init.h"

#include <string.h>

#include "base/rng.h"

/* Element i is drawn from word i of the parameter's stream. */
static void fill_uniform(float *out, const ParamInfo *info, uint64_t seed, int param)
{
    RngKey key = {.seed = seed, .purpose = RNG_INIT, .a = (uint32_t)param};
    uint32_t words[4];
    for (int64_t i = 0; i < info->elements; i++) {
        if (i % 4 == 0)
            rng_block(&key, (uint32_t)(i / 4), words);
        out[i] = (2 * rng_to_unit(words[i % 4]) - 1) * info->bound;
    }
}

static void fill(float *out, const ParamInfo *info, uint64_t seed, int param)
{
    if (info->init == INIT_UNIFORM) {
        fill_uniform(out, info, seed, param);
        return;
    }
    float value = info->init == INIT_ONES ? 1.0F : 0.0F;
    for (int64_t i = 0; i < info->elements; i++)
        out[i] = value;
}

void init_weights(const Graph *graph, uint64_t seed, float *params, float *float_buffers,
                  int64_t *counters)
{
    /* the gaps between parameters are zero too; an array of no elements may be NULL */
    if (graph_params_length(graph) > 0)
        memset(params, 0, graph_params_length(graph) * sizeof *params);
    if (graph_float_buffers_length(graph) > 0)
        memset(float_buffers, 0, graph_float_buffers_length(graph) * sizeof *float_buffers);
    if (graph_counters_length(graph) > 0)
        memset(counters, 0, graph_counters_length(graph) * sizeof *counters);
    for (int i = 0; i < graph_param_count(graph); i++) {
        const ParamInfo *info = graph_param(graph, i);
        fill(params + info->offset, info, seed, i);
    }
    for (int i = 0; i < graph_buffer_count(graph); i++) {
        const ParamInfo *info = graph_buffer(graph, i);
        if (!info->counter)
            fill(float_buffers + info->offset, info, seed, i);
    }
}
