/* When an evaluation begins, and the process that makes it. */
#include "job/job_internal.h"

#include <stdio.h>

/* A process that sends nothing for so long is ended: the end of the job may wait for it. */
#define EVALUATION_SILENCE_US (60 * USEC_PER_SEC)

static void run(Job *job);

static uint64_t rounds_behind(uint64_t round)
{
    return round ? round - 1 : 0;
}

static uint32_t interval(const Job *job)
{
    return *job->spec.eval_data ? job->settings.eval_every : 0;
}

bool evaluation_is_under_way(const Job *job)
{
    const JobEvaluation *evaluation = &job->evaluation;
    return evaluation->phase != EVALUATION_NONE || evaluation->due || evaluation->again;
}

bool evaluation_wants_checkpoint(const Job *job, uint64_t round)
{
    return job->evaluation.phase == EVALUATION_WANTED && job->evaluation.round == round;
}

/* ---- when it is due -------------------------------------------------------------------------- */

/* Of many that are skipped while one runs only the first and their number are told: they may be
 * thousands. */
static void skip(Job *job, uint64_t round)
{
    JobEvaluation *evaluation = &job->evaluation;
    if (evaluation->skipped++ == 0)
        job_event(job, "evaluation", NULL,
                  "round %llu is not evaluated: the evaluation of round %llu is still under way",
                  (unsigned long long)round, (unsigned long long)evaluation->round);
}

/* The last round's is not skipped: it says what the job has come to. */
static void note_round(Job *job, uint64_t before, uint64_t behind)
{
    uint32_t every = interval(job);
    if (every == 0 || behind / every == before / every)
        return;
    if (job->evaluation.phase == EVALUATION_NONE || job->finishing)
        job->evaluation.due = true;
    else
        skip(job, behind / every * every);
}

static void on_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *record);

/* Training does not wait for the disk: where a checkpoint is being written as the round ends, the
 * next end of a round is taken, so that what is evaluated is always a round's mean. */
static bool checkpoint_can_be_taken(const Job *job, bool at_end_of_round)
{
    const CheckpointWork *work = &job->checkpoint;
    return job->finishing || (at_end_of_round && !work->cutting && !work->writing);
}

void evaluation_advance(Job *job)
{
    JobEvaluation *evaluation = &job->evaluation;
    bool round_ended = job->round != evaluation->seen_round;
    if (round_ended)
        note_round(job, rounds_behind(evaluation->seen_round), rounds_behind(job->round));
    evaluation->seen_round = job->round;
    bool goes_on = job->state == JOB_RUNNING || job->finishing;
    if (evaluation->phase != EVALUATION_NONE || !goes_on || job->stopping)
        return;
    if (evaluation->again) {
        evaluation->again = false;
        run(job);
    } else if (evaluation->due && checkpoint_can_be_taken(job, round_ended)) {
        evaluation->due = false;
        evaluation->phase = EVALUATION_WANTED;
        evaluation->skipped = 0;
        evaluation->round = rounds_behind(job->round);
        checkpoint_want(job, on_checkpoint, job);
    }
}

/* ---- its end --------------------------------------------------------------------------------- */

static void pin(Job *job, uint64_t checkpoint)
{
    (void)store_checkpoint_pin(manager_store(job->manager), job->id, PIN_IN_USE, checkpoint, NULL,
                               NULL);
}

static void warn(Job *job, const char *problem)
{
    unsigned long long round = job->evaluation.round;
    log_job(LOG_WARNING, job->id, -1, "round %llu is not evaluated: %s; training goes on", round,
            problem);
    job_event(job, "evaluation", NULL, "round %llu is not evaluated: %s; training goes on", round,
              problem);
}

static void forget_process(Job *job)
{
    JobEvaluation *evaluation = &job->evaluation;
    timer_cancel(manager_spec(job->manager)->timers, &evaluation->silence);
    evaluation->running = NULL;
    evaluation->token[0] = '\0';
    evaluation->phase = EVALUATION_NONE;
}

void evaluation_ended(Job *job)
{
    JobEvaluation *evaluation = &job->evaluation;
    if (!evaluation->recorded)
        warn(job, evaluation->problem);
    if (evaluation->skipped > 1)
        job_event(job, "evaluation", NULL, "%u evaluations were due while that of round %llu ran",
                  evaluation->skipped, (unsigned long long)evaluation->round);
    forget_process(job);
    pin(job, 0);
    job_touch(job);
    checkpoint_finish(job);
    job_advance(job);
}

static void on_exit_of(void *data, bool clean, const char *how)
{
    Job *job = data;
    JobEvaluation *evaluation = &job->evaluation;
    evaluation->running = NULL;
    if (!*evaluation->problem)
        snprintf(evaluation->problem, sizeof evaluation->problem,
                 "its process ended with %.60s%s; the log has what it said", how,
                 clean ? " and has recorded nothing" : "");
    if (!evaluation->recording)
        evaluation_ended(job);
}

static void end_process(Job *job)
{
    const Launcher *launcher = &manager_spec(job->manager)->launcher;
    if (job->evaluation.running)
        launcher->stop(launcher->self, job->evaluation.running);
    job->evaluation.running = NULL;
}

static void on_silence(void *data)
{
    Job *job = data;
    JobEvaluation *evaluation = &job->evaluation;
    if (evaluation->recording) { /* it is the disk's turn */
        timer_arm(manager_spec(job->manager)->timers, &evaluation->silence, EVALUATION_SILENCE_US);
        return;
    }
    if (!*evaluation->problem)
        snprintf(evaluation->problem, sizeof evaluation->problem,
                 "its process sent nothing for %u s",
                 (unsigned)(EVALUATION_SILENCE_US / USEC_PER_SEC));
    end_process(job);
    evaluation_ended(job);
}

void evaluation_free(Job *job)
{
    end_process(job);
    timer_cancel(manager_spec(job->manager)->timers, &job->evaluation.silence);
}

/* What was not recorded is evaluated when the job is loaded again: its checkpoint stays pinned. */
void evaluation_stop(Job *job)
{
    JobEvaluation *evaluation = &job->evaluation;
    end_process(job);
    evaluation->due = evaluation->again = false;
    if (evaluation->phase == EVALUATION_RUNNING && !evaluation->recording) {
        forget_process(job);
        if (job_state_is_final(job->state))
            pin(job, 0);
    }
}

/* ---- its process ----------------------------------------------------------------------------- */

static void run(Job *job)
{
    JobEvaluation *evaluation = &job->evaluation;
    const JobManagerSpec *manager = manager_spec(job->manager);
    token_make(evaluation->token);
    evaluation->phase = EVALUATION_RUNNING;
    evaluation->recording = evaluation->recorded = false;
    evaluation->problem[0] = '\0';
    LaunchSpec spec = {.kind = LAUNCH_EVALUATOR,
                       .job = job->id,
                       .checkpoint = evaluation->checkpoint,
                       .data = job->spec.eval_data,
                       .token = evaluation->token};
    Error err = {0};
    uint64_t patience = EVALUATION_SILENCE_US;
    int r = manager->launcher.start(manager->launcher.self, &spec, on_exit_of, job,
                                    &evaluation->running, &err);
    if (r < 0) { /* it ends with the timer: whoever called is in the middle of something */
        patience = 0;
        snprintf(evaluation->problem, sizeof evaluation->problem,
                 "cannot start its process: %.100s", err.message);
    }
    evaluation->silence = (Timer){.fire = on_silence, .data = job};
    timer_arm(manager->timers, &evaluation->silence, patience);
}

static void on_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *record)
{
    Job *job = data;
    JobEvaluation *evaluation = &job->evaluation;
    evaluation->phase = EVALUATION_NONE;
    if (r < 0) {
        if (r != -ECANCELED)
            warn(job, err->message);
        return;
    }
    evaluation->checkpoint = record->id;
    evaluation->round = record->round;
    bool leaves = job->phase != PHASE_LIVE || job->stopping;
    pin(job, leaves && job_state_is_final(job->state) ? 0 : record->id);
    if (!leaves)
        run(job);
}

/* ---- what its process shows ------------------------------------------------------------------ */

int job_evaluation_admit(Job *job, uint64_t checkpoint, const char *token, Error *err)
{
    JobEvaluation *evaluation = &job->evaluation;
    if (evaluation->phase != EVALUATION_RUNNING || evaluation->recording || evaluation->recorded ||
        checkpoint != evaluation->checkpoint || !token_is(evaluation->token, token))
        return error_set(err, -EPERM,
                         "job %llu waits for no such evaluation; only the process that dpsd starts "
                         "for it records one",
                         (unsigned long long)job->id);
    timer_arm(manager_spec(job->manager)->timers, &evaluation->silence, EVALUATION_SILENCE_US);
    return 0;
}
