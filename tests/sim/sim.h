/* A deterministic simulation of dpsd's job layer: the real job/ and session/ on a clock that stands
 * still unless the simulation moves it, with substitutes for what lies below, put in their place by
 * the linker (lanes, replicas, store, clock, log), and seeded actors above (trainers, launcher,
 * users, mishaps).
 *
 *   main.c       options, seeds, what is printed    check.c      what must hold after every event
 *   world.c      one simulated job, begin to end    ledger.c     which batch was used, by whom
 *   events.c     clock, chance, order, trace        trainer.c    trainers: connections, joining
 *   memory.c     the daemon's memory                streams.c    trainers on the Train stream
 *   fake_base.c  clock, log, getrandom              unary.c      trainers that call one by one
 *   fake_lane.c  lanes                              launcher.c   managed trainers
 *   fake_replica.c fake_step.c fake_context.c       settings.c   settings that hold, and random ones
 *   fake_mean.c fake_shared.c fake_snapshot.c       users.c      what users ask for
 *   fake_store.c fake_rows.c fake_checkpoints.c     mishaps.c    what goes wrong
 *   fake_evaluations.c                              evaluations.c  evaluations
 *   disk.c       what survives the daemon           questions.c  what was asked and not answered
 *
 * A world has one daemon at a time, with up to SIM_MAX_JOBS jobs. For a while things happen to it;
 * then it is left in peace, and every job has to come to its end. */
#pragma once

#include <setjmp.h>

#include "disk.h"
#include "events.h"
#include "session/session.h"

enum {
    SIM_MAX_JOBS = 4,
    SIM_MAX_RANKS = 8,
    SIM_MAX_LANES = 4,
    SIM_MAX_HELD = 3, /* batches that a trainer holds before a step */
    SIM_WORDS = 32,   /* of 64 batches: what a job may have in all */
    SIM_MAX_BATCHES = SIM_WORDS * 64,
};

#define SIM_SECOND UINT64_C(1000000)
#define SIM_MS     UINT64_C(1000)

/* A job as the world knows it; its number in world.jobs is in the low bits of its seed. */
typedef struct SimJob {
    bool dead; /* the store never got it */
    JobSpec spec;
    uint64_t id;
    /* what its live replicas have been trained on: ledger.c */
    uint64_t done[SIM_WORDS];
    uint64_t samples, batches;
    /* why it may have failed without a fault of the daemon's */
    bool poisoned, unreadable, unlaunched;
    bool settings_unsure; /* changed while neither the daemon nor the disk knew its round */
    /* check.c: as it was after the last event */
    bool seen_live;
    JobState state;
    uint64_t round, seen_samples, rank_step[SIM_MAX_RANKS], rank_round[SIM_MAX_RANKS], changed_us;
    /* the settings that each rank should have: settings.c */
    struct {
        uint64_t round, stamp;
        JobSettings values;
    } wanted[SIM_MAX_RANKS];
} SimJob;

typedef struct World {
    uint64_t seed;
    jmp_buf out; /* of a broken invariant */
    char failure[1600];
    /* how it is, chosen at its beginning */
    unsigned n_lanes, max_running, restarts;
    uint64_t rejoin_us, step_us, store_us;
    SessionLimits limits;
    unsigned mishaps, requests; /* of a thousand, each time the die is cast */
    /* the daemon; NULL while there is none */
    JobManager *manager;
    SessionTable *sessions;
    Timers *timers;
    Store *store;
    Lane *lanes[SIM_MAX_LANES];
    bool loaded, stopping;
    uint64_t stop_asked_us;
    uint64_t daemon; /* how many there were */
    bool calm;       /* nothing goes wrong any more */
    uint64_t calm_us;
    bool last_stop, over;
    SimJob jobs[SIM_MAX_JOBS];
    unsigned n_jobs;
    Disk disk;
} World;

extern World world;

/* world.c */
typedef struct WorldResult {
    uint64_t events, hash;
    unsigned jobs, completed, kills, stops;
    bool broken; /* world.failure says how */
} WorldResult;

void world_run(uint64_t seed, bool tracing, WorldResult *ret);
bool world_is_calm(void); /* nothing goes wrong any more */
void daemon_start(void);
void daemon_kill(void);      /* as kill -9; it comes back after a while */
void daemon_terminate(void); /* as SIGTERM; it comes back after a while */
SimJob *sim_job_of_seed(uint64_t seed);
SimJob *sim_job_by_id(uint64_t id);
Job *sim_daemon_job(const SimJob *job); /* NULL: no daemon, or it does not know it */
void sim_submit(void);

/* ---- what is asked of the daemon: every question is answered exactly once -------------------- */

typedef struct Question {
    const char *what; /* NULL: free place */
    uint64_t asked_us;
    void *owner;
    uint64_t a, b;
    void *c;
} Question;

Question *question_new(const char *what, void *owner);
/* First thing in a callback. The question's place is free after it; its values stay until the next
 * question_new. */
void question_answered(Question *question);
void questions_forget(void); /* the daemon was killed */
void questions_forget_of(const void *owner);
unsigned questions_open(char *text, size_t size);

/* ---- parts ----------------------------------------------------------------------------------- */

/* check.c */
void check_everything(void);
void check_meeting(const RoundRecord *rows, size_t n);
void check_rate(SimJob *sim, int rank, float lr);
bool check_ranks_meet(uint64_t job); /* at the end of each round, all of them */

/* settings.c: what the store says of a rank in a round */
const JobSettings *settings_wanted(SimJob *sim, uint32_t rank, uint64_t round);
void settings_random(char *key, size_t key_size, char *value, size_t value_size);
bool settings_alike(const JobSettings *a, const JobSettings *b, char *differs, size_t size);
void check_daemon_gone(void);
void check_progress(void);
bool jobs_all_ended(void);

/* ledger.c */
typedef struct History {
    uint64_t done[SIM_WORDS];
    uint64_t samples, batches;
} History;
void ledger_add(SimJob *job, History *history, uint64_t number, uint64_t samples, int rank);
void ledger_join(SimJob *job, const History *history, int rank);
void ledger_leave(SimJob *job, const History *history);
void ledger_lease(SimJob *job, const DealerBatch *batch);
uint64_t ledger_total(const SimJob *job); /* batches of the whole job, 0: it has no fixed number */
bool ledger_complete(const SimJob *job, const uint64_t *done);
void ledger_begin(void);
void ledger_end(void);

/* fake_lane.c */
void fake_lanes_begin(void);
int fake_lane_current(void);       /* index of the lane whose task runs; -1: the loop */
uint64_t fake_lane_task(void);     /* number of that task */
uint64_t fake_lane_task_end(void); /* when it will have ended */
void fake_lanes_drain(Lane *const *lanes, unsigned n);

/* fake_store.c */
void fake_store_open(Store **ret);
void fake_store_drain(Store *store);
void fake_store_close(Store *store);

/* trainer.c */
void trainers_begin(void);
void trainers_disconnect_all(void); /* the daemon is gone */
void trainers_for(SimJob *job);     /* external ones set out */
uint64_t transport_silence_us(void *data, uint64_t connection);
void transport_close(void *data, uint64_t connection);
void trainers_calm(void);
void trainers_mishap(void);
unsigned trainers_joined(const SimJob *job);

typedef struct Evaluating Evaluating; /* evaluations.c */

/* launcher.c */
Launcher launcher_interface(void);
void launcher_evaluated(const Evaluating *of, bool clean); /* its process has ended by itself */
void launcher_begin(void);
void launcher_forget(void); /* the daemon is gone */

/* evaluations.c: as rpc/control_evaluate.c, for users and for processes that the daemon starts */
void evaluations_begin(void);
void evaluation_by_user(Job *job, uint64_t checkpoint);
Evaluating *evaluation_by_process(uint64_t job, uint64_t checkpoint, const char *token);
void evaluation_kill(Evaluating *of); /* its process ends without a word */
void evaluation_abandon_one(void);    /* somebody gives up, or dies */
void evaluations_daemon_gone(void);   /* orderly */
void evaluations_daemon_killed(void);

/* users.c, mishaps.c */
void users_begin(void);
void users_calm(void);
void mishaps_begin(void);
