/* Metrics and events: pages from the store, the next one when the client has taken the last. */
#include "rpc/control_internal.h"

#include <stdlib.h>

#include "dps.pb-c.h"

enum { METRICS_PAGE = 2000, EVENTS_PAGE = 500 }; /* rows: a page stays well under 1 MiB */

typedef struct History {
    Pending pending; /* first; id: the job */
    int (*load)(struct History *history);
    uint64_t after;
    bool loading, last;
} History;

static void fail(History *history, int r, const Error *err)
{
    call_fail_error(history->pending.call, r, err);
    free(history);
}

static void load_next(History *history)
{
    history->loading = true;
    int r = history->load(history);
    if (r < 0) {
        Error err;
        error_set(&err, r, "dpsd is out of memory");
        fail(history, r, &err);
    }
}

/* After a page was sent: the next one, now or when there is room, or the end. */
static void page_sent(History *history, bool room)
{
    history->loading = false;
    if (history->last) {
        call_finish(history->pending.call);
        free(history);
    } else if (room) {
        load_next(history);
    }
}

static void on_writable(Call *call, void *data)
{
    History *history = data;
    (void)call;
    if (!history->loading)
        load_next(history);
}

static void on_cancel(void *data)
{
    History *history = data;
    history->pending.call = NULL;
    if (!history->loading)
        free(history);
}

/* False: nobody waits for the page any more, or it could not be read. */
static bool page_came(History *history, int r, const Error *err)
{
    if (!history->pending.call) {
        free(history);
        return false;
    }
    if (r < 0)
        fail(history, r, err);
    return r == 0;
}

static void begin(Call *call, void *server, uint64_t job, uint64_t after,
                  int (*load)(History *history))
{
    static const CallEvents events = {.on_writable = on_writable, .on_cancel = on_cancel};
    if (!call_find_job(call, server, job))
        return;
    History *history = pending_new(call, server, sizeof *history);
    if (!history)
        return;
    history->pending.id = job;
    history->after = after;
    history->load = load;
    call_set_events(call, &events, history);
    load_next(history);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void pack_row(const RoundRecord *record, Dps__V1__MetricsRow *row)
{
    dps__v1__metrics_row__init(row);
    row->round = record->round;
    row->rank = record->rank;
    row->step = record->step;
    row->loss = record->loss;
    row->samples = record->samples;
    row->compute_ms = record->compute_ms;
    row->wait_ms = record->wait_ms;
    row->bytes_in = record->bytes_in;
    row->bytes_out = record->bytes_out;
    row->lr = record->lr;
    row->contributed = record->contributed;
}

static bool send_rows(Call *call, const RoundRecord *records, size_t n, bool *room)
{
    Dps__V1__MetricsPage page = DPS__V1__METRICS_PAGE__INIT;
    Dps__V1__MetricsRow *rows = calloc(n + 1, sizeof *rows);
    page.rows = calloc(n + 1, sizeof *page.rows);
    page.n_rows = n;
    bool whole = rows && page.rows;
    for (size_t i = 0; whole && i < n; i++) {
        pack_row(&records[i], &rows[i]);
        page.rows[i] = &rows[i];
    }
    if (whole)
        *room = call_send(call, &page.base);
    free(rows);
    free(page.rows);
    return whole;
}

static void on_rounds(void *data, int r, const Error *err, const RoundRecord *rows, size_t n)
{
    History *history = data;
    bool room = true;
    Error problem;
    if (!page_came(history, r, err))
        return;
    if (n && !send_rows(history->pending.call, rows, n, &room)) {
        fail(history, -ENOMEM, (error_set(&problem, -ENOMEM, "dpsd is out of memory"), &problem));
        return;
    }
    if (n)
        history->after = rows[n - 1].round;
    history->last = n == 0;
    page_sent(history, room);
}

static int load_rounds(History *history)
{
    return store_rounds_load(history->pending.services->store, history->pending.id, history->after,
                             METRICS_PAGE, on_rounds, history);
}

void control_metrics(Call *call, const ProtobufCMessage *message, void *server)
{
    const Dps__V1__MetricsRequest *request = (const Dps__V1__MetricsRequest *)message;
    begin(call, server, request->job, request->after_round, load_rounds);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool send_events(Call *call, const EventRecord *records, size_t n, bool *room)
{
    Dps__V1__EventPage page = DPS__V1__EVENT_PAGE__INIT;
    Dps__V1__Event *events = calloc(n + 1, sizeof *events);
    page.events = calloc(n + 1, sizeof *page.events);
    page.n_events = n;
    bool whole = events && page.events;
    for (size_t i = 0; whole && i < n; i++) {
        dps__v1__event__init(&events[i]);
        events[i].id = records[i].id;
        events[i].unix_ms = records[i].unix_ms;
        events[i].round = records[i].round;
        events[i].kind = records[i].kind;
        events[i].who = records[i].who;
        events[i].text = records[i].text;
        page.events[i] = &events[i];
    }
    if (whole)
        *room = call_send(call, &page.base);
    free(events);
    free(page.events);
    return whole;
}

static void on_events(void *data, int r, const Error *err, const EventRecord *events, size_t n)
{
    History *history = data;
    bool room = true;
    Error problem;
    if (!page_came(history, r, err))
        return;
    if (n && !send_events(history->pending.call, events, n, &room)) {
        fail(history, -ENOMEM, (error_set(&problem, -ENOMEM, "dpsd is out of memory"), &problem));
        return;
    }
    if (n)
        history->after = events[n - 1].id;
    history->last = n < EVENTS_PAGE;
    page_sent(history, room);
}

static int load_events(History *history)
{
    return store_events_load(history->pending.services->store, history->pending.id, history->after,
                             EVENTS_PAGE, on_events, history);
}

void control_events(Call *call, const ProtobufCMessage *message, void *server)
{
    begin(call, server, ((const Dps__V1__JobRequest *)message)->job, 0, load_events);
}
