/* dpsctl resume JOB */
#include "ctl/job_change.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "resume",
    .positional = "JOB",
    .summary = "Let a paused job go on",
    .details = "The job goes on at the step where it was paused.\n",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    return job_change(&spec, "Resume", argc, argv, options);
}

const Verb verb_resume = {&spec, run};
