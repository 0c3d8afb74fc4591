/* What tests of whole jobs do with a world besides: trainers at random, dpsd ended and started
 * again, and a job's model and metrics looked at. */
#pragma once

#include "world.h"

/* One thing happens at random: a trainer sends a batch, or a task comes back. False: nothing can
 * any more. */
bool play(World *world, Trainer *trainers, uint32_t n, unsigned *seed);
/* `ticks` of them at most. */
void play_for(World *world, Trainer *trainers, uint32_t n, unsigned *seed, unsigned ticks);
/* To the end of the job. */
void play_out(World *world, Job *job, Trainer *trainers, uint32_t n, unsigned *seed);

/* SIGTERM, or kill -9, and a new start in the same directory. Returns the job as it is then. */
Job *world_restart(World *world, Job *job);
Job *world_kill(World *world, Job *job);

/* A hash of all numbers of the job's model: parameters, buffers, counters. */
uint64_t world_model(World *world, Job *job);

/* Metrics: each rank's rounds follow each other without a gap where `gapless`, and the samples of
 * all of them are those that the job has counted. Returns how many rows there are. */
size_t world_check_metrics(World *world, Job *job, bool gapless);
