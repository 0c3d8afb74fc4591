#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "group.h"

const bool group_all[GROUP] = {true, true, true};

void group_start(Group *group, const char *optimizer)
{
    fixture_start(&group->fixture, optimizer);
    group->replicas[0] = group->fixture.replica;
    for (int i = 1; i < GROUP; i++)
        assert_int_equal(replica_new(group->fixture.engine, i, &group->replicas[i], NULL), 0);
    for (int i = 0; i < GROUP; i++) {
        fixture_fill(&group->fixture, i);
        for (int step = 0; step <= i; step++)
            (void)fixture_train(&group->fixture, group->replicas[i], (uint64_t)step);
    }
}

void group_stop(Group *group)
{
    for (int i = 1; i < GROUP; i++)
        replica_free(group->replicas[i]);
    fixture_stop(&group->fixture);
}

void group_snapshots(Group *group, Snapshot **ret)
{
    for (int i = 0; i < GROUP; i++)
        ret[i] = fixture_snapshot(&group->fixture, group->replicas[i]);
}

void group_drop(Snapshot **taken)
{
    for (int i = 0; i < GROUP; i++)
        snapshot_free(taken[i]);
}

void group_restore(Group *group, Snapshot *const *from)
{
    for (int i = 0; i < GROUP; i++)
        assert_int_equal(replica_restore(group->replicas[i], from[i]), 0);
}

void group_spoil(Replica *replica, float value)
{
    replica_weights(replica)->params[5] = value;
}
