/* What the files of job/ share: the struct of a job and of its members, and who does what.
 *
 *   job.c         states, status                  update.c           settings changed while it runs
 *   load.c        from the store to replicas      hosting.c          engines and replicas on lanes
 *   membership.c  trainers that come and go       managed.c          starting trainers, and again
 *   meeting.c     rounds and what ends them       cuts.c, parts.c    copies of all replicas
 *   checkpoint.c  cuts that are written           checkpoint_meta.c  a cut's position as JSON
 *   mean.c        the averaged model              evaluator.c        run on batches
 *   result.c      what is kept besides the spec   advance.c          what happens next
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
#include "job/job.h"
#include "job/launcher.h"
#include "job/manager.h"
#include "job/policy.h"

enum {
    JOB_TEXT_MAX = 320,
    JOB_MAX_PENDING_SETTINGS = 256, /* changes asked for and not yet in force */
    JOB_MAX_STORE_BACKLOG =
        64, /* rounds that may wait for the store before the next meeting waits */
    TOKEN_MAX = 33,
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

struct Member {
    Job *job;
    uint32_t rank;
    MemberPlace place;
    bool wants_back; /* dropped, and its trainer has asked to come back */
    Lane *lane;
    Replica *replica;
    uint64_t step; /* batches done */
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
    Snapshot *cut; /* host memory of this rank's part of a cut; kept between cuts */
    bool leaves;   /* its trainer left while it waited for the meeting: it goes after it */
    bool drops;    /* to be dropped as soon as its step in flight is done */
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
    SettingChange *pending; /* n_pending, in the order in which they were asked for */
    unsigned n_pending, unsaved_settings;

    Engine **engines; /* by lane, NULL where none of its replicas live */
    Dealer *dealer;
    Member *members; /* spec.trainers; NULL while not loaded */
    Round round;
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
    Timer retry;    /* of saving the result */

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
uint64_t job_epoch(const Job *job);
/* Answers a job_restore that is under way. */
void job_load_answer(Job *job, int r, const char *sentence);
/* Ends a loaded job in FAILED. */
void job_fail(Job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* result.c */
char *result_json(const Job *job); /* NULL: out of memory */
int result_read(Job *job, const char *json);
/* Of a job whose replicas go. -ENOMEM */
int result_summarise(Job *job);

/* advance.c */
void job_advance(Job *job);
bool job_cut_is_next(const Job *job);

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
/* Ends sessions and managed trainers, then the replicas. */
void job_unload(Job *job, const char *reason);

/* membership.c */
int members_new(Job *job);
void members_free(Job *job);
unsigned members_live(const Job *job);
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

/* managed.c */
void managed_start_all(Job *job);
void managed_stop_all(Job *job);
void managed_note_step(Member *member);
/* Its session was lost: if it does not come back soon it is replaced. */
void managed_note_absence(Member *member);

/* update.c */
/* Adds a change to the pending ones. -ENOMEM */
int pending_add(Job *job, const SettingChange *change);

/* meeting.c */
bool meeting_is_due(Job *job);
/* It begins as soon as nobody works on a replica, so nobody begins to. */
bool meeting_is_next(Job *job);
void meeting_begin(Job *job);
void round_begin(Job *job, uint64_t number, uint64_t start);
bool job_work_is_done(Job *job);

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
void checkpoint_retry(void *job); /* a timer's: the result once more */

/* checkpoint_meta.c */
int checkpoint_meta_write(const Job *job, char **ret);
/* Into a job with fresh members and dealer, and the members' cuts (their counts). -EBADMSG */
int checkpoint_meta_read(Job *job, const char *json, Error *err);
/* Which of the n ranks were live in the cut. -EBADMSG */
int checkpoint_meta_live(const char *json, bool *live, uint32_t n);
/* parts.c: the bytes of a cut as parts of a checkpoint, and back. */
typedef void (*PartVisitor)(void *data, const char *name, void *bytes, size_t size);
void snapshot_visit(uint32_t rank, Snapshot *snapshot, PartVisitor visit, void *data);
/* Copies the parts of a rank into a snapshot of the right sizes. -EBADMSG with the part's name */
int snapshot_from_parts(uint32_t rank, Snapshot *snapshot, const CheckpointPart *parts, size_t n,
                        Error *err);

/* manager.c */
void manager_job_changed(JobManager *manager, Job *job); /* a slot may be free */
const JobManagerSpec *manager_spec(const JobManager *manager);
Lane *manager_place(JobManager *manager, const JobSpec *spec);
void manager_unplace(JobManager *manager, const Lane *lane);
