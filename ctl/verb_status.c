/* dpsctl status JOB */
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/status.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "status",
    .positional = "JOB",
    .summary = "Show a job and its trainers",
    .min_positional = 1,
    .max_positional = 1,
};

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__JobStatus *job = NULL;
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    int r = request_begin_job(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    r = request_call(&request, "Get", &message.base, REQUEST_MS, &job);
    if (r != CTL_GO_ON)
        return r;
    if (request.options.json)
        return request_printed(&request, json_print(json_job(job)));
    Term term = term_of(stdout);
    return request_printed(&request, status_print(stdout, &term, job, units_now_unix_ms()));
}

const Verb verb_status = {&spec, run};
