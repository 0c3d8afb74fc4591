/* A dpsd without its network: a real store in a directory of its own, two lanes, jobs and sessions,
 * with the loop played by the test. Time stands still but for world_wait, so that timers fire when
 * a test says so. Trainers are played by the test too; their samples are made up from the index. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/session.h"

enum {
    WORLD_LANES = 2,
    WORLD_LAUNCHES = 64,
    WORLD_SAMPLES = 256, /* at most, of a job whose uses are counted */
    WORLD_EPOCHS = 4,
    WORLD_WIDTH = 784,
};

typedef struct World World;

/* A trainer that dpsd has started. */
typedef struct Launch {
    uint32_t rank;
    char token[40];
    void (*on_exit)(void *data, bool clean, const char *how);
    void *data;
    bool running;
} Launch;

/* A task that does nothing: when it is back, so is all that its lane was given before. */
typedef struct Barrier {
    Task task; /* first */
    bool out;
} Barrier;

struct World {
    char dir[64];
    bool keeps_dir;
    Mailbox *loop;
    Store *store;
    Lane *lanes[WORLD_LANES];
    Timers *timers;
    JobManager *jobs;
    SessionTable *sessions;
    /* before world_start, or 0 for the usual */
    SessionLimits limits;
    uint64_t rejoin_us;
    unsigned max_running, trainer_restarts;
    bool launching_fails;
    /* what happened */
    Launch launches[WORLD_LAUNCHES];
    unsigned n_launches, lost_launches; /* stopped by dpsd */
    uint64_t silence_us;
    unsigned closed;
    Barrier beats[WORLD_LANES];
    unsigned used[WORLD_EPOCHS][WORLD_SAMPLES]; /* by samples that were trained on */
};

void world_start(World *world);
/* As SIGTERM: checkpoints, then everything ends. The directory goes unless keeps_dir. */
void world_stop(World *world);
/* What kill -9 leaves: a copy of the state directory as it is on disk now; the caller's to open by
 * another world's `dir`. */
void world_copy_dir(World *world, char dir[64]);
void world_remove_dir(const char *dir);

/* One finished task, waiting for it up to a moment. False: none came. */
bool world_step(World *world);
/* The next finished task, however long it takes. False: there was nothing under way. */
bool world_beat(World *world);
/* Until lanes and store have nothing to do. */
void world_settle(World *world);
/* Lets time pass, with what it brings. */
void world_wait(World *world, uint64_t us);

/* The mlp with 4 hidden units on backend ref, external trainers, 40 samples in batches of 4. */
JobSpec world_spec(uint32_t trainers, uint32_t interval);
Job *world_submit(World *world, const JobSpec *spec);
/* Starts the world from what another left in `dir`, with the job of that number. */
Job *world_again(World *world, const char *dir, uint64_t id);
JobState world_state(const Job *job);
uint64_t world_checksum(Job *job);
uint64_t world_round(Job *job);
/* How many events of the kind have the words in their text. */
unsigned world_events(World *world, const Job *job, const char *kind, const char *words);

/* Answers of long operations. */
typedef struct Answer {
    int called, r;
    uint64_t value; /* round, checkpoint */
    char message[480];
} Answer;

void answer_done(void *data, int r, const Error *err);
void answer_round(void *data, int r, const Error *err, uint64_t round);
void answer_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *record);
Answer world_set(World *world, Job *job, const char *key, const char *value);
uint64_t world_checkpoint(World *world, Job *job);
Answer world_restore(World *world, Job *job, uint64_t checkpoint);

/* ---- trainers -------------------------------------------------------------------------------- */

typedef struct Trainer {
    World *world;
    Job *job;
    Session *session; /* NULL once it has ended */
    uint32_t rank;
    unsigned waiting;    /* batches without an answer */
    unsigned accumulate; /* batches in a step; 0 or 1: each is one */
    bool poisoned;       /* its next batch has an infinite number */
    int last_r;
    char message[480], end[64];
    DealerBatch lease; /* of the batch under way; indices are not kept */
    uint64_t indices[64];
    unsigned n_held; /* samples of batches before it, whose step is still to come */
    uint64_t held_epochs[256], held_indices[256];
} Trainer;

/* A batch of made-up samples. */
void world_batch(const uint64_t *indices, uint32_t samples, OwnedBatch *ret);
int trainer_try_join(World *world, Job *job, uint32_t rank, Trainer *trainer, Error *err);
void trainer_join(World *world, Job *job, uint32_t rank, Trainer *trainer);
void trainer_join_managed(World *world, Job *job, uint32_t rank, Trainer *trainer);
void trainers_join(World *world, Job *job, Trainer *trainers, uint32_t n);
/* Starts the world with a job in it that has a trainer for each rank. */
Job *world_with_job(World *world, const JobSpec *spec, Trainer *trainers);
/* Sends the batch of its next step if there is one and none is under way. */
bool trainer_feed(Trainer *trainer);
/* The trainer dies. */
void trainer_die(Trainer *trainer);
uint64_t trainer_step(const Trainer *trainer);
/* All feed until they have done `step` steps each, or the job wants no more. */
void trainers_run(World *world, Trainer *trainers, uint32_t n, uint64_t step);
/* All feed until the job is COMPLETED. */
void trainers_finish(World *world, Job *job, Trainer *trainers, uint32_t n);
void world_assert_used_once(const World *world, uint64_t epochs, uint64_t samples);
