#include "job/policy.h"

#include <stdio.h>
#include <string.h>

static const SyncPolicy *const policies[] = {&policy_average, &policy_average_async,
                                             &policy_elastic, &policy_diloco,
                                             &policy_barrier, &policy_async};

enum { POLICIES = sizeof policies / sizeof *policies };

int policy_count(void)
{
    return POLICIES;
}

const SyncPolicy *policy_entry(int index)
{
    return policies[index];
}

int policy_find(const char *name, const SyncPolicy **ret, Error *err)
{
    char known[256] = "";
    for (int i = 0; i < POLICIES; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            *ret = policies[i];
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", policies[i]->name);
    }
    return error_set(err, -ENOENT, "there is no sync policy '%.40s'; this version has: %s", name,
                     known);
}

int policy_may_follow(const SyncPolicy *now, const SyncPolicy *next, Error *err)
{
    if (now == next)
        return 0;
    if (now->shared != next->shared)
        return error_set(err, -EINVAL,
                         "a job cannot go from %s to %s: %s has a replica for each trainer, %s one "
                         "for all",
                         now->name, next->name, now->shared ? next->name : now->name,
                         now->shared ? now->name : next->name);
    if (now->pace == PACE_FREE && next->pace != PACE_FREE)
        return error_set(
            err, -EINVAL,
            "a job cannot go from %s to %s: its trainers are in different rounds, and %s "
            "has them meet",
            now->name, next->name, next->name);
    return 0;
}
