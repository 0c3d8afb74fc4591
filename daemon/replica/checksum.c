#include "replica/checksum.h"

#define XXH_STATIC_LINKING_ONLY /* the state's size, so that it can live on the stack */
#include <xxhash.h>

enum { CHUNK = 4096 }; /* floats */

static int update(XXH3_state_t *state, const Accelerator *accelerator, const float *from, size_t n)
{
    float chunk[CHUNK];
    if (!accelerator) {
        XXH3_64bits_update(state, from, n * sizeof *from);
        return 0;
    }
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t bytes = (n - i < CHUNK ? n - i : CHUNK) * sizeof *from;
        int r = accelerator_read(accelerator, from + i, chunk, bytes);
        if (r < 0)
            return r;
        XXH3_64bits_update(state, chunk, bytes);
    }
    return 0;
}

int checksum_params(const Graph *graph, const Accelerator *accelerator, const float *params,
                    uint64_t *ret)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (int i = 0; i < graph_param_count(graph); i++) {
        const ParamInfo *info = graph_param(graph, graph_param_by_name(graph, i));
        int r = update(&state, accelerator, params + info->offset, (size_t)info->elements);
        if (r < 0)
            return r;
    }
    *ret = XXH3_64bits_digest(&state);
    return 0;
}
