#include "ctl/trainer/group.h"

GroupVerdict group_judge(Group *group, bool has_next, bool answers_due, int64_t now_ms)
{
    if (group->held + 1 >= group->size)
        return GROUP_STEP;
    if (has_next)
        return GROUP_HOLD;
    if (answers_due) {
        group->alone_since = 0;
        return GROUP_WAIT;
    }
    if (group->alone_since == 0)
        group->alone_since = now_ms;
    return now_ms - group->alone_since < GROUP_PATIENCE_MS ? GROUP_WAIT : GROUP_STEP;
}

void group_sent(Group *group, GroupVerdict verdict)
{
    group->held = verdict == GROUP_HOLD ? group->held + 1 : 0;
    group->alone_since = 0;
}

int group_wait_ms(const Group *group, int64_t now_ms)
{
    int64_t waited = now_ms - group->alone_since;

    if (group->alone_since == 0)
        return -1;
    return waited < GROUP_PATIENCE_MS ? (int)(GROUP_PATIENCE_MS - waited) : 0;
}
