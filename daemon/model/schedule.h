/* Learning-rate schedules: how the rate that the user sets changes with the steps.
 *
 *   constant
 *   step,every=N,gamma=G      torch's StepLR: lr · G^⌊t / N⌋
 *   cosine,steps=N,min=M      torch's CosineAnnealingLR: M + (lr − M) · (1 + cos(π t / N)) / 2 up
 * to t = N, and M from there on (torch's would rise again)
 *
 * each with ",warmup=W": lr · step / W for the first W steps; t counts from the end of the warm-up.
 * Plain values, pure functions, any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum ScheduleKind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE } ScheduleKind;

enum { SCHEDULE_TEXT_MAX = 128 };

typedef struct Schedule {
    ScheduleKind kind;
    uint64_t warmup;
    uint64_t every; /* step: steps between two cuts */
    double gamma;   /* step: what a cut multiplies the rate with */
    uint64_t steps; /* cosine: length */
    double min;     /* cosine: where it ends */
} Schedule;

/* gamma and min have torch's defaults, 0.1 and 0; every and steps must be given. "" is constant.
 * -EINVAL with a sentence that says what the schedule takes. */
int schedule_parse(const char *text, Schedule *ret, Error *err);
/* The text that parses to the same schedule. */
const char *schedule_format(const Schedule *schedule, char *text, size_t size);
/* The rate of step 0, 1, 2 … for a base rate. Computed in double. */
float schedule_lr(const Schedule *schedule, float lr, uint64_t step);
