/* The verbs of dpsctl: one entry in the table of verbs.c, one file verb_NAME.c. */
#pragma once

#include <stddef.h>

#include "ctl/args.h"
#include "ctl/options.h"

typedef struct Verb {
    const ArgSpec *spec; /* its name, its options, what --help says */
    /* argv[0] is the verb. Returns the exit status; errors are reported by then. */
    int (*run)(int argc, char **argv, const CtlOptions *options);
} Verb;

extern const Verb verb_submit, verb_list, verb_status, verb_watch, verb_set, verb_pause,
    verb_resume, verb_cancel, verb_checkpoint, verb_checkpoints, verb_restore, verb_metrics,
    verb_events, verb_eval, verb_evaluations, verb_export, verb_trainer, verb_server;

/* In the order of the help. */
extern const Verb *const verbs[];
extern const size_t verb_count;

/* NULL: no such verb. */
const Verb *verb_find(const char *name);
/* The verb that `name` was likely meant to be, or NULL. */
const char *verb_nearest(const char *name);
