/* Runs the averaged model of a job, or of one of its checkpoints, on batches, on a lane, beside whatever else goes on. Loop
 * thread.
 *
 * One batch at a time: the next one after the callback of the last. */
#pragma once

#include "job/job.h"

typedef struct Evaluator Evaluator;

typedef void (*EvaluatorDone)(void *data, int r, const Error *err);
/* checkpoint 0: the model as it stands. `done` comes when the model is ready, or with an error, after
 * which the evaluator is still to be freed. -ENOMEM */
int evaluator_new(Job *job, uint64_t checkpoint, EvaluatorDone done, void *data, Evaluator **ret);
/* At any time; NULL is fine. No callback comes after it. */
void evaluator_free(Evaluator *evaluator);

/* The batch's memory must live until `done`, or, where the evaluator is freed before, until
 * `release` is called with `owner`: it is called in any case, last. */
void evaluator_run(Evaluator *evaluator, const Batch *batch, void *owner,
                   void (*release)(void *owner), EvaluatorDone done, void *data);
const Evaluation *evaluator_total(const Evaluator *evaluator);
