/* The life of requests: order, answers, closing with work outstanding, limits. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { REQUESTS = 1000 };

/* What one of many callbacks notes: its place in the order of answers. */
typedef struct Place {
    size_t *next;
    size_t place;
    int r;
} Place;

static void take_place(void *data, int r)
{
    Place *place = data;
    place->place = ++*place->next;
    place->r = r;
}

static void place_done(void *data, int r, const Error *err)
{
    (void)err;
    take_place(data, r);
}

static void place_id(void *data, int r, const Error *err, uint64_t id)
{
    (void)err, (void)id;
    take_place(data, r);
}

static void place_rows(void *data, int r, const Error *err, const RoundRecord *rows, size_t n)
{
    (void)err, (void)rows, (void)n;
    take_place(data, r);
}

static void place_jobs(void *data, int r, const Error *err, const JobRecord *jobs, size_t n)
{
    (void)err, (void)jobs, (void)n;
    take_place(data, r);
}

static int ask(Store *store, uint64_t job, int i, Place *place)
{
    RoundRecord row = {.job = job, .round = (uint64_t)i};
    EventRecord event = {.job = job, .kind = "note"};
    CheckpointRecord checkpoint = {.job = job, .round = (uint64_t)i};
    CheckpointPart part = {.name = "p", .data = "x", .bytes = 1};
    switch (i % 6) {
    case 0:
        return store_rounds_add(store, &row, 1, place_done, place);
    case 1:
        return store_ping(store, place_done, place);
    case 2:
        return store_event_add(store, &event, place_done, place);
    case 3:
        return store_rounds_load(store, job, 0, 10, place_rows, place);
    case 4:
        return store_checkpoint_save(store, &checkpoint, &part, 1, 2, place_id, place);
    default:
        return store_jobs_load(store, place_jobs, place);
    }
}

static void check_order(const Place *places)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(places[i].place, i + 1);
        assert_int_equal(places[i].r, 0);
    }
}

static void a_thousand_answers_come_in_order(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    Place places[REQUESTS] = {0};
    size_t next = 0;
    for (int i = 0; i < REQUESTS; i++) {
        places[i].next = &next;
        assert_int_equal(ask(f->store, job, i, &places[i]), 0);
    }
    assert_int_equal(store_pending(f->store), REQUESTS);
    fixture_drain(f);
    check_order(places);
}

static void closing_ends_what_was_asked_for(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    Place places[REQUESTS] = {0};
    size_t next = 0;
    for (int i = 0; i < REQUESTS; i++) {
        places[i].next = &next;
        assert_int_equal(ask(f->store, job, i, &places[i]), 0);
    }
    fixture_stop(f); /* store_close, then the mailbox is drained */
    check_order(places);
    fixture_start(f);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM rounds"), (REQUESTS + 5) / 6);
}

typedef struct Late {
    Store *store;
    int r;
} Late;

static void ask_again(void *data, int r, const Error *err)
{
    (void)r, (void)err;
    Late *late = data;
    late->r = store_ping(late->store, ask_again, late);
}

static void a_request_after_the_close_is_refused(void **state)
{
    Fixture *f = *state;
    Late late = {.store = f->store};
    assert_int_equal(store_ping(f->store, ask_again, &late), 0);
    assert_int_equal(store_ping(f->store, NULL, NULL), 0);
    fixture_stop(f);
    assert_int_equal(late.r, -ESHUTDOWN);
}

static void close_inside(void *data, int r, const Error *err)
{
    (void)r, (void)err;
    Fixture *f = data;
    f->store = store_close(f->store);
}

static void a_callback_may_close_the_store(void **state)
{
    Fixture *f = *state;
    assert_int_equal(store_ping(f->store, close_inside, f), 0);
    while (f->store) {
        Task *task = mailbox_take(f->loop);
        if (task)
            task->done(task);
    }
    fixture_start(f);
}

static void what_waits_is_bounded(void **state)
{
    Fixture *f = *state;
    int r = 0, asked = 0;
    while (r == 0 && asked < 100000) {
        r = store_ping(f->store, NULL, NULL);
        asked += r == 0;
    }
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(asked, store_pending(f->store));
    fixture_drain(f);
    assert_int_equal(store_ping(f->store, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_thousand_answers_come_in_order, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(closing_ends_what_was_asked_for, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_request_after_the_close_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_callback_may_close_the_store, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("store thread", tests, NULL, NULL);
}
