#include <string.h>

#include "ctl/text.h"
#include "ctl/verbs.h"

const Verb *const verbs[] = {
    &verb_submit, &verb_list,   &verb_status,      &verb_watch,       &verb_set,     &verb_pause,
    &verb_resume, &verb_cancel, &verb_checkpoint,  &verb_checkpoints, &verb_restore, &verb_metrics,
    &verb_events, &verb_eval,   &verb_evaluations, &verb_export,      &verb_trainer, &verb_server,
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };
const size_t verb_count = VERB_COUNT;

const Verb *verb_find(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i]->spec->verb, name) == 0)
            return verbs[i];
    return NULL;
}

const char *verb_nearest(const char *name)
{
    const char *names[VERB_COUNT];

    for (size_t i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i]->spec->verb;
    return ctl_nearest(name, names, VERB_COUNT);
}
