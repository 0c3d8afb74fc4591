/* Reads, writes, syncs that fail, each in turn: the call says why, nothing saved is lost, and the
 * same store works again when the disk does. */
#include <stdio.h>
#include <string.h>

#include "fault_vfs.h"
#include "fixture.h"

enum { PART = 200000, TRIES_MAX = 400 };

static Answer add_row(Fixture *f, uint64_t job, uint64_t round)
{
    Answer answer = {0};
    RoundRecord row = {.job = job, .round = round};
    assert_int_equal(store_rounds_add(f->store, &row, 1, answer_done, &answer), 0);
    fixture_drain(f);
    return answer;
}

/* Fails operation 1, 1 + stride, … of a save until one goes through untouched. After each failure
 * the checkpoint before is there, whole, and the next save succeeds. */
static void fail_in_turn(Fixture *f, FaultOn on, int code, int expected, int stride)
{
    uint64_t job = fixture_job(f), round = 1, refused = 0;
    assert_int_equal(fixture_save(f, job, round, 3, PART, 2).r, 0);
    for (int n = 1; n < TRIES_MAX; n += stride) {
        uint64_t before = fixture_load(f, job, 0).id;
        fault_vfs_set(on, n, code, 1);
        Answer saved = fixture_save(f, job, ++round, 3, PART, 2);
        int failed = fault_vfs_failed();
        fault_vfs_set(FAULT_NONE, 0, 0, 0);
        if (saved.r < 0) {
            refused++;
            assert_int_equal(saved.r, expected);
            assert_non_null(strstr(saved.message, "cannot save the checkpoint"));
            assert_non_null(strstr(saved.message, "dps.db"));
            assert_int_equal(fixture_load(f, job, 0).id, before);
        } else {
            assert_int_equal(fixture_load(f, job, 0).id, saved.id);
        }
        Answer again = fixture_save(f, job, ++round, 3, PART, 2);
        assert_int_equal(again.r, 0);
        Answer listed = fixture_list(f, job, true);
        assert_int_equal(listed.id, 2);
        if (!failed) {
            print_message("%llu saves refused\n", (unsigned long long)refused);
            assert_true(refused > 0);
            return;
        }
    }
    fail_msg("a save never ends");
}

static void a_failed_write_loses_nothing(void **state)
{
    fail_in_turn(*state, FAULT_WRITE, EIO, -EIO, 1);
}

static void a_full_disk_loses_nothing(void **state)
{
    fail_in_turn(*state, FAULT_WRITE, ENOSPC, -ENOSPC, 3);
}

static void an_exceeded_quota_is_a_full_disk(void **state)
{
    fail_in_turn(*state, FAULT_WRITE, EDQUOT, -ENOSPC, 7);
}

static void a_file_system_gone_read_only_loses_nothing(void **state)
{
    fail_in_turn(*state, FAULT_WRITE, EROFS, -EROFS, 7);
}

static void a_failed_sync_loses_nothing(void **state)
{
    fail_in_turn(*state, FAULT_SYNC, EIO, -EIO, 1);
}

static void a_failed_small_write_is_reported(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    assert_int_equal(add_row(f, job, 1).r, 0);
    fault_vfs_set(FAULT_WRITE, 1, ENOSPC, 1);
    Answer full = add_row(f, job, 2);
    assert_int_equal(full.r, -ENOSPC);
    assert_non_null(strstr(full.message, "no space left"));
    assert_int_equal(store_rounds_add(f->store, &(RoundRecord){.job = job}, 1, NULL, NULL), 0);
    fixture_drain(f); /* nobody is told but the log */
    fault_vfs_set(FAULT_NONE, 0, 0, 0);
    assert_int_equal(add_row(f, job, 2).r, 0);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM rounds"), 2);
}

/* A sector that cannot be read: the checkpoint before is used, and this one is not condemned. */
static void an_unreadable_checkpoint_is_passed_over_not_marked(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    assert_int_equal(fixture_save(f, job, 1, 3, 20 * PART, 0).r, 0);
    assert_int_equal(fixture_save(f, job, 2, 3, 20 * PART, 0).r, 0);
    int passed_over = 0;
    for (int n = 1; n < TRIES_MAX; n += 17) {
        fixture_stop(f); /* an empty cache */
        fixture_start(f);
        fault_vfs_set(FAULT_READ, n, EIO, 0);
        Answer loaded = fixture_load(f, job, 0);
        int failed = fault_vfs_failed();
        fault_vfs_set(FAULT_NONE, 0, 0, 0);
        assert_true(loaded.r == 0 || loaded.r == -EIO);
        passed_over += failed && loaded.r == 0 && loaded.id == 1;
        assert_int_equal(fixture_load(f, job, 0).id, 2);
    }
    assert_true(passed_over > 0);
    assert_int_equal(fixture_count_events(f, job, "checkpoint-invalid"), 0);
    fixture_stop(f);
    fixture_start(f);
    fault_vfs_set(FAULT_READ, 1, EIO, 1); /* and where none can be read it is not "none" */
    assert_int_equal(fixture_load(f, job, 0).r, -EIO);
    fault_vfs_set(FAULT_NONE, 0, 0, 0);
}

/* A store that cannot be opened says so, and opens when the disk is well again. */
static void fail_opening(Fixture *f, FaultOn on, int code, int expected)
{
    uint64_t job = fixture_job(f);
    assert_int_equal(fixture_save(f, job, 1, 2, PART, 0).r, 0);
    for (int fresh = 0; fresh < 2; fresh++) {
        for (int n = 1; n < TRIES_MAX; n++) {
            Fixture other;
            fixture_new(&other);
            const Fixture *which = fresh ? &other : f;
            fixture_stop(f);
            Error err = {0};
            fault_vfs_set(on, n, code, 1);
            int r = fixture_try_open(which, &err);
            int failed = fault_vfs_failed();
            fault_vfs_set(FAULT_NONE, 0, 0, 0);
            if (r < 0 && (r != expected || !strstr(err.message, "dps.db")))
                fail_msg("operation %d: %d %s", n, r, err.message);
            assert_int_equal(fixture_try_open(which, &err), 0);
            fixture_start(f);
            assert_int_equal(fixture_load(f, job, 0).id, 1);
            fixture_free(&other);
            if (!failed)
                break;
        }
    }
}

static void opening_reports_a_failed_read(void **state)
{
    fail_opening(*state, FAULT_READ, EIO, -EIO);
}

static void opening_reports_a_full_disk(void **state)
{
    fail_opening(*state, FAULT_WRITE, ENOSPC, -ENOSPC);
}

static void opening_reports_a_failed_sync(void **state)
{
    fail_opening(*state, FAULT_SYNC, EIO, -EIO);
}

static void space_that_cannot_be_given_back_waits(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    fault_vfs_set(FAULT_TRUNCATE, 1, EIO, 1);
    for (uint64_t round = 1; round <= 5; round++)
        assert_int_equal(fixture_save(f, job, round, 3, PART, 2).r, 0);
    fault_vfs_set(FAULT_NONE, 0, 0, 0);
    assert_int_equal(fixture_save(f, job, 6, 3, PART, 2).r, 0);
    assert_int_equal(fixture_file_size(f, "-wal"), 0);
    assert_int_equal(fixture_list(f, job, true).id, 2);
}

int main(void)
{
    if (fault_vfs_install() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failed_write_loses_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_exceeded_quota_is_a_full_disk, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_file_system_gone_read_only_loses_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_failed_sync_loses_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_failed_small_write_is_reported, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_unreadable_checkpoint_is_passed_over_not_marked,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(opening_reports_a_failed_read, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(opening_reports_a_full_disk, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(opening_reports_a_failed_sync, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(space_that_cannot_be_given_back_waits, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store I/O faults", tests, NULL, NULL);
}
