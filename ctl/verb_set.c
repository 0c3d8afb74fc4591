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
        "They change for all ranks alike, all or none, and are recorded with who asked and when.\n"
        "dpsd checks them. Settings:\n"
        "  sync.policy          average, average-async, barrier, async, elastic or diloco\n"
        "  sync.interval        steps in a round\n"
        "  sync.weights         of replicas in a mean: uniform, or by samples\n"
        "  sync.state           optimizer state at a meeting: keep, average or reset\n"
        "  sync.wait            whom a meeting waits for: all, or quorum:Q\n"
        "  sync.timeout         seconds for the rest, once the quorum is there\n"
        "  sync.max_staleness   versions that a gradient may be behind (async)\n"
        "  sync.on_stale        what becomes of an older one: reject or apply (async)\n"
        "  sync.alpha           pull between replica and centre (elastic)\n"
        "  sync.outer_lr, sync.outer_momentum\n"
        "                       of the step on a round's mean change (diloco)\n"
        "  optimizer.lr         learning rate\n"
        "  optimizer.schedule   constant, step,every=N,gamma=G or cosine,steps=N,min=M, each\n"
        "                       with warmup=W\n"
        "  optimizer.clip       largest norm of a gradient; 0: no limit\n"
        "  guard.norm           times the running median, above which a gradient is left out\n"
        "  guard.strikes        left out so often in a row, the job pauses\n"
        "  trainers             how many feed the job, up to --max-trainers of submit\n"
        "  checkpoint.rounds, checkpoint.keep\n"
        "                       rounds between checkpoints, and how many stay\n"
        "  eval.every           rounds between evaluations; 0: none\n",
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
    r = request_call_settings(&request, "Update", &message.base, &settings, &reply);
    return r == CTL_GO_ON ? print_reply(&request, reply) : r;
}

const Verb verb_set = {&spec, run};
