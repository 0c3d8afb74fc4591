/* dpsctl events JOB */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

DEFINE_CLEANUP(Table, table_free);

static const ArgSpec spec = {
    .verb = "events",
    .positional = "JOB",
    .summary = "Show what happened to a job, when, and who asked for it",
    .min_positional = 1,
    .max_positional = 1,
};

static bool add_to_table(const ProtobufCMessage *message, void *user)
{
    const Dps__V1__EventPage *page = (const Dps__V1__EventPage *)message;
    Table *table = user;
    char text[UNITS_SIZE];

    for (size_t i = 0; i < page->n_events; i++) {
        const Dps__V1__Event *event = page->events[i];
        table_cell(table, units_clock(event->unix_ms, text));
        table_cellf(table, "%" PRIu64, event->round);
        table_cell(table, event->kind);
        table_cell(table, event->who);
        table_cell(table, event->text);
    }
    return true;
}

static bool add_to_list(const ProtobufCMessage *message, void *user)
{
    const Dps__V1__EventPage *page = (const Dps__V1__EventPage *)message;

    for (size_t i = 0; i < page->n_events; i++)
        cJSON_AddItemToArray(user, json_event(page->events[i]));
    return true;
}

static int print_json(Request *request, const Dps__V1__JobRequest *message)
{
    cJSON *list = cJSON_CreateArray();
    int r = list ? request_pages(request, "Events", &message->base, add_to_list, list) : CTL_GO_ON;

    if (r == CTL_GO_ON)
        return request_printed(request, json_print(list));
    cJSON_Delete(list);
    return r;
}

static int print_table(Request *request, const Dps__V1__JobRequest *message)
{
    static const TableColumn columns[] = {
        {"time", false}, {"round", true}, {"kind", false}, {"who", false}, {"what", false},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    Term term = term_of(stdout);
    int r;

    if (!table)
        return request_printed(request, -ENOMEM);
    r = request_pages(request, "Events", &message->base, add_to_table, table);
    /* What happened matters more than that a line is short. */
    term.width = TERM_NO_LIMIT;
    return r == CTL_GO_ON ? request_printed(request, table_print(table, stdout, &term, 0)) : r;
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    int r = request_begin_job(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    return request.options.json ? print_json(&request, &message) : print_table(&request, &message);
}

const Verb verb_events = {&spec, run};
