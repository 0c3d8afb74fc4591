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
#include "replica/shared.h"

typedef struct Job Job;
typedef struct Member Member;

typedef struct MemberEvents {
    void (*on_ready)(void *data);
    /* Microseconds since anything was heard of the trainer; NULL: not known. */
    uint64_t (*silence_us)(void *data);
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
uint64_t member_step(const Member *member); /* batches done, held ones included */
uint64_t member_round(const Member *member);
const char *member_lane_name(const Member *member);
bool member_shares(const Member *member); /* parameters are one for all ranks */
bool member_own_data(const Member *member);

/* The batch of a step. -ENODATA: none (any more, or yet) */
int member_batch(Member *member, uint64_t step, DealerBatch *ret);
/* May begin a step (or the forward of one) now: the job runs, no meeting is due, and there is one
 * to do. */
bool member_may_step(Member *member);
/* May use the replica without changing its position: nothing else does at this moment. */
bool member_may_touch(Member *member);

/* Work on the member's replica. `work` runs on the lane; `finished` on the loop, and owns the task.
 * It may run after the session has left: the job waits for it. */
typedef struct MemberTask MemberTask;
struct MemberTask {
    Task task;      /* private */
    Member *member; /* private */
    Replica *replica;
    SharedVersion *version; /* private */
    void (*work)(MemberTask *task);
    void (*finished)(MemberTask *task);
};

/* Shared parameters: takes hold of the current version for the task that is about to be run. False:
 * not at this moment. Before member_run, or member_unpin where nothing is run. */
bool member_pin(Member *member);
void member_unpin(Member *member);
void member_run(Member *member, MemberTask *task);
/* Like member_run for what only gives memory back, at any time, busy or not. */
void member_release(Member *member, MemberTask *task);

/* ---- steps ----------------------------------------------------------------------------------- */

/* How the step that is about to be run is to be made. */
typedef struct StepOrder {
    uint64_t step;
    StepRule rule;
    uint64_t version; /* of shared parameters */
    Snapshot *undo;   /* private; NULL where the forward lies further back */
} StepOrder;

typedef struct StepAccount {
    float loss;
    uint64_t samples, compute_us, bytes_in, bytes_out;
} StepAccount;

/* Loop, after member_pin. hold: keep the gradient for the step of a later batch. */
void member_order(Member *member, bool hold, StepOrder *ret);
/* Lane: as replica_train, or with shared parameters the gradient alone. */
int step_order_train(const StepOrder *order, Replica *replica, const Batch *batch, StepResult *ret,
                     Error *err);
/* Lane: as replica_step, or with shared parameters takes the context's gradient over. */
int step_order_context(const StepOrder *order, Replica *replica, Context *context, StepResult *ret,
                       Error *err);
/* Loop, from `finished`, with what the lane did. True: the step is done. False: its gradient waits
 * for the optimizer step (member_contribution_waits), which on_ready tells of. */
bool member_trained(Member *member, const StepOrder *order, const StepResult *result,
                    const StepAccount *account);
bool member_contribution_waits(const Member *member);
/* Of the contribution that waits no longer: 0, or -ESTALE (async: too old, refused), -ECANCELED. */
int member_contribution_result(const Member *member, Error *err);

/* ---- contexts on shared parameters ----------------------------------------------------------- */

/* The version that the task at hand reads, held for a context that it made (NULL: not shared); from
 * `finished`. Dropped when the context has had its backward or is freed. */
SharedVersion *member_hold_version(Member *member);
void member_drop_version(Member *member, SharedVersion *version); /* NULL is fine */
/* Of the parameters as they stand; 0: not shared. */
uint64_t member_shared_version(const Member *member);
/* Whether a gradient computed at that version may still be applied. -ESTALE with name and versions
 */
int member_check_fresh(const Member *member, uint64_t version, Error *err);

/* ---- for status and waiting ------------------------------------------------------------------ */

/* What the trainer is doing: "reading" while its session has nothing for the lane. */
void member_set_reading(Member *member, bool reading);
/* Has nothing to do before the next meeting. */
bool member_waits(Member *member);
/* There is a step to do, now or after the meeting, as things stand. */
bool member_has_step(Member *member);
