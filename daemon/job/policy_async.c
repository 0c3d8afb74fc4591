/* async: one set of parameters, each trainer's step applied at once. A gradient is right for the
 * parameters that its forward read, which are kept as long as it needs them; sync.max_staleness
 * bounds how many versions old it may be, sync.on_stale says what happens to an older one. */
#include "job/policy.h"

const SyncPolicy policy_async = {
    .name = "async",
    .description = "one replica; each trainer's step is applied at once, with bounded staleness",
    .pace = PACE_FREE,
    .shared = true,
};
