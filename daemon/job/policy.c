#include "job/policy.h"

#include <stdio.h>
#include <string.h>

static const SyncPolicy *const policies[] = {&policy_average};

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
