/* dpsctl restore JOB [--checkpoint ID] */
#include "ctl/job_change.h"
#include "ctl/verbs.h"

typedef struct Restore {
    uint64_t checkpoint;
} Restore;

static const ArgOption options_of[] = {
    {"checkpoint", 'c', ARG_U64, offsetof(Restore, checkpoint), "ID",
     "which one (default: the latest valid one)"},
};

static const ArgSpec spec = {
    .verb = "restore",
    .positional = "JOB",
    .summary = "Put a job back to a checkpoint and let it go on from there",
    .details = "Metrics past the checkpoint are taken back. See dpsctl checkpoints for the IDs.\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__JobStatus *job = NULL;
    Dps__V1__RestoreRequest message = DPS__V1__RESTORE_REQUEST__INIT;
    Restore values = {0};
    int r = request_begin_job(&spec, argc, argv, &values, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    message.checkpoint = values.checkpoint;
    r = request_call(&request, "Restore", &message.base, REQUEST_LONG_MS, &job);
    return r == CTL_GO_ON ? job_change_print(&request, job) : r;
}

const Verb verb_restore = {&spec, run};
