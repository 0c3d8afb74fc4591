/* dpsctl checkpoint JOB */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "checkpoint",
    .positional = "JOB",
    .summary = "Take a checkpoint now and wait until it is on disk",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__CheckpointInfo *checkpoint = NULL;
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    char size[UNITS_SIZE];
    int r = request_begin_job(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    r = request_call(&request, "Checkpoint", &message.base, REQUEST_LONG_MS, &checkpoint);
    if (r != CTL_GO_ON)
        return r;
    if (request.options.json)
        return request_printed(&request, json_print(json_checkpoint(checkpoint)));
    printf("checkpoint %" PRIu64 " of job %" PRIu64 ": round %" PRIu64 ", step %" PRIu64 ", %s\n",
           checkpoint->id, checkpoint->job, checkpoint->round, checkpoint->step,
           units_bytes(checkpoint->bytes, size));
    return request_printed(&request, 0);
}

const Verb verb_checkpoint = {&spec, run};
