/* dpsctl checkpoints JOB */
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
    .verb = "checkpoints",
    .positional = "JOB",
    .summary = "List a job's checkpoints",
    .min_positional = 1,
    .max_positional = 1,
};

static int print_table(const Dps__V1__CheckpointList *list)
{
    static const TableColumn columns[] = {
        {"checkpoint", true}, {"round", true},  {"step", true},  {"size", true},
        {"created", false},   {"valid", false}, {"best", false}, {"problem", false},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    uint64_t now = units_now_unix_ms();
    Term term = term_of(stdout);

    if (!table)
        return -ENOMEM;
    if (list->n_checkpoints == 0) {
        puts("no checkpoints yet");
        return 0;
    }
    for (size_t i = 0; i < list->n_checkpoints; i++) {
        const Dps__V1__CheckpointInfo *one = list->checkpoints[i];
        char text[UNITS_SIZE];
        table_cellf(table, "%" PRIu64, one->id);
        table_cellf(table, "%" PRIu64, one->round);
        table_cellf(table, "%" PRIu64, one->step);
        table_cell(table, units_bytes(one->bytes, text));
        table_cell(table, units_ago(one->created_unix_ms, now, text));
        table_cell(table, one->valid ? "yes" : "no");
        table_colour(table, one->valid ? TERM_PLAIN : TERM_RED);
        table_cell(table, one->best ? "best" : "");
        table_cell(table, one->problem);
    }
    return table_print(table, stdout, &term, 0);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__CheckpointList *list = NULL;
    Dps__V1__JobRequest message = DPS__V1__JOB_REQUEST__INIT;
    int r = request_begin_job(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    message.job = request.job;
    r = request_call(&request, "ListCheckpoints", &message.base, REQUEST_MS, &list);
    if (r != CTL_GO_ON)
        return r;
    return request_printed(&request, request.options.json ? json_print(json_checkpoints(list))
                                                          : print_table(list));
}

const Verb verb_checkpoints = {&spec, run};
