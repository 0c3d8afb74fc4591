/* Several replicas of one model for the tests of meetings. */
#pragma once

#include "fixture.h"

enum { GROUP = 3 };

typedef struct Group {
    Fixture fixture;
    Replica *replicas[GROUP];
} Group;

extern const bool group_all[GROUP]; /* all contribute */

/* Three replicas that trained on different data for 1, 2 and 3 steps. */
void group_start(Group *group, const char *optimizer);
void group_stop(Group *group);
void group_snapshots(Group *group, Snapshot **ret);
void group_drop(Snapshot **taken);
void group_restore(Group *group, Snapshot *const *from);
/* `ref` computes on host memory, so that a test can put anything into a replica. */
void group_spoil(Replica *replica, float value);
