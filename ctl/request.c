#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/known_settings.h"
#include "ctl/request.h"

int request_parse(const ArgSpec *spec, int argc, char **argv, void *values,
                  const CtlOptions *options, Request *ret)
{
    *ret = (Request){.options = *options};
    return args_parse(spec, argc, argv, values, &ret->options, &ret->args);
}

int request_begin(const ArgSpec *spec, int argc, char **argv, void *values,
                  const CtlOptions *options, Request *ret)
{
    int r = request_parse(spec, argc, argv, values, options, ret);

    if (r != CTL_GO_ON)
        return r;
    r = ctl_connect(&ret->options, &ret->client);
    return r == CTL_EXIT_DONE ? CTL_GO_ON : r;
}

static int find_by_name(Request *request, const char *name, uint64_t *ret)
{
    Dps__V1__ListRequest message = DPS__V1__LIST_REQUEST__INIT;
    _cleanup_(message_freep) Dps__V1__ListReply *reply = NULL;
    const Dps__V1__JobStatus *found = NULL;
    int r = request_call(request, "List", &message.base, REQUEST_MS, &reply);

    if (r != CTL_GO_ON)
        return r;
    for (size_t i = 0; i < reply->n_jobs; i++) {
        const Dps__V1__JobStatus *job = reply->jobs[i];
        if (strcmp(job->name, name) != 0)
            continue;
        if (found) {
            ctl_error(&request->options, "USAGE",
                      "several jobs are named '%s' (%" PRIu64 ", %" PRIu64
                      "%s): give the number of one",
                      name, found->id, job->id, i + 1 < reply->n_jobs ? ", …" : "");
            return CTL_EXIT_USAGE;
        }
        found = job;
    }
    if (!found) {
        ctl_error(&request->options, "NOT_FOUND", "no job is named '%s'; see dpsctl list", name);
        return CTL_EXIT_NO_JOB;
    }
    *ret = found->id;
    return CTL_GO_ON;
}

int request_connect_job(Request *request)
{
    int r = ctl_connect(&request->options, &request->client);

    if (r != CTL_EXIT_DONE)
        return r;
    if (args_number(request->args.positional[0], &request->job) == 0)
        return CTL_GO_ON;
    return find_by_name(request, request->args.positional[0], &request->job);
}

int request_begin_job(const ArgSpec *spec, int argc, char **argv, void *values,
                      const CtlOptions *options, Request *ret)
{
    int r = request_parse(spec, argc, argv, values, options, ret);

    return r == CTL_GO_ON ? request_connect_job(ret) : r;
}

void request_end(Request *request)
{
    request->client = client_free(request->client);
}

int request_call(Request *request, const char *method, const ProtobufCMessage *message,
                 int timeout_ms, void *ret_reply)
{
    ClientStatus status;
    int r = client_call(request->client, &dps__v1__control__descriptor, method, message, timeout_ms,
                        ret_reply, &status);

    return r == 0 ? CTL_GO_ON : ctl_report_status(&request->options, &status);
}

int request_call_settings(Request *request, const char *method, const ProtobufCMessage *message,
                          const Settings *settings, void *ret_reply)
{
    const char *key, *meant;
    ClientStatus status;

    if (client_call(request->client, &dps__v1__control__descriptor, method, message, REQUEST_MS,
                    ret_reply, &status) == 0)
        return CTL_GO_ON;
    key = known_settings_misspelt(settings, &meant);
    if (status.lost || status.code != GRPC_INVALID_ARGUMENT || !key || !strstr(status.message, key))
        return ctl_report_status(&request->options, &status);
    ctl_error(&request->options, grpc_status_name(status.code), "%s; did you mean %s?",
              status.message, meant);
    return CTL_EXIT_FAILED;
}

int request_pages(Request *request, const char *method, const ProtobufCMessage *message,
                  ClientOnReply on_page, void *user)
{
    ClientStatus status;
    int r = client_call_stream(request->client, &dps__v1__control__descriptor, method, message, -1,
                               on_page, user, &status);

    return r == 0 || r == -ECANCELED ? CTL_GO_ON : ctl_report_status(&request->options, &status);
}

int request_printed(const Request *request, int r)
{
    if (r == 0 && fflush(stdout) == 0 && !ferror(stdout))
        return CTL_EXIT_DONE;
    ctl_error(&request->options, "OUTPUT", "cannot print: %s",
              r == -ENOMEM ? strerror(ENOMEM) : strerror(errno ? errno : EIO));
    return CTL_EXIT_FAILED;
}
