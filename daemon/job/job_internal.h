/* What the files of job/ share: the struct of a job and of its members, and who does what.
 *
 *   job.c         states                          job_status.c       what status tells
 *   load.c        from the store to replicas      hosting.c          engines and replicas on lanes
 *   membership.c  trainers that come and go       managed.c          starting trainers, and again
 *   member.c      what sessions ask of a rank     member_status.c    what status tells of it
 *   rounds.c      rounds and their metrics        meeting.c          what ends a round
 *   quorum.c      meetings that go on without     refresh.c          the mean without a meeting
 *   stragglers.c  who is waited for
 *   contribution.c  gradients on shared parameters  guard.c          gradients that are left out
 *   common.c      what a job has once             update.c           settings changed meanwhile
 *   cuts.c, parts.c  copies of it all             checkpoint.c       cuts that are written
 *   result.c      what is kept besides the spec   checkpoint_meta.c  a cut's position as JSON
 *   mean.c        the averaged model              evaluator.c        run on batches
 *   advance.c     what happens next
 *
 * Everything runs on the loop but the work functions of LaneTasks. At any time either members work,
 * each on its own lane, or the job itself does (job->exclusive): a meeting or a cut has all
 * replicas. job_advance() is called after whatever may have changed something and decides what
 * comes next. */
#pragma once

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/timer.h"
#include "job/evaluation_state.h"
#include "job/job.h"
#include "job/launcher.h"
#include "job/manager.h"
#include "job/policy.h"
#include "model/schedule.h"
#include "replica/gather.h"
#include "replica/shared.h"

enum {
    JOB_TEXT_MAX = 320,
    JOB_MAX_PENDING_SETTINGS = 256, /* changes asked for and not yet in force */
    JOB_MAX_STORE_BACKLOG =
        64, /* rounds that may wait for the store before the next meeting waits */
    RANK_NAME_MAX = 16,
    GUARD_NORMS = 32, /* gradient norms that a median is taken of */
};

/* What is in memory of a job. */
typedef enum JobPhase {
    PHASE_IDLE,    /* nothing: queued, ended, or paused before it was loaded */
    PHASE_LOADING, /* the store is reading its checkpoint */
    PHASE_HOSTING, /* lanes are making engines and replicas */
    PHASE_LIVE,    /* replicas are there */
    PHASE_LEAVING, /* lanes are freeing them */
} JobPhase;

typedef enum MemberPlace {
    MEMBER_LIVE,    /* counted in meetings, whether its trainer is there or not */
    MEMBER_DROPPED, /* out of the meetings */
} MemberPlace;

/* Of one rank in the round in progress. */
typedef struct RoundAccount {
    uint64_t samples, compute_us, wait_us, bytes_in, bytes_out;
    double loss_sum; /* loss times samples, in the order of the steps */
} RoundAccount;

/* A trainer that dpsd starts itself. */
typedef struct ManagedTrainer {
    LaunchedTrainer *running;
    Timer backoff, absence;
    unsigned fruitless; /* ends in a row without a step */
    unsigned restarts;
    bool given_up;
    char token[TOKEN_MAX];
    char last_end[80];
} ManagedTrainer;

/* What is told of a rank once its replica is gone. */
typedef struct RankSummary {
    uint64_t step;
    float loss;
    unsigned restarts;
    bool dropped;
} RankSummary;

/* A gradient on shared parameters that waits for its optimizer step; after it, how that went. */
typedef struct Contribution {
    bool ready;
    uint64_t version, samples, order;
    StepAccount account;
    int r;
    Error err;
} Contribution;

typedef struct Guard {
    double norms[GUARD_NORMS]; /* of applied gradients, a ring */
    uint64_t n;
    unsigned strikes, replica_strikes; /* in a row */
} Guard;

/* What a job has once, beside its ranks; on the lane of rank 0. */
typedef struct Common {
    Centre *centre;
    SharedParams *shared;
} Common;

struct Member {
    Job *job;
    uint32_t rank;
    MemberPlace place;
    bool spare;      /* not among the ranks that are wanted: never was, or no longer */
    bool wants_back; /* dropped or spare, and to be taken in when the round ends */
    bool behind;     /* live, but it has to take the mean before its replica is good for anything */
    Lane *lane;
    Replica *replica;
    uint64_t step;        /* batches done */
    Round round;          /* that it is in; all ranks' are the same where all meet */
    JobSettings settings; /* in force in that round */
    Schedule schedule;    /* of those settings */
    unsigned held;        /* batches whose gradients wait for the step of a later one */
    RoundAccount held_account;
    Contribution contribution;
    Guard guard;
    SharedVersion *pin, *pin_next; /* of the task that runs, and of the one about to */
    RoundAccount account;
    float last_loss;
    bool busy;
    uint64_t arrived_us; /* when it began to wait for the meeting; 0: it does not */
    /* its trainer's session; NULL events: absent */
    const MemberEvents *events;
    void *events_data;
    bool own_data, reading, ever_joined;
    char client[64];
    Timer rejoin;
    char absent_why[80];
    ManagedTrainer managed;
    Snapshot *cut;         /* host memory of this rank's part of a cut; kept between cuts */
    Snapshot *copy;        /* of its replica, for the means of others; kept between them */
    bool copied;           /* for the one that is being taken */
    Snapshot *undo;        /* room for the buffers before a step; NULL: the model has none */
    const Snapshot *noted; /* that, where it is what they were before the step at hand */
    bool leaves;           /* its trainer left while it waited for the meeting: it goes after it */
    bool drops;            /* to be dropped as soon as its step in flight is done */
};

/* A task of the job itself on a lane. Embedded first in the message of its kind. */
typedef struct LaneTask LaneTask;
struct LaneTask {
    Task task;
    Job *job;
    int r;
    Error err;
    void (*work)(LaneTask *task);
    void (*done)(LaneTask *task); /* owns the task */
};

typedef struct MeanWaiter MeanWaiter; /* mean.c */

typedef struct CheckpointWaiter CheckpointWaiter;
struct CheckpointWaiter {
    JobCheckpointed done;
    void *data;
    CheckpointWaiter *next;
};

/* The checkpoint in the making. One at a time. */
typedef struct CheckpointWork {
    bool wanted;  /* as soon as all members are between steps */
    bool cutting; /* lanes are copying */
    bool writing; /* the store has it */
    bool result;  /* the one on disk is the job's last */
    char *meta;
    CheckpointPart *parts;
    size_t n_parts;
    uint64_t round, step, begun_us, hold_us;
    CheckpointWaiter *waiters; /* of the one in the making */
    CheckpointWaiter *later;   /* asked for after its cut: they get the next one */
} CheckpointWork;

struct Job {
    JobManager *manager;
    uint64_t id;
    JobSpec spec;
    bool planned; /* plan is there */
    JobPlan plan;
    const SyncPolicy *policy;
    JobState state;
    JobPhase phase;
    char reason[JOB_TEXT_MAX];
    char *owner;
    uint64_t created_ms, live_since_us, changes;
    double lived_s; /* running time of earlier phases of this process */

    JobSettings settings;
    SettingChange *pending; /* n_pending, by round, and then as they were asked for */
    unsigned n_pending, unsaved_settings;

    Common common;
    Snapshot *common_cut;   /* as the members' */
    bool stepping;          /* an optimizer step on shared parameters is under way */
    bool stepping_in_place; /* and nobody may read them meanwhile */
    uint64_t contributions; /* so far, for their order */
    Member *refreshing;     /* average-async: who takes the mean at this moment */
    unsigned refresh_copies;
    uint64_t refreshes;
    Timer quorum_timer, straggler_timer;
    uint64_t straggler_round; /* whose stragglers were named */
    bool quorum_over;         /* the meeting waits no longer for who has not come */
    bool stop_wanted;         /* the job is to end when its round ends */
    JobEvaluation evaluation;
    Engine **engines; /* by lane, NULL where none of its replicas live */
    Dealer *dealer;
    Member *members; /* spec.trainers; NULL while not loaded */
    uint64_t round;  /* the round in progress, from 1; where ranks do not meet, the slowest one's */
    bool exclusive;
    bool meeting;      /* one is under way */
    bool stopping;     /* the daemon ends: no step begins */
    unsigned tasks;    /* LaneTasks, MemberTasks and requests of the store under way */
    unsigned hosting;  /* of them: lanes that are making engines and replicas */
    unsigned restores; /* of them: restores whose checkpoint is being verified */
    unsigned rounds_unsaved;
    uint64_t samples, checksum, batches;
    uint64_t rounds_since_checkpoint, latest_checkpoint;
    CheckpointWork checkpoint;
    unsigned copies; /* lanes that are copying a cut */
    int copy_error;
    void (*copied)(Job *job, int r);
    MeanWaiter *mean_waiters;
    bool mean_under_way;
    bool finishing; /* the last meeting is over; the result is being saved */
    Timer retry;    /* of saving the result, or of leaving memory */

    /* what LOADING and LEAVING lead to */
    uint64_t restore_id;
    bool rewind_settings;
    JobDone load_done;
    void *load_data;

    /* rate for status */
    uint64_t rate_mark_us, rate_mark_samples;
    double rate;
    float last_loss;
    RankSummary *summary;                             /* spec.trainers, or NULL */
    uint64_t result_round, result_step, result_epoch; /* of a job that is not loaded */
    uint64_t result_furthest;                         /* round that any of its ranks was in */
};

/* job.c */
int job_new(JobManager *manager, uint64_t id, const JobSpec *spec, const char *owner, Job **ret);
Job *job_free(Job *job);
/* The one setter: checks the table, tells the log, the events and the store. reason may be NULL. */
void job_set_state(Job *job, JobState state, const char *who, const char *reason);
void job_set_reason(Job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_touch(Job *job);
void job_save(Job *job, StoreDone done, void *data);
void job_event(Job *job, const char *kind, const char *who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
uint64_t job_step(const Job *job);
uint64_t job_shown_round(const Job *job);
uint64_t job_epoch(const Job *job);
/* Answers a job_restore that is under way. */
void job_load_answer(Job *job, int r, const char *sentence);
/* Ends a loaded job in FAILED. */
void job_fail(Job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Pauses a job whose numbers are not to be trusted: without a checkpoint, which would save them. */
void job_halt(Job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* result.c */
char *result_json(const Job *job); /* NULL: out of memory */
int result_read(Job *job, const char *json);
/* Of a job whose replicas go. -ENOMEM */
int result_summarise(Job *job);

/* advance.c */
void job_advance(Job *job);
bool job_cut_is_next(const Job *job);
/* A meeting begins as soon as nobody works on the replicas that come to it, so nobody begins to. */
bool job_sync_is_next(Job *job);

/* load.c */
void job_load(Job *job, uint64_t checkpoint);

/* hosting.c */
void job_post(Job *job, Lane *lane, LaneTask *task);
/* What an engine of this job is made from, on any lane. */
int job_engine_spec(const Job *job, EngineSpec *ret, Error *err);
typedef void (*JobHosted)(Job *job, int r, const Error *err);
/* Makes engines and replicas; with `cuts` each member's cut is restored into its replica. */
void job_host(Job *job, bool cuts, JobHosted done);
/* Frees them; then calls job_left(). The job's sessions are gone before. */
void job_leave_lanes(Job *job);
/* Without memory for that: again, in a moment. */
void job_leave_later(Job *job);
/* Ends sessions and managed trainers, then the replicas. */
void job_unload(Job *job, const char *reason);

/* membership.c */
int members_new(Job *job);
void members_free(Job *job);
unsigned members_live(const Job *job);
/* Its replica is part of the job's model. */
bool member_has_model(const Member *member);
bool members_busy(const Job *job);
void member_drop(Member *member, const char *why);
void member_admit(Member *member);
void members_end(Job *job, const char *reason);
void members_ready(Job *job);
bool member_arrived(Member *member);
/* Begins to count the patience of the meeting with members whose trainer is not there. */
void members_wait_for_absent(Job *job);
/* Takes in who wants back and out who left, between two rounds. */
void members_turn_over(Job *job);
bool member_is_in_step(const Member *member);
/* Gradients that wait for their step go with the trainer that was to finish it. */
void member_give_up_held(Member *member);
void drop_after_step(Member *member);

/* member.c */
void member_rule(const Member *member, StepRule *ret);
void member_step_done(Member *member, const StepAccount *account);
void member_drop_held(Member *member);
/* What the buffers were before the step that is begun; NULL: none is, or there is nothing to undo.
 */
const Snapshot *member_undo(const Member *member);

/* contribution.c */
void member_contribute(Member *member, uint64_t version, int64_t samples,
                       const StepAccount *account);
bool contributions_wait(const Job *job);
bool shared_step_is_due(Job *job);
void shared_step_begin(Job *job);

/* guard.c */
double guard_limit(const Member *member); /* 0: none */
void guard_judge(Member *member, StepVerdict verdict, double norm);
void guard_judge_replica(Member *member, bool finite);
/* Who resumes a job gives every rank a fresh start. */
void guard_forgive_all(Job *job);

/* quorum.c */
void quorum_watch(Job *job);
void quorum_reset(Job *job);
bool quorum_leaves_out(Member *member);
void quorum_timeout(void *data);

/* stragglers.c */
void stragglers_watch(Job *job);
void stragglers_name(void *data);
/* member_status.c: "rank 2 (no word for 12 s), rank 3 (reading data)" */
void members_awaited(Job *job, char *text, size_t size);

/* refresh.c */
void refresh_begin(Member *member);

/* common.c: lane thread, but for the last two and common_is_there */
int common_make(Engine *engine, const SyncPolicy *policy, Common *ret, Error *err);
void common_free(Common *common);
int common_copy(const Common *common, Snapshot *into);
int common_restore(const Common *common, const Snapshot *from);
bool common_is_there(const Common *common);
int common_cut_new(const JobPlan *plan, const SyncPolicy *policy, Snapshot **ret);
/* Frees it on its lane, before the engines go; job_advance follows. */
void common_leave(Job *job);
bool common_centre_is_missing(const Job *job);
void common_make_centre(Job *job);

/* managed.c */
void managed_start_all(Job *job);
void managed_stop_all(Job *job);
/* A rank that is wanted (again), or no longer. */
void managed_start(Member *member);
void managed_stop(Member *member);
void managed_note_step(Member *member);
/* Where nobody is left who could go on, and nobody will come: one of those that were given up. */
const Member *managed_hopeless(const Job *job);
/* Fails the job for that, with the reason. */
void managed_fail(Job *job, const Member *member);
/* Its session was lost: if it does not come back soon it is replaced. */
void managed_note_absence(Member *member);

/* update.c */
/* Adds a change to the pending ones. -ENOMEM */
int pending_add(Job *job, const SettingChange *change);

/* meeting.c */
bool meeting_is_due(Job *job);
bool meeting_may_begin(Job *job);
void meeting_begin(Job *job);
bool job_work_is_done(Job *job);

/* rounds.c */
/* The round of the job as a whole begins: settings that were to hold from it on become the job's.
 */
void job_begin_round(Job *job, uint64_t number);
/* A member goes into a round from the step where it stands. */
void member_begin_round(Member *member, uint64_t number);
/* The settings of the round that it is in, as after loading. */
void member_take_settings(Member *member);
/* Writes the metrics of the round that these members have ended. */
void rounds_save(Job *job, Member *const *members, const bool *contributed, size_t n);
/* Where ranks do not meet: ends the round of a member whose mean, if it takes one, it has. */
void member_end_free_round(Member *member, bool contributed);
/* Ends what rounds can be ended, and moves the job's on. */
void free_rounds_advance(Job *job);
/* After a round of the whole job: rate, loss, checkpoint, the end. */
void job_round_is_over(Job *job);
/* The furthest round that a member is in: settings asked for now hold from the one after it. */
uint64_t rounds_furthest(const Job *job);

/* cuts.c */
/* Copies every replica into its member's cut, with the job exclusive; `done` is still exclusive,
 * and job_advance follows it. 0, -ENOMEM, -EIO */
void cuts_copy(Job *job, void (*done)(Job *job, int r));
/* Makes the members' cuts (-ENOMEM), as for a checkpoint that is to be loaded. */
int cuts_prepare(Job *job);

/* mean.c */
void mean_begin(Job *job);
void mean_drop(Job *job);

/* checkpoint.c */
void checkpoint_want(Job *job, JobCheckpointed done, void *data);
void checkpoint_cut(Job *job);
void checkpoint_drop(Job *job);
bool checkpoint_under_way(const Job *job);
/* Ends a job whose result is on disk and whose last evaluation is over. */
void checkpoint_finish(Job *job);
/* A timer's: the result is saved, or the job leaves memory, in another attempt. */
void job_try_again(void *job);

/* checkpoint_meta.c */
int checkpoint_meta_write(const Job *job, char **ret);
/* The policy at the cut. -EBADMSG */
int checkpoint_meta_policy(const Job *job, const char *json, const SyncPolicy **ret, Error *err);
/* Into a job with fresh members and dealer, and the members' cuts (their counts). -EBADMSG */
int checkpoint_meta_read(Job *job, const char *json, Error *err);
/* Which of the n ranks the model of the cut is made of: those that were live, or where none was
 * those that had been. -EBADMSG */
int checkpoint_meta_ranks(const char *json, bool *chosen, uint32_t n);
/* parts.c: the bytes of a cut as parts of a checkpoint, and back. */
typedef void (*PartVisitor)(void *data, const char *name, void *bytes, size_t size);
void snapshot_visit(const char *whose, Snapshot *snapshot, PartVisitor visit, void *data);
void rank_name(uint32_t rank, char name[RANK_NAME_MAX]); /* "rank0" */
/* Copies the parts of a rank into a snapshot of the right sizes. -EBADMSG with the part's name */
int snapshot_from_parts(const char *whose, Snapshot *snapshot, const CheckpointPart *parts,
                        size_t n, Error *err);

/* manager.c */
void manager_job_changed(JobManager *manager, Job *job); /* a slot may be free */
const JobManagerSpec *manager_spec(const JobManager *manager);
Lane *manager_place(JobManager *manager, const JobSpec *spec);
void manager_unplace(JobManager *manager, const Lane *lane);
