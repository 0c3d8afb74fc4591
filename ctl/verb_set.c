/* dpsctl set JOB KEY=VALUE… */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/json.h"
#include "ctl/request.h"
#include "ctl/settings.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "set",
    .positional = "JOB KEY=VALUE…",
    .summary = "Change settings of a job from its next round on",
    .details =
        "Settings: sync.interval, optimizer.lr, checkpoint.rounds, checkpoint.keep. They change\n"
        "for all ranks alike, all or none, and are recorded with who asked and when.\n",
    .min_positional = 2,
    .max_positional = -1,
};

static int print_reply(const Request *request, const Dps__V1__UpdateReply *reply)
{
    if (request->options.json) {
        cJSON *object = cJSON_CreateObject();
        json_add_u64(object, "round", reply->round);
        return request_printed(request, json_print(object));
    }
    printf("holds from round %" PRIu64 " on\n", reply->round);
    return request_printed(request, 0);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__UpdateReply *reply = NULL;
    Dps__V1__UpdateRequest message = DPS__V1__UPDATE_REQUEST__INIT;
    Dps__V1__UpdateRequest__SettingsEntry entries[SETTINGS_MAX], *pointers[SETTINGS_MAX];
    Settings settings;
    char problem[256];
    int r = request_parse(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    if (settings_parse((const char *const *)request.args.positional + 1,
                       (size_t)request.args.count - 1, &settings, problem, sizeof problem) < 0) {
        ctl_error(&request.options, "USAGE", "%s", problem);
        return CTL_EXIT_USAGE;
    }
    r = request_connect_job(&request);
    if (r != CTL_GO_ON)
        return r;
    for (size_t i = 0; i < settings.count; i++) {
        dps__v1__update_request__settings_entry__init(&entries[i]);
        entries[i].key = settings.keys[i];
        entries[i].value = settings.values[i];
        pointers[i] = &entries[i];
    }
    message.job = request.job;
    message.n_settings = settings.count;
    message.settings = pointers;
    r = request_call(&request, "Update", &message.base, REQUEST_MS, &reply);
    return r == CTL_GO_ON ? print_reply(&request, reply) : r;
}

const Verb verb_set = {&spec, run};
