/* What the files of trainers share. A trainer is a process that wants to feed one rank of one job:
 * it connects, joins, feeds by the stream or call by call, and comes back when it was thrown out.
 * Like a client it knows its session by number only. */
#pragma once

#include "sim.h"

enum { TRAINER_LEASES = 8 };

typedef struct TrainerLease {
    uint64_t number, step;
    uint32_t samples;
} TrainerLease;

typedef struct Trainer {
    SimJob *job; /* NULL: free place */
    uint32_t rank;
    bool alive; /* the process runs */
    bool managed, unary, own_data, final;
    uint64_t life; /* an event of another life comes too late */
    uint64_t hung_since, hung_until;
    uint64_t pace_us; /* to read a batch */
    uint64_t connection, session;
    char token[40];
    /* streams.c */
    bool attached, upset; /* upset: a batch failed, those behind it will */
    TrainerLease leases[TRAINER_LEASES];
    unsigned n_leases, under_way;
    bool reading;                 /* the event of its next batch is to come */
    unsigned accumulate, holding; /* batches that make a step; of them those that were sent */
    uint64_t next_step;           /* to send, with data of its own */
    /* unary.c */
    uint64_t context;
    uint32_t samples;
    bool waits; /* for an answer */
} Trainer;

/* Its rank's replica and session, where it has one now. NULL: it was told, or will be. */
Session *trainer_session(Trainer *trainer);
/* In a while, if it is still the same life; it waits while it hangs. */
void trainer_later(Trainer *trainer, uint64_t delay_us, const char *kind, EventFn run);
/* First thing in such an event. False: it comes too late, or was put off. */
bool trainer_goes_on(Trainer *trainer, uint64_t life, const char *kind, EventFn run);
/* Its session is gone. Final: the job wants no more of it. */
void trainer_lost_session(Trainer *trainer, bool final);
/* A batch in memory of the daemon's, as if it came over the wire. */
void trainer_batch(Trainer *trainer, const TrainerLease *lease, bool bad, OwnedBatch *ret);
uint64_t trainer_pause(const Trainer *trainer);

void stream_begin(Trainer *trainer);
void stream_mishap(Trainer *trainer); /* the stream breaks, the session stays */
void stream_detach(Trainer *trainer, Session *session);
void streams_forget(void); /* the daemon is gone */
void unary_begin(Trainer *trainer);

/* launcher.c: a managed trainer's process has ended by itself. */
void launcher_ended(Trainer *trainer, bool clean);
/* trainer.c: a process is started for the rank. */
Trainer *trainer_launch(SimJob *job, uint32_t rank, const char *token);
void trainer_die(Trainer *trainer);
