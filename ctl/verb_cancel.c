/* dpsctl cancel JOB */
#include "ctl/job_change.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "cancel",
    .positional = "JOB",
    .summary = "End a job for good",
    .details = "Its checkpoints and metrics are kept. A cancelled job can be put back by dpsctl "
               "restore.\n",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    return job_change(&spec, "Cancel", argc, argv, options);
}

const Verb verb_cancel = {&spec, run};
