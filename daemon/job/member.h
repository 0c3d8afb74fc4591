/* One rank of a job as its trainer's session sees it. Loop thread only.
 *
 * A Member lives as long as its job is loaded; a session holds it from job_join until member_leave
 * or on_end. While a task of the member is on its lane (member_run … finished) the member is busy
 * and no other may be given. on_ready says that something that was refused may now be possible. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/mailbox.h"
#include "job/dealer.h"
#include "job/job_spec.h"
#include "replica/lane.h"
#include "replica/replica.h"

typedef struct Job Job;
typedef struct Member Member;

typedef struct MemberEvents {
    void (*on_ready)(void *data);
    /* The job wants no more of this trainer: "completed", "cancelled", "failed", "restored"… The
     * member is no longer the session's. */
    void (*on_end)(void *data, const char *reason);
} MemberEvents;

typedef struct JoinWant {
    bool any_rank;
    uint32_t rank;
    bool own_data;
    const char *token;
    const char *client;
} JoinWant;

/* -ENOENT no such rank; -EBUSY the rank has a trainer; -EPERM a managed rank, and not its token;
 * -EAGAIN come back in a moment (recovering, paused and not loaded, dropped and not yet taken
 * back); -ESTALE the job has ended. */
int job_join(Job *job, const JoinWant *want, const MemberEvents *events, void *data, Member **ret,
             Error *err);
/* lost: the trainer died or fell silent, and its place is kept for trainer.rejoin; else it left of
 * its own will and its remaining work goes to the others at once. */
void member_leave(Member *member, bool lost, const char *why);

Job *member_job(const Member *member);
uint32_t member_rank(const Member *member);
uint64_t member_step(const Member *member); /* batches done */
uint64_t member_round(const Member *member);
const char *member_lane_name(const Member *member);
float member_lr(const Member *member);
bool member_own_data(const Member *member);

/* The batch of a step. -ENODATA: none (any more, or yet) */
int member_batch(Member *member, uint64_t step, DealerBatch *ret);
/* May begin a step (or the forward of one) now: the job runs, no meeting is due, and there is one
 * to do. */
bool member_may_step(Member *member);
/* May use the replica without changing its position: nothing else does at this moment. */
bool member_may_touch(const Member *member);

/* Work on the member's replica. `work` runs on the lane; `finished` on the loop, and owns the task.
 * It may run after the session has left: the job waits for it. */
typedef struct MemberTask MemberTask;
struct MemberTask {
    Task task;      /* private */
    Member *member; /* private */
    Replica *replica;
    void (*work)(MemberTask *task);
    void (*finished)(MemberTask *task);
};

void member_run(Member *member, MemberTask *task);
/* Like member_run for what only gives memory back, at any time, busy or not. */
void member_release(Member *member, MemberTask *task);

/* A step was taken: called from `finished`. */
typedef struct StepAccount {
    float loss;
    uint64_t samples, compute_us, bytes_in, bytes_out;
} StepAccount;

void member_step_done(Member *member, const StepAccount *account);
/* What the trainer is doing, for status: "reading" while its session has nothing for the lane. */
void member_set_reading(Member *member, bool reading);
/* Has nothing to do before the next meeting. */
bool member_waits(Member *member);
/* There is a step to do, now or after the meeting, as things stand. */
bool member_has_step(Member *member);
