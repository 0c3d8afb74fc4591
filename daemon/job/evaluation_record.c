/* What evaluations have found: the latest, the best, and whether it ends the job. */
#include "job/job_internal.h"

#include <math.h>
#include <stdio.h>

typedef struct Recording {
    Job *job;
    EvaluationRecord record;
    JobDone done;
    void *data;
} Recording;

static double value_of(const Job *job, const EvaluationRecord *record)
{
    return job->evaluation.by_loss ? record->loss : record->accuracy;
}

/* Of equal ones the first stays. */
static bool is_better(const Job *job, const EvaluationRecord *record)
{
    const JobEvaluation *evaluation = &job->evaluation;
    double value = value_of(job, record);
    if (!isfinite(value) || evaluation->best_checkpoint == 0)
        return isfinite(value);
    return evaluation->by_loss ? value < evaluation->best_value : value > evaluation->best_value;
}

void evaluation_take(Job *job, const EvaluationRecord *record)
{
    JobEvaluation *evaluation = &job->evaluation;
    evaluation->accuracy = record->accuracy;
    evaluation->accuracy_round = record->round;
    if (record->kept && is_better(job, record)) {
        evaluation->best_value = value_of(job, record);
        evaluation->best_checkpoint = record->checkpoint;
    }
    if (!job->stop_wanted &&
        stop_when_holds(&evaluation->stop_when, record->accuracy, record->loss)) {
        job->stop_wanted = true;
        stop_when_explain(&evaluation->stop_when, record->accuracy, record->loss, record->round,
                          evaluation->stop_reason, sizeof evaluation->stop_reason);
    }
}

static void tell(Job *job, const EvaluationRecord *record)
{
    log_job(LOG_INFO, job->id, -1,
            "round %llu evaluated: accuracy %.4f, loss %.4g (checkpoint %llu, %llu samples)",
            (unsigned long long)record->round, record->accuracy, record->loss,
            (unsigned long long)record->checkpoint, (unsigned long long)record->samples);
    job_event(job, "evaluation", NULL,
              "round %llu: accuracy %.4f, loss %.4g (checkpoint %llu, %llu samples)%s",
              (unsigned long long)record->round, record->accuracy, record->loss,
              (unsigned long long)record->checkpoint, (unsigned long long)record->samples,
              record->best ? ", the best so far" : "");
    if (*job->evaluation.stop_reason)
        log_job(LOG_NOTICE, job->id, -1, "ends with its round: %s", job->evaluation.stop_reason);
}

static void on_recorded(void *data, int r, const Error *err)
{
    Recording *recording = data;
    Job *job = recording->job;
    JobEvaluation *evaluation = &job->evaluation;
    evaluation->recording = false;
    evaluation->recorded = r == 0;
    job->tasks--;
    if (r == 0) {
        evaluation_take(job, &recording->record);
        tell(job, &recording->record);
        job_touch(job);
        job_save(job, NULL, NULL);
    } else {
        snprintf(evaluation->problem, sizeof evaluation->problem, "%.150s", err->message);
    }
    recording->done(recording->data, r, err);
    free(recording);
    if (!evaluation->running)
        evaluation_ended(job); /* its process did not wait for the answer */
    else
        job_advance(job);
}

static void fill(const Job *job, uint64_t checkpoint, const Evaluation *total,
                 EvaluationRecord *record)
{
    double samples = total->samples > 0 ? (double)total->samples : NAN;
    *record = (EvaluationRecord){.job = job->id,
                                 .round = job->evaluation.round,
                                 .checkpoint = checkpoint,
                                 .samples = (uint64_t)total->samples,
                                 .unix_ms = clock_unix_ms(),
                                 .accuracy = (double)total->correct / samples,
                                 .loss = total->loss_sum / samples,
                                 .kept = true};
    record->best = is_better(job, record);
}

void job_evaluation_record(Job *job, uint64_t checkpoint, const char *token,
                           const Evaluation *total, JobDone done, void *data)
{
    Error err = {0};
    int r = job_evaluation_admit(job, checkpoint, token, &err);
    Recording *recording = r < 0 ? NULL : calloc(1, sizeof *recording);
    if (r == 0 && !recording)
        r = error_set(&err, -ENOMEM, "out of memory");
    if (r == 0) {
        *recording = (Recording){.job = job, .done = done, .data = data};
        fill(job, checkpoint, total, &recording->record);
        r = store_evaluation_add(manager_store(job->manager), &recording->record, on_recorded,
                                 recording);
        if (r < 0)
            error_set(&err, r, "out of memory");
    }
    if (r < 0) {
        free(recording);
        done(data, r, &err);
        return;
    }
    job->evaluation.recording = true;
    job->tasks++;
}
