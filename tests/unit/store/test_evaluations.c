/* Evaluations, and the pins that keep their checkpoints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { MAX_ROWS = 64 };

typedef struct Loaded {
    int r;
    EvaluationRecord rows[MAX_ROWS];
    size_t n;
    uint64_t in_use, in_use_round;
} Loaded;

static void take_loaded(void *data, int r, const Error *err, const EvaluationsLoaded *loaded)
{
    Loaded *answer = data;
    (void)err;
    answer->r = r;
    answer->n = loaded->n;
    answer->in_use = loaded->in_use;
    answer->in_use_round = loaded->in_use_round;
    assert_true(loaded->n <= MAX_ROWS);
    if (loaded->n)
        memcpy(answer->rows, loaded->rows, loaded->n * sizeof *loaded->rows);
}

static Loaded load(Fixture *f, uint64_t job, uint64_t after, size_t limit)
{
    Loaded answer = {.r = 1};
    assert_int_equal(store_evaluations_load(f->store, job, after, limit, take_loaded, &answer), 0);
    fixture_drain(f);
    return answer;
}

static int add(Fixture *f, const EvaluationRecord *evaluation)
{
    Answer answer = {.r = 1};
    assert_int_equal(store_evaluation_add(f->store, evaluation, answer_done, &answer), 0);
    fixture_drain(f);
    return answer.r;
}

static void pin(Fixture *f, uint64_t job, CheckpointPin which, uint64_t id)
{
    Answer answer = {.r = 1};
    assert_int_equal(store_checkpoint_pin(f->store, job, which, id, answer_done, &answer), 0);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
}

static uint64_t save(Fixture *f, uint64_t job, uint64_t round, unsigned keep)
{
    Answer saved = fixture_save(f, job, round, 2, 100, keep);
    assert_int_equal(saved.r, 0);
    return saved.id;
}

static void rewind_to(Fixture *f, uint64_t job, uint64_t round, bool all, uint64_t checkpoint)
{
    Answer answer = {.r = 1};
    assert_int_equal(
        store_job_rewind(f->store, job, round, NULL, 0, all, checkpoint, answer_done, &answer), 0);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
}

static bool is_there(Fixture *f, uint64_t id)
{
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM checkpoints WHERE id = %llu",
             (unsigned long long)id);
    return fixture_sql_number(f, sql) == 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void an_evaluation_comes_back_as_it_was(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    uint64_t id = save(f, job, 40, 0);
    EvaluationRecord one = {.job = job,
                            .round = 40,
                            .checkpoint = id,
                            .accuracy = 0.981,
                            .loss = 0.0712,
                            .samples = 2000,
                            .unix_ms = 1700000000123};
    assert_int_equal(add(f, &one), 0);
    fixture_stop(f);
    fixture_start(f);
    Loaded loaded = load(f, job, 0, 10);
    assert_int_equal(loaded.r, 0);
    assert_int_equal(loaded.n, 1);
    one.kept = true;
    const EvaluationRecord *row = &loaded.rows[0];
    assert_int_equal(row->job, job);
    assert_int_equal(row->round, 40);
    assert_int_equal(row->checkpoint, id);
    assert_true(row->accuracy == one.accuracy && row->loss == one.loss);
    assert_int_equal(row->samples, 2000);
    assert_int_equal(row->unix_ms, 1700000000123);
    assert_true(row->kept);
    assert_false(row->best);
}

static void what_is_not_a_number_comes_back_as_such(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    EvaluationRecord one = {.job = job, .round = 1, .accuracy = 0.1, .loss = NAN};
    assert_int_equal(add(f, &one), 0);
    Loaded loaded = load(f, job, 0, 10);
    assert_int_equal(loaded.n, 1);
    assert_true(isnan(loaded.rows[0].loss));
    assert_false(loaded.rows[0].kept); /* no such checkpoint */
}

static void rows_come_by_round_and_in_pages(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), other = fixture_job(f);
    for (uint64_t round = 30; round > 0; round -= 5) {
        EvaluationRecord one = {.job = job, .round = round, .checkpoint = 1};
        EvaluationRecord foreign = {.job = other, .round = round, .checkpoint = 1};
        assert_int_equal(add(f, &one), 0);
        assert_int_equal(add(f, &foreign), 0);
    }
    Loaded page = load(f, job, 0, 4), rest = load(f, job, 20, 4);
    assert_int_equal(page.n, 4);
    assert_int_equal(page.rows[0].round, 5);
    assert_int_equal(page.rows[3].round, 20);
    assert_int_equal(rest.n, 2);
    assert_int_equal(rest.rows[1].round, 30);
    assert_int_equal(load(f, job, 30, 4).n, 0);
}

static void a_round_evaluated_again_takes_the_place_of_the_first(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    EvaluationRecord one = {.job = job, .round = 5, .accuracy = 0.5};
    assert_int_equal(add(f, &one), 0);
    one.accuracy = 0.6;
    assert_int_equal(add(f, &one), 0);
    Loaded loaded = load(f, job, 0, 10);
    assert_int_equal(loaded.n, 1);
    assert_true(loaded.rows[0].accuracy == 0.6);
}

static void an_evaluation_of_no_job_is_refused(void **state)
{
    Fixture *f = *state;
    EvaluationRecord one = {.job = 77, .round = 5};
    assert_int_equal(add(f, &one), -ENOENT);
}

static void a_rewind_takes_later_evaluations_along(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    for (uint64_t round = 5; round <= 20; round += 5)
        assert_int_equal(add(f, &(EvaluationRecord){.job = job, .round = round}), 0);
    rewind_to(f, job, 12, false, 0);
    Loaded loaded = load(f, job, 0, 10);
    assert_int_equal(loaded.n, 2);
    assert_int_equal(loaded.rows[1].round, 10);
}

/* ---- pins ------------------------------------------------------------------------------------ */

static void pruning_leaves_the_best_and_does_not_count_it(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), ids[6];
    ids[0] = save(f, job, 0, 2);
    assert_int_equal(
        add(f, &(EvaluationRecord){.job = job, .round = 1, .checkpoint = ids[0], .best = true}), 0);
    for (uint64_t i = 1; i < 6; i++)
        ids[i] = save(f, job, i, 2);
    assert_int_equal(fixture_list(f, job, true).n, 3);
    assert_true(is_there(f, ids[0]) && is_there(f, ids[4]) && is_there(f, ids[5]));
    Loaded loaded = load(f, job, 0, 10);
    assert_true(loaded.rows[0].best && loaded.rows[0].kept);
}

static void a_better_one_sets_the_last_best_free(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    uint64_t first = save(f, job, 1, 1);
    assert_int_equal(
        add(f, &(EvaluationRecord){.job = job, .round = 1, .checkpoint = first, .best = true}), 0);
    uint64_t second = save(f, job, 2, 1);
    assert_true(is_there(f, first));
    assert_int_equal(
        add(f, &(EvaluationRecord){.job = job, .round = 2, .checkpoint = second, .best = true}), 0);
    uint64_t third = save(f, job, 3, 1);
    assert_false(is_there(f, first));
    assert_true(is_there(f, second) && is_there(f, third));
    assert_int_equal(load(f, job, 0, 10).rows[0].kept, false);
}

static void one_in_use_stays_from_the_moment_it_is_saved(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), before = save(f, job, 1, 1);
    CheckpointRecord record = {.job = job, .round = 2, .in_use = true};
    Answer saved = {0};
    assert_int_equal(store_checkpoint_save(f->store, &record, NULL, 0, 1, answer_id, &saved), 0);
    fixture_drain(f);
    assert_true(is_there(f, before)); /* keep=1, and the new one is not counted */
    save(f, job, 3, 1);
    uint64_t last = save(f, job, 4, 1);
    assert_true(is_there(f, saved.id) && is_there(f, last));
    assert_int_equal(fixture_list(f, job, true).n, 2);
    fixture_stop(f); /* whatever ends dpsd: it is known what was being evaluated */
    fixture_start(f);
    Loaded loaded = load(f, job, 0, 10);
    assert_int_equal(loaded.in_use, saved.id);
    assert_int_equal(loaded.in_use_round, 2);
    pin(f, job, PIN_IN_USE, 0);
    save(f, job, 5, 1);
    assert_false(is_there(f, saved.id));
    assert_int_equal(load(f, job, 0, 10).in_use, 0);
}

static void a_pin_is_one_a_job(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), other = fixture_job(f);
    uint64_t mine = save(f, job, 1, 0), next = save(f, job, 2, 0), foreign = save(f, other, 1, 0);
    pin(f, job, PIN_BEST, mine);
    pin(f, other, PIN_BEST, foreign);
    pin(f, job, PIN_BEST, next);
    pin(f, job, PIN_IN_USE, next);
    pin(f, job, PIN_BEST, foreign); /* not this job's: then nobody has it */
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoints WHERE best"), 1);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoints WHERE in_use"), 1);
}

static void a_pin_does_not_keep_what_is_not_valid(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), bad = save(f, job, 1, 0);
    assert_int_equal(
        add(f, &(EvaluationRecord){.job = job, .round = 1, .checkpoint = bad, .best = true}), 0);
    fixture_sql(f, "UPDATE checkpoint_chunks SET data = x'00'");
    assert_int_equal(fixture_list(f, job, true).id, 0); /* marks it */
    assert_false(load(f, job, 0, 10).rows[0].kept);
    save(f, job, 2, 1);
    assert_false(is_there(f, bad));
}

static void a_restore_deletes_later_ones_pinned_or_not(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    uint64_t first = save(f, job, 1, 0), later = save(f, job, 2, 0);
    pin(f, job, PIN_BEST, later);
    rewind_to(f, job, 1, true, first);
    assert_true(is_there(f, first));
    assert_false(is_there(f, later));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_evaluation_comes_back_as_it_was),
        TEST(what_is_not_a_number_comes_back_as_such),
        TEST(rows_come_by_round_and_in_pages),
        TEST(a_round_evaluated_again_takes_the_place_of_the_first),
        TEST(an_evaluation_of_no_job_is_refused),
        TEST(a_rewind_takes_later_evaluations_along),
        TEST(pruning_leaves_the_best_and_does_not_count_it),
        TEST(a_better_one_sets_the_last_best_free),
        TEST(one_in_use_stays_from_the_moment_it_is_saved),
        TEST(a_pin_is_one_a_job),
        TEST(a_pin_does_not_keep_what_is_not_valid),
        TEST(a_restore_deletes_later_ones_pinned_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
