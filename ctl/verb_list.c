/* dpsctl list */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/settings.h"
#include "ctl/render/status.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

DEFINE_CLEANUP(Table, table_free);

static const ArgSpec spec = {
    .verb = "list",
    .positional = "",
    .summary = "List the jobs",
};

static void add_row(Table *table, const Dps__V1__JobStatus *job, uint64_t now)
{
    double share = status_share(job);
    char text[UNITS_SIZE], policy[128];

    table_cellf(table, "%" PRIu64, job->id);
    table_cell(table, job->name);
    table_cell(table, job_state_name(job->state));
    table_colour(table, status_state_colour(job->state));
    if (share >= 0)
        table_cellf(table, "%d%%", (int)(share * 100));
    else
        table_cell(table, "");
    table_cellf(table, "%" PRIu64, job->round);
    table_cellf(table, "%" PRIu64, job->step);
    table_cell(table, job->step > 0 ? units_loss((double)job->loss, text) : "");
    if (status_is_evaluated(job))
        table_cellf(table, "%.4f", job->accuracy);
    else
        table_cell(table, "");
    table_cell(table, job->model);
    table_cell(table, settings_policy(job, policy, sizeof policy));
    table_cell(table, units_ago(job->created_unix_ms, now, text));
}

static int print_table(const Dps__V1__ListReply *reply)
{
    static const TableColumn columns[] = {
        {"job", true},    {"name", false}, {"state", false},   {"done", true},
        {"round", true},  {"step", true},  {"loss", true},     {"accuracy", true},
        {"model", false}, {"sync", false}, {"created", false},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    uint64_t now = units_now_unix_ms();
    Term term = term_of(stdout);

    if (!table)
        return -ENOMEM;
    if (reply->n_jobs == 0) {
        puts("no jobs");
        return 0;
    }
    for (size_t i = 0; i < reply->n_jobs; i++)
        add_row(table, reply->jobs[i], now);
    return table_print(table, stdout, &term, 0);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__ListReply *reply = NULL;
    Dps__V1__ListRequest message = DPS__V1__LIST_REQUEST__INIT;
    int r = request_begin(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    r = request_call(&request, "List", &message.base, REQUEST_MS, &reply);
    if (r != CTL_GO_ON)
        return r;
    return request_printed(&request, request.options.json ? json_print(json_jobs(reply))
                                                          : print_table(reply));
}

const Verb verb_list = {&spec, run};
