/* How processes are started that work for a job: managed trainers, and evaluators. By whoever main()
 * wires in (service/). Loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct LaunchedTrainer LaunchedTrainer; /* the launcher's own */

typedef enum LaunchKind { LAUNCH_TRAINER, LAUNCH_EVALUATOR } LaunchKind;

typedef struct LaunchSpec {
    LaunchKind kind;
    uint64_t job;
    uint32_t rank;       /* a trainer's */
    uint32_t accumulate; /* batches a step of a trainer's */
    uint64_t checkpoint; /* an evaluator's */
    const char *data;    /* directory or "synthetic" */
    const char *token;   /* what it shows at Join, or to record the evaluation */
} LaunchSpec;

typedef struct Launcher {
    /* Starts one. on_exit comes once, on the loop, unless stop was called before; `how` is "exit
     * status 1" or "killed by signal 9". After it, or after stop, the LaunchedTrainer is gone. */
    int (*start)(void *self, const LaunchSpec *spec,
                 void (*on_exit)(void *data, bool clean, const char *how), void *data,
                 LaunchedTrainer **ret, Error *err);
    /* Ends one, without a word from it. */
    void (*stop)(void *self, LaunchedTrainer *trainer);
    void *self;
} Launcher;
