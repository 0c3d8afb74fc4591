/* dpsctl evaluations JOB [--csv] */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

DEFINE_CLEANUP(Table, table_free);

typedef struct Evaluations {
    bool csv;
    uint64_t after;
} Evaluations;

static const ArgOption options_of[] = {
    {"csv", 0, ARG_FLAG, offsetof(Evaluations, csv), NULL, "comma-separated, with a header line"},
    {"after", 0, ARG_U64, offsetof(Evaluations, after), "ROUND", "only the rounds after this one"},
};

static const ArgSpec spec = {
    .verb = "evaluations",
    .positional = "JOB",
    .summary = "Show what a job's model was worth as it trained",
    .details = "The rounds that --eval-every evaluated on --eval-data (dpsctl submit).\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
    .min_positional = 1,
    .max_positional = 1,
};

/* One way to print; rows go in as they come. */
typedef struct Output {
    Table *table; /* for people */
    cJSON *list;  /* for --json */
} Output;

static void csv_row(const Dps__V1__EvaluationsRow *row)
{
    printf("%" PRIu64 ",%" PRIu64 ",%.9g,%.9g,%" PRIu64 ",%d\n", row->round, row->checkpoint,
           row->accuracy, row->loss, row->samples, row->best);
}

static void table_row(Table *table, const Dps__V1__EvaluationsRow *row)
{
    char text[UNITS_SIZE];

    table_cellf(table, "%" PRIu64, row->round);
    table_cellf(table, "%" PRIu64, row->checkpoint);
    table_cellf(table, "%.4f", row->accuracy);
    table_cell(table, units_loss(row->loss, text));
    table_cellf(table, "%" PRIu64, row->samples);
    table_cell(table, row->best ? "best" : "");
}

static bool on_page(const ProtobufCMessage *message, void *user)
{
    const Dps__V1__EvaluationsPage *page = (const Dps__V1__EvaluationsPage *)message;
    Output *output = user;

    for (size_t i = 0; i < page->n_rows; i++) {
        if (output->list)
            cJSON_AddItemToArray(output->list, json_evaluations_row(page->rows[i]));
        else if (output->table)
            table_row(output->table, page->rows[i]);
        else
            csv_row(page->rows[i]);
    }
    return true;
}

static int fetch(Request *request, const Evaluations *values, Output *output)
{
    Dps__V1__EvaluationsRequest message = DPS__V1__EVALUATIONS_REQUEST__INIT;

    message.job = request->job;
    message.after_round = values->after;
    return request_pages(request, "Evaluations", &message.base, on_page, output);
}

static int print_json(Request *request, const Evaluations *values)
{
    Output output = {.list = cJSON_CreateArray()};
    int r = output.list ? fetch(request, values, &output) : CTL_GO_ON;

    if (r == CTL_GO_ON)
        return request_printed(request, json_print(output.list));
    cJSON_Delete(output.list);
    return r;
}

static int print_csv(Request *request, const Evaluations *values)
{
    Output output = {.table = NULL};
    int r;

    puts("round,checkpoint,accuracy,loss,samples,best");
    r = fetch(request, values, &output);
    return r == CTL_GO_ON ? request_printed(request, 0) : r;
}

static int print_table(Request *request, const Evaluations *values)
{
    static const TableColumn columns[] = {
        {"round", true}, {"checkpoint", true}, {"accuracy", true},
        {"loss", true},  {"samples", true},    {"best", false},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    Output output = {.table = table};
    Term term = term_of(stdout);
    int r;

    if (!table)
        return request_printed(request, -ENOMEM);
    r = fetch(request, values, &output);
    if (r != CTL_GO_ON)
        return r;
    if (table_rows(table) > 0)
        return request_printed(request, table_print(table, stdout, &term, 0));
    puts("no evaluations yet");
    return request_printed(request, 0);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    Evaluations values = {0};
    int r = request_begin_job(&spec, argc, argv, &values, options, &request);

    if (r != CTL_GO_ON)
        return r;
    if (values.csv && request.options.json) {
        ctl_error(&request.options, "USAGE", "--csv and --json exclude each other");
        return CTL_EXIT_USAGE;
    }
    if (request.options.json)
        return print_json(&request, &values);
    return values.csv ? print_csv(&request, &values) : print_table(&request, &values);
}

const Verb verb_evaluations = {&spec, run};
