/* What a trainer has done, and telling it: a short line that is written over on a terminal, a line
 * each few seconds in a pipe, nothing when managed. It prints when results come and has no timer,
 * so that a waiting trainer sleeps. Belongs to the main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum ProgressStyle {
    PROGRESS_NONE,
    PROGRESS_BAR,   /* rewritten in place */
    PROGRESS_LINES, /* now and then */
} ProgressStyle;

typedef struct Progress {
    ProgressStyle style;
    uint64_t job, epoch, round;
    uint32_t rank;
    uint64_t step;           /* batches of this rank done */
    uint64_t steps, samples; /* that this process has fed */
    float loss;
    int64_t shown_ms; /* when something was printed last; 0: never */
    uint64_t shown_samples;
    bool open; /* a bar stands on the line */
} Progress;

/* The style that standard output calls for. */
ProgressStyle progress_style(bool managed, bool json);

/* A batch was answered. */
void progress_result(Progress *progress, float loss, uint64_t samples);
/* Ends the line that is rewritten, before something else is printed. */
void progress_break(Progress *progress);
/* The last word: "job 3 rank 1: completed after 186 steps …", or an object with json. */
void progress_done(Progress *progress, const char *reason, bool json);

int64_t progress_now_ms(void); /* monotonic */
