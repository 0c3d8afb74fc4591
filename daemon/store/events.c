#include "store/events.h"

#include <stdlib.h>

#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

/* Events that belong to no job have NULL there. */
static void bind_job(Statement *statement, uint64_t job)
{
    if (job == 0)
        statement_bind_null(statement);
    else
        statement_bind_u64(statement, job);
}

int event_insert(Db *db, const EventRecord *event, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "INSERT INTO events (job, unix_ms, round, kind, who, text)"
                              " VALUES (?, ?, ?, ?, ?, ?)",
                              &statement, err);
    if (r < 0)
        return r;
    bind_job(&statement, event->job);
    statement_bind_u64(&statement, event->unix_ms);
    statement_bind_u64(&statement, event->round);
    statement_bind_text(&statement, event->kind);
    statement_bind_text(&statement, event->who);
    statement_bind_text(&statement, event->text);
    return statement_run(&statement, err);
}

static void release_record(EventRecord *event)
{
    free(event->kind);
    free(event->who);
    free(event->text);
}

/* ---- add ------------------------------------------------------------------------------------- */

typedef struct EventAdd {
    Request request;
    EventRecord event;
} EventAdd;

static int run_add(Request *request, Db *db, Error *err)
{
    return event_insert(db, &((EventAdd *)request)->event, err);
}

static void release_add(Request *request)
{
    release_record(&((EventAdd *)request)->event);
}

static const RequestKind add_kind = {.what = "record the event",
                                     .transaction = true,
                                     .run = run_add,
                                     .answer = request_answer_done,
                                     .release = release_add};

int store_event_add(Store *store, const EventRecord *event, StoreDone done, void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &add_kind, sizeof(EventAdd), data, &request);
    if (r < 0)
        return r;
    request->done = done;
    EventRecord *copy = &((EventAdd *)request)->event;
    *copy = (EventRecord){.job = event->job, .unix_ms = event->unix_ms, .round = event->round};
    r = text_copy(event->kind, &copy->kind);
    if (r >= 0)
        r = text_copy(event->who, &copy->who);
    if (r >= 0)
        r = text_copy(event->text, &copy->text);
    if (r < 0)
        return r;
    request_post(MOVE(request));
    return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

typedef struct EventsLoad {
    Request request;
    uint64_t job, after_id;
    size_t limit;
    EventRecord *events;
    size_t n, capacity;
    StoreEventsLoaded loaded;
} EventsLoad;

static int read_record(const Statement *row, EventRecord *event, Error *err)
{
    event->id = statement_u64(row, 0);
    event->job = statement_u64(row, 1); /* NULL reads as 0 */
    event->unix_ms = statement_u64(row, 2);
    event->round = statement_u64(row, 3);
    int r = statement_text(row, 4, &event->kind, err);
    if (r >= 0)
        r = statement_text(row, 5, &event->who, err);
    if (r >= 0)
        r = statement_text(row, 6, &event->text, err);
    return r;
}

static int run_load(Request *request, Db *db, Error *err)
{
    EventsLoad *load = (EventsLoad *)request;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "SELECT id, job, unix_ms, round, kind, who, text FROM events"
                              " WHERE job IS ? AND id > ? ORDER BY id LIMIT ?",
                              &statement, err);
    if (r < 0)
        return r;
    bind_job(&statement, load->job);
    statement_bind_limit(&statement, load->after_id);
    statement_bind_limit(&statement, load->limit);
    while (r >= 0 && (r = statement_step(&statement, err)) > 0) {
        r = rows_grow((void **)&load->events, load->n, &load->capacity, sizeof *load->events);
        if (r >= 0)
            r = read_record(&statement, &load->events[load->n++], err);
    }
    return r;
}

static void answer_load(Request *request)
{
    const EventsLoad *load = (EventsLoad *)request;
    bool failed = request->result < 0;
    load->loaded(request->data, request->result, request_error(request),
                 failed ? NULL : load->events, failed ? 0 : load->n);
}

static void release_load(Request *request)
{
    EventsLoad *load = (EventsLoad *)request;
    for (size_t i = 0; i < load->n; i++)
        release_record(&load->events[i]);
    free(load->events);
}

static const RequestKind load_kind = {
    .what = "read the events", .run = run_load, .answer = answer_load, .release = release_load};

int store_events_load(Store *store, uint64_t job, uint64_t after_id, size_t limit,
                      StoreEventsLoaded done, void *data)
{
    Request *request;
    int r = request_new(store, &load_kind, sizeof(EventsLoad), data, &request);
    if (r < 0)
        return r;
    EventsLoad *load = (EventsLoad *)request;
    load->job = job;
    load->after_id = after_id;
    load->limit = limit;
    load->loaded = done;
    request_post(request);
    return 0;
}
