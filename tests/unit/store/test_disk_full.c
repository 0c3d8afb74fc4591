/* A disk that is really full: a small tmpfs, mounted where this process alone sees it. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fixture.h"

enum { PART = 1 << 20 };

/* 0, or -1 where this needs rights that the test does not have. */
static int mount_small(const Fixture *f)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return mount("tmpfs", f->dir, "tmpfs", 0, "size=16m");
}

static int setup(void **state)
{
    Fixture *f = malloc(sizeof *f);
    if (!f)
        return -1;
    fixture_new(f);
    if (mount_small(f) < 0) {
        fixture_free(f);
        free(f);
        f = NULL;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    if (!f)
        return 0;
    fixture_stop(f);
    umount(f->dir);
    fixture_free(f);
    free(f);
    return 0;
}

static Fixture *need_mount(void **state)
{
    if (!*state) {
        print_message("skipped: a small file system needs root and mount\n");
        skip();
        abort(); /* skip() does not come back */
    }
    return *state;
}

static size_t free_bytes(const Fixture *f)
{
    struct statvfs st;
    assert_int_equal(statvfs(f->dir, &st), 0);
    return st.f_bavail * st.f_bsize;
}

/* Another program's file takes all but `leave` bytes. */
static void fill_disk(const Fixture *f, size_t leave)
{
    char path[128];
    static const char block[4096];
    snprintf(path, sizeof path, "%s/filler", f->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (free_bytes(f) > leave)
        if (write(fd, block, sizeof block) <= 0)
            break;
    close(fd);
}

static void empty_disk(const Fixture *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/filler", f->dir);
    assert_int_equal(unlink(path), 0);
}

static void check_sentence(const Fixture *f, const char *message)
{
    assert_non_null(strstr(message, "cannot save the checkpoint"));
    assert_non_null(strstr(message, f->dir));
    assert_non_null(strstr(message, "no space left"));
    assert_non_null(strstr(message, "tries again"));
}

static void a_full_disk_is_survived_and_recovered_from(void **state)
{
    Fixture *f = need_mount(state);
    fixture_start(f);
    uint64_t job = fixture_job(f);
    assert_int_equal(fixture_save(f, job, 1, 3, PART, 2).r, 0);
    fill_disk(f, PART);
    for (uint64_t round = 2; round < 5; round++) {
        Answer full = fixture_save(f, job, round, 3, PART, 2);
        assert_int_equal(full.r, -ENOSPC);
        check_sentence(f, full.message);
        assert_int_equal(fixture_load(f, job, 0).id, 1);
        assert_true(free_bytes(f) >= PART / 2); /* what was written in vain is given back */
    }
    Answer row = {0}; /* what needs little goes on */
    store_rounds_add(f->store, &(RoundRecord){.job = job}, 1, answer_done, &row);
    fixture_drain(f);
    assert_int_equal(row.r, 0);
    empty_disk(f);
    Answer again = fixture_save(f, job, 5, 3, PART, 2);
    assert_int_equal(again.r, 0);
    assert_int_equal(fixture_load(f, job, 0).id, again.id);
    assert_int_equal(fixture_list(f, job, true).id, 2);
}

static void with_nothing_left_at_all_each_call_says_so(void **state)
{
    Fixture *f = need_mount(state);
    fixture_start(f);
    uint64_t job = fixture_job(f);
    assert_int_equal(fixture_save(f, job, 1, 3, PART, 2).r, 0);
    fill_disk(f, 0);
    int refused = 0;
    for (uint64_t i = 0; i < 300; i++) {
        Answer row = {0};
        store_rounds_add(f->store, &(RoundRecord){.job = job, .round = i}, 1, answer_done, &row);
        fixture_drain(f);
        assert_true(row.r == 0 || row.r == -ENOSPC);
        refused += row.r < 0;
    }
    assert_true(refused > 0);
    assert_int_equal(fixture_save(f, job, 2, 3, PART, 2).r, -ENOSPC);
    assert_int_equal(fixture_load(f, job, 0).id, 1);
    empty_disk(f);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM rounds"), 300 - refused);
    assert_int_equal(fixture_save(f, job, 3, 3, PART, 2).r, 0);
}

static void closing_on_a_full_disk_loses_nothing(void **state)
{
    Fixture *f = need_mount(state);
    fixture_start(f);
    uint64_t job = fixture_job(f);
    assert_int_equal(fixture_save(f, job, 1, 3, PART, 2).r, 0);
    fill_disk(f, 0);
    assert_int_equal(fixture_save(f, job, 2, 3, PART, 2).r, -ENOSPC);
    fixture_stop(f);
    Error err = {0};
    int r = fixture_try_open(f, &err); /* whether there is room for the log's index differs */
    assert_true(r == 0 || r == -ENOSPC);
    empty_disk(f);
    fixture_start(f);
    assert_int_equal(fixture_load(f, job, 0).id, 1);
}

static void a_new_database_on_a_full_disk_is_refused(void **state)
{
    Fixture *f = need_mount(state);
    fill_disk(f, 0);
    Error err = {0};
    assert_int_equal(fixture_try_open(f, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "dps.db"));
    empty_disk(f);
    fixture_start(f); /* what the first try left is no hindrance */
    fixture_job(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_is_survived_and_recovered_from, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(with_nothing_left_at_all_each_call_says_so, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(closing_on_a_full_disk_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_database_on_a_full_disk_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("store disk full", tests, NULL, NULL);
}
