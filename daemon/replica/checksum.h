/* The checksum of a model's parameters. Internal to daemon/replica. */
#pragma once

#include "backend/backend.h"

/* XXH3-64 of the parameters' bytes in name order, gaps left out. `params` is the flat array, on
 * the accelerator's device or, with NULL, in host memory. -EIO */
int checksum_params(const Graph *graph, const Accelerator *accelerator, const float *params,
                    uint64_t *ret);
