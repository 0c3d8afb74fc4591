/* Opening and closing: whose database it is, which version, who has it, what is wrong with it. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "store/db.h"
#include "store/schema.h"

static void a_new_database_is_set_up(void **state)
{
    Fixture *f = *state;
    assert_int_equal(fixture_sql_number(f, "PRAGMA auto_vacuum"), 2);
    assert_int_equal(fixture_sql_number(f, "PRAGMA user_version"), 1);
    assert_int_equal(fixture_sql_number(f, "PRAGMA application_id"), 0x64707364);
    assert_int_equal(fixture_sql_number(f, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"),
                     1);
    fixture_stop(f);
    assert_int_equal(fixture_file_size(f, "-wal"), 0); /* a clean end leaves no log */
}

static void a_second_dpsd_is_refused_and_told_who(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    Error err = {0};
    assert_int_equal(fixture_try_open(f, &err), -EBUSY);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    assert_non_null(strstr(err.message, pid));
    assert_non_null(strstr(err.message, f->dir));
    assert_int_equal(fixture_save(f, job, 1, 1, 100, 0).r, 0); /* the first one is unharmed */
    fixture_stop(f);
    assert_int_equal(fixture_try_open(f, &err), 0);
}

static void a_killed_dpsd_leaves_no_lock(void **state)
{
    (void)state;
    Fixture f;
    fixture_new(&f);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process */
        fixture_start(&f);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    Error err = {0};
    assert_int_equal(fixture_try_open(&f, &err), -EBUSY);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %ld", (long)child);
    assert_non_null(strstr(err.message, pid));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(fixture_try_open(&f, &err), 0);
    fixture_free(&f);
}

static void an_administrator_can_read_meanwhile(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    fixture_save(f, job, 1, 2, 1000, 0);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoints"), 1);
    assert_int_equal(fixture_save(f, job, 2, 2, 1000, 0).r, 0);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoints"), 2);
}

/* ---- other versions -------------------------------------------------------------------------- */

static void check_untouched(Fixture *f, int expected, const char *says)
{
    size_t before_size, after_size;
    char *before = fixture_file(f, &before_size);
    Error err = {0};
    int r = fixture_try_open(f, &err);
    if (r != expected || !strstr(err.message, says) || !strstr(err.message, "dps.db"))
        fail_msg("got %d: %s", r, err.message);
    char *after = fixture_file(f, &after_size);
    assert_int_equal(before_size, after_size);
    assert_memory_equal(before, after, before_size);
    free(before);
    free(after);
}

static void a_newer_database_is_left_as_it_is(void **state)
{
    Fixture *f = *state;
    fixture_job(f);
    fixture_stop(f);
    fixture_sql(f, "PRAGMA user_version = 2; CREATE TABLE unheard_of (x)");
    check_untouched(f, -EPROTO, "version 2");
    fixture_sql(f, "DROP TABLE unheard_of; PRAGMA user_version = 1");
    fixture_start(f);
}

/* As after a kill: what the newer one wrote last is still in its log. */
static void a_newer_databases_log_is_left_as_well(void **state)
{
    Fixture *f = *state;
    fixture_job(f);
    fixture_sql(f, "PRAGMA user_version = 9"); /* beside the running store: goes into the log */
    size_t size;
    char path[128], copy[160];
    snprintf(path, sizeof path, "%s/dps.db-wal", f->dir);
    snprintf(copy, sizeof copy, "%s.kept", path);
    int64_t wal = fixture_file_size(f, "-wal");
    assert_true(wal > 0);
    assert_int_equal(link(path, copy), 0);
    char *before = fixture_file(f, &size);
    fixture_stop(f); /* moves the log into the file: put both back */
    fixture_write_file(f, before, size);
    free(before);
    if (fixture_file_size(f, "-wal") == 0)
        assert_int_equal(rename(copy, path), 0);
    assert_int_equal(fixture_file_size(f, "-wal"), wal);
    check_untouched(f, -EPROTO, "version 9");
    assert_int_equal(fixture_file_size(f, "-wal"), wal);
}

static void another_programs_database_is_refused(void **state)
{
    (void)state;
    Fixture f;
    fixture_new(&f);
    fixture_sql(&f, "CREATE TABLE mails (x); INSERT INTO mails VALUES (1)");
    check_untouched(&f, -EBADMSG, "another program's");
    fixture_free(&f);
}

static const Migration two[] = {
    {"PRAGMA application_id = 0x64707364; CREATE TABLE a (x); INSERT INTO a VALUES (5)"},
    {"CREATE TABLE b (y); INSERT INTO b SELECT 2 * x FROM a; DROP TABLE a"},
};
static const Migration broken[] = {
    {"PRAGMA application_id = 0x64707364; CREATE TABLE a (x); INSERT INTO a VALUES (5)"},
    {"CREATE TABLE b (y); INSERT INTO b SELECT 2 * x FROM a; DROP TABLE no_such_table"},
};

/* A database as an older dps left it: version 1 of the table above. */
static Db *open_older(Fixture *f)
{
    fixture_new(f);
    fixture_sql(f, "PRAGMA user_version = 0");
    fixture_sql(f, two[0].sql);
    fixture_sql(f, "PRAGMA user_version = 1");
    Db *db = NULL;
    Error err = {0};
    /* db_open would look for the real tables: open one of those and swap the tables */
    fixture_sql(f, "CREATE TABLE jobs (x); CREATE TABLE events (x); CREATE TABLE settings (x);"
                   "CREATE TABLE checkpoints (x); CREATE TABLE checkpoint_parts (x);"
                   "CREATE TABLE rounds (x)");
    assert_int_equal(db_open(f->dir, &db, &err), 0);
    return db;
}

static void an_older_database_is_brought_forward(void **state)
{
    (void)state;
    Fixture f;
    Error err = {0};
    Db *db = open_older(&f);
    assert_int_equal(schema_migrate_by(db, two, 2, &err), 0);
    assert_int_equal(schema_migrate_by(db, two, 2, &err), 0); /* nothing left to do */
    int64_t y, version;
    assert_int_equal(db_number(db, "SELECT y FROM b", &y, &err), 0);
    assert_int_equal(db_number(db, "PRAGMA user_version", &version, &err), 0);
    assert_int_equal(y, 10);
    assert_int_equal(version, 2);
    assert_int_equal(schema_migrate_by(db, two, 1, &err), -EPROTO);
    db_close(db);
    assert_int_equal(fixture_try_open(&f, &err), -EPROTO);
    fixture_free(&f);
}

static void a_migration_that_fails_changes_nothing(void **state)
{
    (void)state;
    Fixture f;
    Error err = {0};
    Db *db = open_older(&f);
    assert_true(schema_migrate_by(db, broken, 2, &err) < 0);
    assert_non_null(strstr(err.message, "from version 1 to 2"));
    int64_t x, version, tables;
    assert_int_equal(db_number(db, "SELECT x FROM a", &x, &err), 0);
    assert_int_equal(db_number(db, "PRAGMA user_version", &version, &err), 0);
    assert_int_equal(
        db_number(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'b'", &tables, &err), 0);
    assert_int_equal(x, 5);
    assert_int_equal(version, 1);
    assert_int_equal(tables, 0);
    assert_int_equal(schema_migrate_by(db, two, 2, &err), 0); /* the repaired one goes through */
    db_close(db);
    fixture_free(&f);
}

/* ---- damage and permissions ------------------------------------------------------------------ */

static void garbage_is_refused_and_kept(void **state)
{
    (void)state;
    Fixture f;
    fixture_new(&f);
    char garbage[8192];
    fixture_fill((uint8_t *)garbage, sizeof garbage, 5);
    fixture_write_file(&f, garbage, sizeof garbage);
    check_untouched(&f, -EBADMSG, "move it away");
    fixture_write_file(&f, garbage, 10);
    check_untouched(&f, -EBADMSG, "move it away");
    fixture_free(&f);
}

static void a_damaged_table_is_found_at_once(void **state)
{
    Fixture *f = *state;
    for (int i = 0; i < 50; i++)
        fixture_job(f);
    int64_t page = fixture_sql_number(f, "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'");
    fixture_stop(f);
    size_t size;
    char *file = fixture_file(f, &size);
    memset(file + (page - 1) * 16384, 0x5a, 64);
    fixture_write_file(f, file, size);
    free(file);
    Error err = {0};
    assert_int_equal(fixture_try_open(f, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "dps.db"));
    assert_non_null(strstr(err.message, "move the file away"));
}

static void an_empty_file_is_a_new_database(void **state)
{
    (void)state;
    Fixture f;
    fixture_new(&f);
    fixture_write_file(&f, "", 0);
    fixture_start(&f);
    fixture_job(&f);
    fixture_free(&f);
}

static void a_directory_that_is_not_there_is_named(void **state)
{
    (void)state;
    Error err = {0};
    Store *store = NULL;
    Mailbox *loop = NULL;
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(store_open("/nonexistent/dps", loop, &store, &err), -ENOENT);
    assert_non_null(strstr(err.message, "/nonexistent/dps"));
    assert_null(store_close(NULL));
    mailbox_free(loop);
}

/* Whether this test may have file systems of its own; a child with other rights is a child, so
 * that this process keeps its own. */
static void run_in_child(Fixture *f, int (*body)(Fixture *f))
{
    pid_t child = fork();
    if (child == 0)
        _exit(body(f));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this needs root and mount\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int report(int r, int expected, const Error *err)
{
    if (r == expected && strstr(err->message, "dps"))
        return 0;
    fprintf(stderr, "got %d (%s), expected %d\n", r, err->message, expected);
    return 1;
}

static int open_as_nobody(Fixture *f)
{
    Error err = {0};
    if (geteuid() != 0 || setresuid(65534, 65534, 65534) < 0)
        return 77;
    return report(fixture_try_open(f, &err), -EACCES, &err);
}

static void without_permission_it_says_so(void **state)
{
    Fixture *f = *state;
    fixture_stop(f);
    run_in_child(f, open_as_nobody);
}

/* The mount is seen by this child only and goes with it. */
static int open_read_only(Fixture *f)
{
    Error err = {0};
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(f->dir, f->dir, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, f->dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
        return 77;
    return report(fixture_try_open(f, &err), -EROFS, &err);
}

static void a_read_only_directory_is_named(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    fixture_save(f, job, 1, 2, 1000, 0);
    fixture_stop(f);
    run_in_child(f, open_read_only);
    fixture_start(f);
    assert_int_equal(fixture_load(f, job, 0).r, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_database_is_set_up, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_second_dpsd_is_refused_and_told_who, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(a_killed_dpsd_leaves_no_lock),
        cmocka_unit_test_setup_teardown(an_administrator_can_read_meanwhile, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_newer_database_is_left_as_it_is, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_newer_databases_log_is_left_as_well, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(another_programs_database_is_refused),
        cmocka_unit_test(an_older_database_is_brought_forward),
        cmocka_unit_test(a_migration_that_fails_changes_nothing),
        cmocka_unit_test(garbage_is_refused_and_kept),
        cmocka_unit_test_setup_teardown(a_damaged_table_is_found_at_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(an_empty_file_is_a_new_database),
        cmocka_unit_test(a_directory_that_is_not_there_is_named),
        cmocka_unit_test_setup_teardown(without_permission_it_says_so, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_read_only_directory_is_named, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store open", tests, NULL, NULL);
}
