#include <inttypes.h>
#include <stdio.h>

#include "ctl/job_change.h"
#include "ctl/json.h"

int job_change_print(const Request *request, const Dps__V1__JobStatus *job)
{
    char name[128];

    if (request->options.json)
        return request_printed(request, json_print(json_job(job)));
    printf("job %" PRIu64 " (%s) is %s\n", job->id, ctl_sanitise_to(job->name, name, sizeof name),
           job_state_name(job->state));
    return request_printed(request, 0);
}

int job_change(const ArgSpec *spec, const char *method, int argc, char **argv,
               const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__JobStatus *job = NULL;
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    int r = request_begin_job(spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    r = request_call(&request, method, &message.base, REQUEST_LONG_MS, &job);
    return r == CTL_GO_ON ? job_change_print(&request, job) : r;
}
