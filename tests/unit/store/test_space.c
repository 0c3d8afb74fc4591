/* The files stay as large as what is kept, and shrink when less is. */
#include <sqlite3.h>
#include <stdio.h>

#include "fixture.h"

enum { PART = 1 << 20, SLACK = 3 << 20 };

/* fixture_save with 3 parts stores 2 of them. */
static int64_t size_of(int checkpoints)
{
    return (int64_t)checkpoints * 2 * PART;
}

static void fifty_checkpoints_take_the_space_of_three(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    int64_t largest = 0;
    for (uint64_t round = 1; round <= 50; round++) {
        assert_int_equal(fixture_save(f, job, round, 3, PART, 3).r, 0);
        int64_t size = fixture_file_size(f, "");
        largest = size > largest ? size : largest;
        assert_int_equal(fixture_file_size(f, "-wal"), 0);
    }
    print_message("50 checkpoints of %d bytes, 3 kept: the file was at most %lld bytes\n", 2 * PART,
                  (long long)largest);
    assert_true(largest < size_of(3) + SLACK);
    assert_int_equal(fixture_list(f, job, true).id, 3);
}

static void keeping_less_shrinks_the_file(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    for (uint64_t round = 1; round <= 12; round++)
        assert_int_equal(fixture_save(f, job, round, 3, PART, 0).r, 0);
    assert_true(fixture_file_size(f, "") >= size_of(12));
    assert_int_equal(fixture_save(f, job, 13, 3, PART, 2).r, 0);
    assert_true(fixture_file_size(f, "") < size_of(2) + SLACK);
    assert_int_equal(fixture_list(f, job, true).id, 2);
    assert_int_equal(fixture_load(f, job, 0).r, 0);
}

static void smaller_checkpoints_shrink_the_file(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    for (uint64_t round = 1; round <= 3; round++)
        assert_int_equal(fixture_save(f, job, round, 3, 4 * PART, 2).r, 0);
    for (uint64_t round = 4; round <= 6; round++)
        assert_int_equal(fixture_save(f, job, round, 3, PART / 4, 2).r, 0);
    assert_true(fixture_file_size(f, "") < size_of(1) + SLACK);
}

static void rewinding_shrinks_the_file(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    for (uint64_t round = 1; round <= 8; round++)
        assert_int_equal(fixture_save(f, job, round, 3, PART, 0).r, 0);
    Answer answer = {0};
    store_job_rewind(f->store, job, 1, NULL, 0, true, 1, answer_done, &answer);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
    assert_true(fixture_file_size(f, "") < size_of(1) + SLACK);
    assert_int_equal(fixture_load(f, job, 0).id, 1);
}

/* Whoever reads for long holds the log's space up, and nothing else. */
static void a_long_reader_delays_the_space_only(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    char path[128];
    snprintf(path, sizeof path, "%s/dps.db", f->dir);
    sqlite3 *reader = NULL;
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM jobs", NULL, NULL, NULL),
                     SQLITE_OK);
    for (uint64_t round = 1; round <= 5; round++)
        assert_int_equal(fixture_save(f, job, round, 3, PART, 2).r, 0);
    assert_true(fixture_file_size(f, "-wal") > 0);
    assert_int_equal(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(reader);
    assert_int_equal(fixture_save(f, job, 6, 3, PART, 2).r, 0);
    assert_int_equal(fixture_file_size(f, "-wal"), 0);
    assert_true(fixture_file_size(f, "") < size_of(2) + SLACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fifty_checkpoints_take_the_space_of_three, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(keeping_less_shrinks_the_file, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(smaller_checkpoints_shrink_the_file, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(rewinding_shrinks_the_file, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_long_reader_delays_the_space_only, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store space", tests, NULL, NULL);
}
