/* dpsctl watch JOB */
#include "ctl/verbs.h"
#include "ctl/watch.h"

static const ArgSpec spec = {
    .verb = "watch",
    .positional = "JOB",
    .summary = "Show a job's progress until it ends",
    .details =
        "Exit status: 0 when the job COMPLETED, 1 when it FAILED or was CANCELLED. Ctrl-C stops\n"
        "watching; the job goes on. With --json one object a line.\n",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    int r = request_begin_job(&spec, argc, argv, NULL, options, &request);

    return r == CTL_GO_ON ? watch_job(&request) : r;
}

const Verb verb_watch = {&spec, run};
