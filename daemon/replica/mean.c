#include "replica/mean.h"

#include "replica/checksum.h"
#include "replica/combine.h"

static int take_mean(const Combine *combine, const MeanSpec *spec, MeanResult *result)
{
    int r = combine_array(combine, ARRAY_PARAMS);
    if (r == 0)
        r = combine_array(combine, ARRAY_BUFFERS);
    if (r < 0)
        return r;
    combine_counters(combine);
    for (int i = 0; i < combine->count; i++)
        combine->weights[i]->version++;
    r = combine_states(combine, spec, result);
    if (r < 0 || !combine->weights[0]->params)
        return r;
    return checksum_params(engine_spec(combine->engine)->graph, combine->accelerator,
                           combine->weights[0]->params, &result->checksum);
}

int replicas_mean(Replica *const *replicas, const bool *contributes, int count,
                  const MeanSpec *spec, MeanResult *ret, Error *err)
{
    Combine combine;
    MeanResult result = {0};
    int r = combine_begin(&combine, replicas, contributes, count, spec, &result, err);
    if (r < 0)
        return r;
    if (combine.n_used > 0) {
        r = take_mean(&combine, spec, &result);
        if (r < 0)
            return combine_failed(&combine, r, err);
    }
    *ret = result;
    return 0;
}
