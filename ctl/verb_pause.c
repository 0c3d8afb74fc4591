/* dpsctl pause JOB */
#include "ctl/job_change.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "pause",
    .positional = "JOB",
    .summary = "Pause a job after the batches that are under way",
    .details = "Its replicas stay in memory and its trainers stay connected.\n",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    return job_change(&spec, "Pause", argc, argv, options);
}

const Verb verb_pause = {&spec, run};
