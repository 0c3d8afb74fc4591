/* Shared parameters with members on engines of their own, for tests. Everything on one thread; the
 * "loop" is the caller. */
#pragma once

#include "fixture.h"
#include "replica/shared.h"

enum { MEMBERS = 3 };

typedef struct SharedWorld {
    Fixture fixture; /* a plain replica to compare with, on an engine of its own */
    Engine *engines[MEMBERS];
    Replica *members[MEMBERS];
    SharedParams *shared; /* home: engines[0] */
} SharedWorld;

void shared_start(SharedWorld *world, const char *optimizer);
void shared_stop(SharedWorld *world);

/* Pins, attaches, computes the gradient of fixture.batch, and lets go. */
StepResult shared_gradient(SharedWorld *world, int member, uint64_t step, const StepRule *rule);
/* Update and publication. */
SharedResult shared_update(SharedWorld *world, const SharedGradient *gradients, int count,
                           const StepRule *rule, bool may_wait);
/* Forward of fixture.batch into a context, whose pin is left to the caller. */
Context *shared_forward(SharedWorld *world, int member, uint64_t step);
/* Its backward with the NLL gradient of fixture.batch; drops the pin. */
double shared_backward(SharedWorld *world, int member, Context *context);

/* Parameters and optimizer state as they stand. */
Snapshot *shared_copy(const SharedWorld *world);
/* The gradient of fixture.batch that a plain engine computes at those parameters as rank `rank`. */
void shared_plain_gradient(const SharedWorld *world, const Snapshot *at, int rank, uint64_t step,
                           float *gradient);
/* One optimizer step on a snapshot's numbers. */
void shared_step_copy(const SharedWorld *world, Snapshot *snapshot, const float *gradient,
                      float lr);
void shared_assert_at(const SharedWorld *world, const Snapshot *want);
