/* What status tells of a rank. */
#include "job/job_internal.h"

#include <stdio.h>

static const char *state_text(Member *member)
{
    const Job *job = member->job;
    if (member->place == MEMBER_DROPPED)
        return member->spare ? "spare" : "dropped";
    if (job->finishing || job_state_is_final(job->state))
        return "done";
    if (!member->events)
        return member->ever_joined || job->spec.external_trainers ? "absent" : "starting";
    if (member->busy)
        return "computing";
    if (member->arrived_us)
        return "waiting";
    return member->reading ? "reading" : "computing";
}

/* Silence that is worth a word: trainers that are well answer pings much sooner. */
#define SILENCE_US (3 * USEC_PER_SEC)

/* What an awaited rank does: "no trainer: killed by signal 9", "no word for 12 s", "computing". */
static void name_reason(Member *member, char *text, size_t size)
{
    uint64_t silence = member->events && member->events->silence_us
                           ? member->events->silence_us(member->events_data)
                           : 0;
    if (!member->events)
        snprintf(text, size, "no trainer: %s", member->absent_why);
    else if (silence >= SILENCE_US && silence != UINT64_MAX)
        snprintf(text, size, "no word for %.0f s", (double)silence / 1e6);
    else if (member->busy)
        snprintf(text, size, "computing");
    else
        snprintf(text, size, "%s", member->reading ? "reading data" : "computing");
}

/* "rank 2 (no trainer: killed by signal 9), rank 3 (reading data)" */
void members_awaited(Job *job, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < job->spec.max_trainers && used < size; r++) {
        Member *other = &job->members[r];
        char reason[120];
        if (other->place != MEMBER_LIVE || other->arrived_us)
            continue;
        name_reason(other, reason, sizeof reason);
        used += (size_t)snprintf(text + used, size - used, "%srank %u (%s)", used ? ", " : "", r,
                                 reason);
    }
}

static void summary_status(const Job *job, uint32_t rank, MemberStatus *ret)
{
    const RankSummary *summary = &job->summary[rank];
    *ret = (MemberStatus){.rank = rank,
                          .state = summary->dropped ? "dropped" : "done",
                          .step = summary->step,
                          .loss = summary->loss,
                          .restarts = summary->restarts,
                          .device = "",
                          .waiting_for = "",
                          .client = ""};
}

void job_member_status(Job *job, uint32_t rank, MemberStatus *ret)
{
    static char awaited[JOB_TEXT_MAX]; /* loop thread only; valid until the next call */
    awaited[0] = '\0';
    if (!job->members) {
        summary_status(job, rank, ret);
        return;
    }
    Member *member = &job->members[rank];
    if (member->arrived_us && job->policy->pace != PACE_FREE)
        members_awaited(job, awaited, sizeof awaited);
    *ret = (MemberStatus){
        .rank = rank,
        .state = state_text(member),
        .step = member->step,
        .loss = member->last_loss,
        .device = member->lane ? lane_name(member->lane) : "",
        .waiting_s =
            member->arrived_us ? (double)(clock_monotonic_us() - member->arrived_us) / 1e6 : 0,
        .waiting_for = awaited,
        .restarts = member->managed.restarts,
        .client = member->client,
    };
}
