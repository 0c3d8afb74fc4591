/* Jobs, events, settings, metrics: what goes in comes out, in order, once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

/* ---- jobs ------------------------------------------------------------------------------------ */

static void check_jobs(void *data, int r, const Error *err, const JobRecord *jobs, size_t n)
{
    (void)err;
    const JobRecord *expected = data;
    assert_int_equal(r, 0);
    assert_int_equal(n, 2);
    assert_int_equal(jobs[0].id, 1);
    assert_string_equal(jobs[0].name, expected->name);
    assert_string_equal(jobs[0].spec, expected->spec);
    assert_string_equal(jobs[0].owner, expected->owner);
    assert_string_equal(jobs[0].reason, "done");
    assert_string_equal(jobs[0].result, "{\"step\":9}");
    assert_int_equal(jobs[0].state, 4);
    assert_true(jobs[0].created_ms == expected->created_ms);
    assert_true(jobs[0].updated_ms == UINT64_C(1) << 50);
    assert_int_equal(jobs[1].id, 2);
    assert_string_equal(jobs[1].name, ""); /* was NULL */
    assert_string_equal(jobs[1].result, "");
}

static void jobs_come_back_after_a_restart(void **state)
{
    Fixture *f = *state;
    JobRecord job = {.name = "näme",
                     .spec = "{\"a\":1}",
                     .owner = "uid=1000 (ada)",
                     .state = 1,
                     .created_ms = UINT64_C(18446744073709551615),
                     .updated_ms = 2};
    Answer first = {0}, second = {0}, updated = {0};
    assert_int_equal(store_job_insert(f->store, &job, answer_id, &first), 0);
    assert_int_equal(store_job_insert(f->store, &(JobRecord){0}, answer_id, &second), 0);
    fixture_drain(f);
    assert_int_equal(first.id, 1);
    assert_int_equal(second.id, 2);
    JobRecord change = {.id = 1,
                        .name = "not written",
                        .state = 4,
                        .reason = "done",
                        .result = "{\"step\":9}",
                        .updated_ms = UINT64_C(1) << 50};
    assert_int_equal(store_job_update(f->store, &change, answer_done, &updated), 0);
    assert_int_equal(store_job_update(f->store, &change, NULL, NULL), 0);
    fixture_drain(f);
    assert_int_equal(updated.r, 0);
    fixture_stop(f);
    fixture_start(f);
    assert_int_equal(store_jobs_load(f->store, check_jobs, &job), 0);
    fixture_drain(f);
}

static void an_unknown_job_is_named(void **state)
{
    Fixture *f = *state;
    Answer update = {0}, round = {0}, event = {0}, setting = {0};
    store_job_update(f->store, &(JobRecord){.id = 77}, answer_done, &update);
    store_job_update(f->store, &(JobRecord){.id = 77}, NULL, NULL);
    store_rounds_add(f->store, &(RoundRecord){.job = 77}, 1, answer_done, &round);
    store_event_add(f->store, &(EventRecord){.job = 77}, answer_done, &event);
    store_settings_add(f->store, &(SettingRecord){.job = 77}, 1, answer_done, &setting);
    Answer save = fixture_save(f, 77, 1, 1, 10, 0);
    assert_int_equal(update.r, -ENOENT);
    assert_non_null(strstr(update.message, "77"));
    assert_int_equal(round.r, -ENOENT);
    assert_int_equal(event.r, -ENOENT);
    assert_int_equal(setting.r, -ENOENT);
    assert_int_equal(save.r, -ENOENT);
}

/* ---- events and settings --------------------------------------------------------------------- */

static void check_events(void *data, int r, const Error *err, const EventRecord *events, size_t n)
{
    (void)err;
    uint64_t *last = data;
    assert_int_equal(r, 0);
    for (size_t i = 0; i < n; i++) {
        assert_true(events[i].id > *last);
        *last = events[i].id;
        assert_string_equal(events[i].kind, "note");
        assert_string_equal(events[i].who, "ada");
        assert_int_equal(events[i].round, events[i].unix_ms);
    }
    last[1] += n;
}

static void events_are_paged_by_id(void **state)
{
    Fixture *f = *state;
    uint64_t jobs[3] = {0, fixture_job(f), fixture_job(f)};
    for (uint64_t i = 0; i < 30; i++) {
        EventRecord event = {.job = jobs[i % 3],
                             .unix_ms = i,
                             .round = i,
                             .kind = "note",
                             .who = "ada",
                             .text = "text"};
        assert_int_equal(store_event_add(f->store, &event, NULL, NULL), 0);
    }
    for (int j = 0; j < 3; j++) {
        uint64_t seen[2] = {0, 0}; /* last id, how many */
        for (int page = 0; page < 4; page++) {
            store_events_load(f->store, jobs[j], seen[0], 3, check_events, seen);
            fixture_drain(f);
        }
        assert_int_equal(seen[1], 10);
    }
}

static void check_settings(void *data, int r, const Error *err, const SettingRecord *settings,
                           size_t n)
{
    (void)err;
    size_t *found = data;
    assert_int_equal(r, 0);
    *found = n;
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(settings[i].key, "sync.interval");
        char value[8];
        snprintf(value, sizeof value, "%zu", i);
        assert_string_equal(settings[i].value, value);
        assert_string_equal(settings[i].who, "ada");
        assert_int_equal(settings[i].round, 10 - i);
    }
}

static void settings_keep_their_order_and_leave_events(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    SettingRecord settings[3];
    char values[3][2] = {"0", "1", "2"};
    for (size_t i = 0; i < 3; i++)
        settings[i] = (SettingRecord){.job = job,
                                      .round = 10 - i,
                                      .unix_ms = 5,
                                      .key = "sync.interval",
                                      .value = values[i],
                                      .who = "ada"};
    assert_int_equal(store_settings_add(f->store, settings, 3, NULL, NULL), 0);
    assert_int_equal(store_settings_add(f->store, NULL, 0, NULL, NULL), 0);
    memset(values, 'x', sizeof values);
    size_t n = 0;
    store_settings_load(f->store, job, check_settings, &n);
    fixture_drain(f);
    assert_int_equal(n, 3);
    assert_int_equal(fixture_count_events(f, job, "setting"), 3);
}

static void a_change_of_settings_is_whole_or_not_at_all(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    SettingRecord settings[2] = {{.job = job, .key = "a", .value = "1"},
                                 {.job = 99, .key = "b", .value = "1"}};
    Answer answer = {0};
    store_settings_add(f->store, settings, 2, answer_done, &answer);
    size_t n = 9;
    store_settings_load(f->store, job, check_settings, &n);
    fixture_drain(f);
    assert_int_equal(answer.r, -ENOENT);
    assert_int_equal(n, 0);
    assert_int_equal(fixture_count_events(f, job, "setting"), 0);
}

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct Rows {
    RoundRecord rows[64];
    size_t n;
} Rows;

static void keep_rows(void *data, int r, const Error *err, const RoundRecord *rows, size_t n)
{
    (void)err;
    Rows *kept = data;
    assert_int_equal(r, 0);
    assert_true(n <= 64);
    if (n)
        memcpy(kept->rows, rows, n * sizeof *rows);
    kept->n = n;
}

static Rows load_rows(Fixture *f, uint64_t job, uint64_t after, size_t limit)
{
    Rows rows = {0};
    assert_int_equal(store_rounds_load(f->store, job, after, limit, keep_rows, &rows), 0);
    fixture_drain(f);
    return rows;
}

/* Ranks are added last first: they come back in order. */
static void add_round(Fixture *f, uint64_t job, uint64_t round, uint32_t ranks, double loss)
{
    RoundRecord rows[8] = {0};
    for (uint32_t i = 0; i < ranks; i++)
        rows[i] = (RoundRecord){.job = job,
                                .round = round,
                                .rank = ranks - 1 - i,
                                .step = round * 25,
                                .samples = 800,
                                .bytes_in = 1,
                                .bytes_out = 2,
                                .loss = loss,
                                .compute_ms = 1.5,
                                .wait_ms = 0.25,
                                .lr = 0.03,
                                .contributed = i != 1};
    assert_int_equal(store_rounds_add(f->store, rows, ranks, NULL, NULL), 0);
    memset(rows, 0xff, sizeof rows);
}

static void rows_come_back_as_they_were(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    add_round(f, job, 1, 2, 0.1 + 0.2);
    Rows rows = load_rows(f, job, 0, 10);
    assert_int_equal(rows.n, 2);
    const RoundRecord *row = &rows.rows[1];
    assert_true(row->job == job && row->round == 1 && row->rank == 1 && row->step == 25);
    assert_true(row->samples == 800 && row->bytes_in == 1 && row->bytes_out == 2);
    assert_true(row->loss == 0.1 + 0.2 && row->compute_ms == 1.5 && row->wait_ms == 0.25);
    assert_true(row->lr == 0.03 && row->contributed && !rows.rows[0].contributed);
}

static void a_loss_that_is_not_a_number_survives(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    add_round(f, job, 1, 1, NAN);
    add_round(f, job, 2, 1, INFINITY);
    Rows rows = load_rows(f, job, 0, 10);
    assert_true(isnan(rows.rows[0].loss));
    assert_true(isinf(rows.rows[1].loss));
}

static void a_round_recorded_twice_is_there_once(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    add_round(f, job, 1, 3, 2.0);
    add_round(f, job, 1, 3, 1.0);
    Rows rows = load_rows(f, job, 0, 10);
    assert_int_equal(rows.n, 3);
    assert_true(rows.rows[2].loss == 1.0);
}

static void pages_end_between_rounds(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), other = fixture_job(f);
    for (uint64_t round = 1; round <= 5; round++) {
        add_round(f, job, round, 3, 1.0);
        add_round(f, other, round, 2, 1.0);
    }
    assert_int_equal(load_rows(f, job, 0, 7).n, 6);
    assert_int_equal(load_rows(f, job, 0, 6).n, 6);
    assert_int_equal(load_rows(f, job, 0, 64).n, 15);
    assert_int_equal(load_rows(f, job, 4, 64).n, 3);
    assert_int_equal(load_rows(f, job, 5, 64).n, 0);
    assert_int_equal(load_rows(f, job, UINT64_MAX, 64).n, 0);
    assert_int_equal(load_rows(f, job, 0, 0).n, 0);
    assert_int_equal(load_rows(f, job, 2, 1).n, 3); /* a round is never torn, nor stuck at */
    Rows page = load_rows(f, job, 2, 7);
    assert_int_equal(page.rows[0].round, 3);
    for (size_t i = 0; i < page.n; i++)
        assert_int_equal(page.rows[i].rank, i % 3);
}

/* ---- rewinding ------------------------------------------------------------------------------- */

static Answer rewind_job(Fixture *f, uint64_t job, uint64_t round, bool also, uint64_t checkpoint)
{
    Answer answer = {0};
    assert_int_equal(
        store_job_rewind(f->store, job, round, NULL, 0, also, checkpoint, answer_done, &answer), 0);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
    return answer;
}

static void count_settings(void *data, int r, const Error *err, const SettingRecord *settings,
                           size_t n)
{
    (void)settings, (void)err;
    assert_int_equal(r, 0);
    *(size_t *)data = n;
}

static void rewinding_cuts_this_job_after_the_round(void **state)
{
    Fixture *f = *state;
    uint64_t jobs[2] = {fixture_job(f), fixture_job(f)}, checkpoints[6];
    for (uint64_t round = 0; round < 6; round++)
        for (int j = 0; j < 2; j++) {
            add_round(f, jobs[j], round + 1, 2, 1.0);
            SettingRecord setting = {.job = jobs[j], .round = round + 1, .key = "k", .value = "v"};
            store_settings_add(f->store, &setting, 1, NULL, NULL);
            uint64_t id = fixture_save(f, jobs[j], round + 1, 2, 100, 0).id;
            if (j == 0)
                checkpoints[round] = id;
        }
    size_t n;
    rewind_job(f, jobs[0], 4, false, 0);
    store_settings_load(f->store, jobs[0], count_settings, &n);
    assert_int_equal(load_rows(f, jobs[0], 0, 64).n, 8);
    assert_int_equal(fixture_list(f, jobs[0], false).n, 6);
    assert_int_equal(n, 6);

    rewind_job(f, jobs[0], 3, true, checkpoints[2]);
    store_settings_load(f->store, jobs[0], count_settings, &n);
    assert_int_equal(load_rows(f, jobs[0], 0, 64).n, 6);
    assert_int_equal(fixture_list(f, jobs[0], true).id, 3);
    assert_int_equal(n, 4); /* that of the round in which the cut was made is part of it */
    assert_int_equal(fixture_load(f, jobs[0], 0).id, checkpoints[2]);

    rewind_job(f, jobs[0], 0, true, 0);
    assert_int_equal(load_rows(f, jobs[0], 0, 64).n, 0);
    assert_int_equal(fixture_list(f, jobs[0], false).n, 0);
    assert_int_equal(load_rows(f, jobs[1], 0, 64).n, 12);
    assert_int_equal(fixture_list(f, jobs[1], true).id, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(jobs_come_back_after_a_restart, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_unknown_job_is_named, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(events_are_paged_by_id, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(settings_keep_their_order_and_leave_events, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_change_of_settings_is_whole_or_not_at_all, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(rows_come_back_as_they_were, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_loss_that_is_not_a_number_survives, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_round_recorded_twice_is_there_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(pages_end_between_rounds, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(rewinding_cuts_this_job_after_the_round, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store records", tests, NULL, NULL);
}
