/* Evaluations: a user's, or those of processes that the daemon starts for a job, which record what
 * they find. With what rpc/control_evaluate.c does between them and the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_replica.h"
#include "job/evaluation.h"
#include "job/evaluator.h"

enum { EVALUATIONS = 8 };

struct Evaluating {
    bool used;
    uint64_t life, job, checkpoint;
    bool process; /* started by the daemon */
    bool dead;    /* its client has gone, and an answer is still to come */
    bool recording;
    char token[40];
    Evaluator *evaluator;
    unsigned batches; /* to run */
};

static Evaluating evaluations[EVALUATIONS];
static uint64_t lives;

static void on_evaluated(void *data, int r, const Error *err);

void evaluations_begin(void)
{
    memset(evaluations, 0, sizeof evaluations);
    lives = 0;
}

void evaluations_daemon_killed(void)
{
    memset(evaluations, 0, sizeof evaluations);
}

static Evaluating *place(void)
{
    for (unsigned i = 0; i < EVALUATIONS; i++) {
        if (evaluations[i].used)
            continue;
        evaluations[i] =
            (Evaluating){.used = true, .life = ++lives, .batches = (unsigned)sim_between(1, 4)};
        return &evaluations[i];
    }
    return NULL;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void end(Evaluating *of)
{
    Evaluator *evaluator = of->evaluator;
    *of = (Evaluating){0};
    evaluator_free(evaluator);
}

static void ended(Evaluating *of, bool clean)
{
    if (of->process && !of->dead)
        launcher_evaluated(of, clean);
    end(of);
}

/* The client goes: no callback comes any more, but for that of a record under way. */
static void abandon(Evaluating *of)
{
    if (of->recording) {
        of->dead = true;
        return;
    }
    questions_forget_of(of);
    end(of);
}

void evaluation_kill(Evaluating *of)
{
    if (of->used && !of->dead)
        abandon(of);
}

void evaluation_abandon_one(void)
{
    for (unsigned i = 0; i < EVALUATIONS; i++) {
        Evaluating *of = &evaluations[i];
        if (!of->used || of->dead)
            continue;
        if (of->process)
            launcher_evaluated(of, false);
        abandon(of);
        return;
    }
}

void evaluations_daemon_gone(void)
{
    for (unsigned i = 0; i < EVALUATIONS; i++)
        if (evaluations[i].used && !evaluations[i].dead)
            abandon(&evaluations[i]);
}

/* ---- its course ------------------------------------------------------------------------------ */

static void on_recorded(void *data, int r, const Error *err)
{
    Question *question = data;
    Evaluating *of = question->owner;
    question_answered(question);
    trace("  recorded: %d%s%s", r, r < 0 ? ", " : "", r < 0 ? err->message : "");
    of->recording = false;
    ended(of, r == 0);
}

static void finish(Evaluating *of, Job *job)
{
    if (!of->process) {
        ended(of, true);
        return;
    }
    of->recording = true;
    job_evaluation_record(job, of->checkpoint, of->token, evaluator_total(of->evaluator),
                          on_recorded, question_new("record an evaluation", of));
}

static bool may_go_on(const Evaluating *of, Job *job)
{
    Error err;
    if (!of->process)
        return true;
    int r = job_evaluation_admit(job, of->checkpoint, of->token, &err);
    if (r < 0)
        trace("  evaluation refused: %s", err.message);
    return r == 0;
}

static void run_batch(Evaluating *of)
{
    SimBatch *batch = calloc(1, sizeof *batch);
    batch->magic = SIM_BATCH_MAGIC;
    Batch sent = {.samples = 3, .x = batch, .y = batch};
    of->batches--;
    evaluator_run(of->evaluator, &sent, batch, free, on_evaluated,
                  question_new("evaluate a batch", of));
}

static void on_next_batch(void *data, uint64_t life)
{
    Evaluating *of = data;
    if (!of->used || of->life != life || of->dead)
        return;
    Job *job = world.manager ? manager_find(world.manager, of->job) : NULL;
    if (!job || !may_go_on(of, job)) {
        ended(of, false);
        return;
    }
    if (!of->evaluator) {
        if (evaluator_new(job, of->checkpoint, on_evaluated, question_new("evaluate", of),
                          &of->evaluator) < 0)
            sim_fail("evaluator_new fails");
    } else if (of->batches == 0) {
        finish(of, job);
    } else {
        run_batch(of);
    }
}

static void next_batch(Evaluating *of)
{
    bool hangs = of->process && !world_is_calm() && sim_chance(20);
    event_of_daemon(hangs ? 100 * SIM_SECOND : sim_between(1, 20 * world.step_us),
                    "evaluator sends", on_next_batch, of, of->life);
}

static void on_evaluated(void *data, int r, const Error *err)
{
    Question *question = data;
    Evaluating *of = question->owner;
    trace("  %s: %d%s%s", question->what, r, r < 0 ? ", " : "", r < 0 ? err->message : "");
    question_answered(question);
    if (r < 0)
        ended(of, false);
    else
        next_batch(of);
}

void evaluation_by_user(Job *job, uint64_t checkpoint)
{
    Evaluating *of = place();
    if (!of)
        return;
    of->job = job_id(job);
    of->checkpoint = checkpoint;
    next_batch(of);
}

Evaluating *evaluation_by_process(uint64_t job, uint64_t checkpoint, const char *token)
{
    Evaluating *of = place();
    if (!of)
        return NULL;
    of->process = true;
    of->job = job;
    of->checkpoint = checkpoint;
    snprintf(of->token, sizeof of->token, "%s", token);
    next_batch(of);
    return of;
}
