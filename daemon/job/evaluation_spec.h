/* What a job says of its evaluations while it trains: when one ends the job, and whether it has what
 * they need. Plain values, any thread. */
#pragma once

#include "job/job_spec.h"

typedef enum StopMeasure { STOP_NEVER, STOP_ACCURACY, STOP_LOSS } StopMeasure;

/* "accuracy>=0.98", "accuracy>0.98", "loss<=0.1" or "loss<0.1"; "" is never. */
typedef struct StopWhen {
    StopMeasure measure;
    bool or_equal;
    double limit;
} StopWhen;

/* -EINVAL with a sentence that says what it takes */
int stop_when_parse(const char *text, StopWhen *ret, Error *err);
/* What is not a number never does. */
bool stop_when_holds(const StopWhen *when, double accuracy, double loss);
/* "accuracy 0.981 at round 40: >= 0.98" */
void stop_when_explain(const StopWhen *when, double accuracy, double loss, uint64_t round,
                       char *text, size_t size);

/* A spec at submission: its stop_when, and that there is an evaluation to decide it. -EINVAL */
int evaluation_check_spec(const JobSpec *spec, const JobSettings *settings, Error *err);
/* Settings of a job whose spec is this: evaluations need data. -EINVAL */
int evaluation_check_settings(const JobSpec *spec, const JobSettings *settings, Error *err);
/* Whether the lower loss is the better checkpoint, not the higher accuracy. */
bool evaluation_is_by_loss(const JobSpec *spec);
