/* Replicas as the simulation has them: no numbers but a fingerprint of what they went through, a
 * version, and the batches that they were trained on. Shared by the fake_*.c of replica/. */
#pragma once

#include "replica/mean.h"
#include "replica/replica.h"
#include "replica/shared.h"
#include "replica/snapshot.h"
#include "sim.h"

#define SIM_BATCH_MAGIC UINT64_C(0x5349424154434821)
#define SIM_NO_NUMBER   UINT64_MAX
#define SIM_STATE_NAN   UINT64_C(0x7ff8dead7ff8dead)

enum { HELD_MAX = 8 }; /* batches whose gradients wait for one step */

/* What a batch's x points to. */
typedef struct SimBatch {
    uint64_t magic;
    uint64_t number; /* of the lease, or SIM_NO_NUMBER */
    uint32_t rank;
    uint64_t step;
    bool poison;
    bool fails; /* the device does, this time */
    double norm;
} SimBatch;

struct Engine {
    EngineSpec spec;
    int lane;
    unsigned replicas, contexts, others;
};

/* Who has something, until when: two tasks at once are a fault. */
typedef struct Holder {
    uint64_t task, until_us;
} Holder;

/* A gradient, and the batches that it is made of. Handed around as const float *. */
typedef struct Gradient {
    uint64_t magic;
    Replica *replica;
    uint64_t numbers[HELD_MAX], samples[HELD_MAX];
    unsigned n;
    bool poison;
    double norm;
    Holder holder;
} Gradient;

struct SharedVersion {
    uint64_t number, state;
    unsigned holds;
    uint64_t read_until_us, written_until_us;
    SharedVersion *next; /* among the spare ones */
};

struct Replica {
    Engine *engine;
    SimJob *job;
    int rank;
    bool shared;
    uint64_t version, updates, state;
    bool mean; /* of an evaluation: its history is nobody's */
    History history;
    Gradient held;     /* what was held, n 0: nothing */
    Gradient joined;   /* what the last step took along */
    Gradient gradient; /* of a shared replica: what waits for its step */
    SharedVersion *attached;
    Holder holder;
};

/* fake_replica.c */
void on_a_lane(const char *what);
void on_the_loop(const char *what);
/* The calling task has it alone, to its end. */
void hold_alone(Holder *holder, const char *what, int rank);
void replica_touch(Replica *replica, const char *what);
const SimBatch *batch_of(const Batch *batch);
uint64_t state_mix(uint64_t a, uint64_t b);
/* Of replicas in rank order: equal ones are their own mean. */
uint64_t state_mean(const uint64_t *states, int count);

/* fake_step.c */
void gradient_begin(Gradient *gradient, Replica *replica, const SimBatch *batch, uint64_t samples);
/* Judges it, and holds it or adds what is held, as replica_settle does. */
void gradient_settle(Replica *replica, Gradient *gradient, const StepRule *rule, StepResult *ret);
StepVerdict gradient_verdict(const Gradient *gradient, const StepRule *rule);
/* Its batches are used. */
void gradient_used(Gradient *gradient);
uint64_t gradient_print(const Gradient *gradient);

/* fake_shared.c */
void version_read(SharedVersion *version, const char *what);

/* fake_snapshot.c */
enum { STATE_FLOATS = 4 };
void state_write(uint64_t state, float *to);
uint64_t state_read(const float *from);
#define MEAN_MARK INT64_C(-77) /* in place of a history: it is the model, not that of a rank */
void mark_as_mean(Snapshot *snapshot);
