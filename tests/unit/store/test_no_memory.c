/* Every allocation fails once: each call answers -ENOMEM or does what it says, whole; nothing leaks
 * (the sanitizers look), nothing that was saved is lost, and the next call succeeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault_alloc.h"
#include "fixture.h"

enum { PART = 70000, TRIES_MAX = 5000 };

/* A call of the store whose answer is asked for with allocations failing. */
typedef int (*Call)(Fixture *f, uint64_t job, Answer *answer);

static CheckpointPart parts[2];

static int save(Fixture *f, uint64_t job, Answer *answer)
{
    CheckpointRecord record = {.job = job, .round = 9, .meta = "{}"};
    return store_checkpoint_save(f->store, &record, parts, 2, 2, answer_id, answer);
}

static void on_loaded(void *data, int r, const Error *err, const CheckpointRecord *checkpoint,
                      const CheckpointPart *loaded, size_t n)
{
    if (r == 0) {
        assert_int_equal(n, 2);
        assert_memory_equal(loaded[1].data, parts[1].data, parts[1].bytes);
        assert_non_null(checkpoint->meta);
    }
    answer_done(data, r, err);
}

static int load(Fixture *f, uint64_t job, Answer *answer)
{
    return store_checkpoint_load(f->store, job, 0, on_loaded, answer);
}

static void on_listed(void *data, int r, const Error *err, const CheckpointRecord *checkpoints,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(checkpoints[i].valid); /* no memory is no damage */
    answer_done(data, r, err);
}

static int list(Fixture *f, uint64_t job, Answer *answer)
{
    return store_checkpoints_list(f->store, job, true, on_listed, answer);
}

static int insert_job(Fixture *f, uint64_t job, Answer *answer)
{
    (void)job;
    JobRecord record = {.name = "n", .spec = "s", .owner = "o", .reason = "r", .result = "{}"};
    return store_job_insert(f->store, &record, answer_id, answer);
}

static int update_job(Fixture *f, uint64_t job, Answer *answer)
{
    return store_job_update(f->store, &(JobRecord){.id = job, .reason = "r"}, answer_done, answer);
}

static void on_jobs(void *data, int r, const Error *err, const JobRecord *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(jobs[i].name && jobs[i].spec && jobs[i].owner && jobs[i].result);
    answer_done(data, r, err);
}

static int load_jobs(Fixture *f, uint64_t job, Answer *answer)
{
    (void)job;
    return store_jobs_load(f->store, on_jobs, answer);
}

static int add_event(Fixture *f, uint64_t job, Answer *answer)
{
    EventRecord event = {.job = job, .kind = "k", .who = "w", .text = "t"};
    return store_event_add(f->store, &event, answer_done, answer);
}

static void on_events(void *data, int r, const Error *err, const EventRecord *events, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(events[i].kind && events[i].who && events[i].text);
    answer_done(data, r, err);
}

static int load_events(Fixture *f, uint64_t job, Answer *answer)
{
    return store_events_load(f->store, job, 0, 100, on_events, answer);
}

static int add_settings(Fixture *f, uint64_t job, Answer *answer)
{
    SettingRecord settings[2] = {{.job = job, .key = "k", .value = "v", .who = "w"},
                                 {.job = job, .key = "k", .value = "v", .who = "w"}};
    return store_settings_add(f->store, settings, 2, answer_done, answer);
}

static void on_settings(void *data, int r, const Error *err, const SettingRecord *settings,
                        size_t n)
{
    assert_int_equal(n % 2, 0); /* both or none */
    for (size_t i = 0; i < n; i++)
        assert_true(settings[i].key && settings[i].value && settings[i].who);
    answer_done(data, r, err);
}

static int load_settings(Fixture *f, uint64_t job, Answer *answer)
{
    return store_settings_load(f->store, job, on_settings, answer);
}

static int add_rounds(Fixture *f, uint64_t job, Answer *answer)
{
    RoundRecord rows[2] = {{.job = job, .rank = 0}, {.job = job, .rank = 1}};
    return store_rounds_add(f->store, rows, 2, answer_done, answer);
}

static void on_rounds(void *data, int r, const Error *err, const RoundRecord *rows, size_t n)
{
    (void)rows;
    assert_int_equal(n % 2, 0);
    answer_done(data, r, err);
}

static int load_rounds(Fixture *f, uint64_t job, Answer *answer)
{
    return store_rounds_load(f->store, job, UINT64_MAX, 100, on_rounds, answer);
}

static int add_evaluation(Fixture *f, uint64_t job, Answer *answer)
{
    EvaluationRecord evaluation = {.job = job, .round = 1, .best = true};
    return store_evaluation_add(f->store, &evaluation, answer_done, answer);
}

static void on_evaluations(void *data, int r, const Error *err, const EvaluationsLoaded *loaded)
{
    assert_int_equal(loaded->n, r < 0 ? 0 : 1);
    answer_done(data, r, err);
}

static int load_evaluations(Fixture *f, uint64_t job, Answer *answer)
{
    return store_evaluations_load(f->store, job, 0, 100, on_evaluations, answer);
}

static int pin_none(Fixture *f, uint64_t job, Answer *answer)
{
    return store_checkpoint_pin(f->store, job, PIN_BEST, 0, answer_done, answer);
}

static int rewind_job(Fixture *f, uint64_t job, Answer *answer)
{
    return store_job_rewind(f->store, job, 100, NULL, 0, true, UINT64_MAX, answer_done, answer);
}

static int ping(Fixture *f, uint64_t job, Answer *answer)
{
    (void)job;
    return store_ping(f->store, answer_done, answer);
}

typedef struct NamedCall {
    const char *name;
    Call call;
} NamedCall;

static const NamedCall calls[] = {
    {"insert a job", insert_job},
    {"update a job", update_job},
    {"load jobs", load_jobs},
    {"add an event", add_event},
    {"load events", load_events},
    {"add settings", add_settings},
    {"load settings", load_settings},
    {"add rounds", add_rounds},
    {"load rounds", load_rounds},
    {"add an evaluation", add_evaluation},
    {"load evaluations", load_evaluations},
    {"pin", pin_none},
    {"rewind", rewind_job},
    {"ping", ping},
    {"save a checkpoint", save},
    {"load a checkpoint", load},
    {"list checkpoints", list},
};

/* The store's own allocations and the first of SQLite's one by one, then every 11th: each try waits
 * for the disk. */
static int next(int n)
{
    return n < 120 ? n + 1 : n + 11;
}

/* One call with allocation n failing. 0: nothing failed any more. */
static int try_once(Fixture *f, uint64_t job, const NamedCall *named, int n, bool always)
{
    Answer answer = {0};
    fault_alloc_set(n, always);
    int r = named->call(f, job, &answer);
    fixture_drain(f);
    int failed = fault_alloc_failed();
    fault_alloc_set(0, false);
    if (r < 0) {
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(answer.called, 0); /* refused at once: no callback */
        return failed;
    }
    assert_int_equal(answer.called, 1);
    if (answer.r < 0 && (answer.r != -ENOMEM || !strstr(answer.message, "memory")))
        fail_msg("%s, allocation %d: %d %s", named->name, n, answer.r, answer.message);
    if (answer.r < 0)
        assert_true(failed > 0);
    return failed;
}

static void succeed(Fixture *f, uint64_t job, const NamedCall *named)
{
    Answer answer = {0};
    assert_int_equal(named->call(f, job, &answer), 0);
    fixture_drain(f);
    if (answer.r < 0)
        fail_msg("%s, afterwards: %d %s", named->name, answer.r, answer.message);
}

static void fail_all(Fixture *f, bool always)
{
    uint64_t job = fixture_job(f);
    static uint8_t bytes[2][PART];
    for (int i = 0; i < 2; i++) {
        fixture_fill(bytes[i], PART, (uint64_t)i);
        parts[i] = (CheckpointPart){.data = bytes[i], .bytes = PART};
        snprintf(parts[i].name, sizeof parts[i].name, "p%d", i);
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        succeed(f, job, &calls[i]);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int n = 1;
        while (try_once(f, job, &calls[i], n, always) > 0 && n < TRIES_MAX) {
            n = next(n);
            succeed(f, job, &calls[i]);
        }
        print_message("%s: %d allocations\n", calls[i].name, n);
        assert_true(n > 1 && n < TRIES_MAX);
    }
    Answer listed = fixture_list(f, job, true);
    assert_int_equal(listed.id, listed.n);
    assert_int_equal(listed.n, 2);
    assert_int_equal(fixture_count_events(f, job, "checkpoint-invalid"), 0);
}

static void each_allocation_may_fail_once(void **state)
{
    fail_all(*state, false);
}

static void all_allocations_may_fail_from_one_on(void **state)
{
    fail_all(*state, true);
}

static void opening_may_run_out_of_memory(void **state)
{
    Fixture *f = *state;
    fixture_job(f);
    fixture_stop(f);
    for (int fresh = 0; fresh < 2; fresh++) {
        int n = 1, failed = 1;
        for (; failed > 0 && n < TRIES_MAX; n = next(n)) {
            Fixture other;
            Error err = {0};
            fixture_new(&other);
            fault_alloc_set(n, false);
            int r = fixture_try_open(fresh ? &other : f, &err);
            failed = fault_alloc_failed();
            fault_alloc_set(0, false);
            if (r < 0 && (r != -ENOMEM || failed == 0 || !strstr(err.message, "memory")))
                fail_msg("allocation %d: %d %s", n, r, err.message);
            assert_int_equal(fixture_try_open(fresh ? &other : f, &err), 0);
            fixture_free(&other);
        }
        print_message("%s: %d allocations\n", fresh ? "create" : "open", n);
        assert_true(n < TRIES_MAX);
    }
    fixture_start(f);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM jobs"), 1);
}

int main(void)
{
    if (fault_alloc_install() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(all_allocations_may_fail_from_one_on, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(opening_may_run_out_of_memory, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store without memory", tests, NULL, NULL);
}
