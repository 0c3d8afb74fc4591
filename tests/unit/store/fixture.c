#include "fixture.h"

#include <ftw.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

/* ---- the directory and the store ------------------------------------------------------------- */

void fixture_new(Fixture *f)
{
    memset(f, 0, sizeof *f);
    /* In memory where there is such a place: fsync is called, and costs nothing. */
    snprintf(f->dir, sizeof f->dir, "%s/dps-test-store-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(mailbox_new(&f->loop), 0);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

void fixture_free(Fixture *f)
{
    fixture_stop(f);
    f->loop = mailbox_free(f->loop);
    nftw(f->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

void fixture_start(Fixture *f)
{
    Error err = {0};
    int r = store_open(f->dir, f->loop, &f->store, &err);
    if (r < 0)
        fail_msg("store_open: %d %s", r, err.message);
}

static void run_tasks(Fixture *f)
{
    Task *task;
    mailbox_clear_fd(f->loop);
    while ((task = mailbox_take(f->loop)))
        task->done(task);
}

void fixture_stop(Fixture *f)
{
    f->store = store_close(f->store);
    run_tasks(f);
}

int fixture_try_open(const Fixture *f, Error *err)
{
    Store *store = NULL;
    int r = store_open(f->dir, f->loop, &store, err);
    if (r < 0)
        assert_null(store);
    store_close(store);
    return r;
}

void fixture_drain(Fixture *f)
{
    struct pollfd ready = {.fd = mailbox_fd(f->loop), .events = POLLIN};
    while (store_pending(f->store) > 0) {
        if (poll(&ready, 1, 60000) != 1)
            fail_msg("the store does not answer");
        run_tasks(f);
    }
}

int fixture_setup(void **state)
{
    Fixture *f = malloc(sizeof *f);
    if (!f)
        return -1;
    log_set_level(LOG_CRIT); /* the warnings that the tests provoke */
    fixture_new(f);
    fixture_start(f);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    fixture_free(*state);
    free(*state);
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

void answer_id(void *data, int r, const Error *err, uint64_t id)
{
    Answer *answer = data;
    answer->called++;
    answer->r = r;
    answer->id = id;
    snprintf(answer->message, sizeof answer->message, "%s", err ? err->message : "");
}

void answer_done(void *data, int r, const Error *err)
{
    answer_id(data, r, err, 0);
}

uint64_t fixture_job(Fixture *f)
{
    Answer answer = {0};
    JobRecord job = {.name = "job", .spec = "{}", .owner = "uid=0 (root)", .created_ms = 1};
    assert_int_equal(store_job_insert(f->store, &job, answer_id, &answer), 0);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
    return answer.id;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

void fixture_fill(uint8_t *data, size_t bytes, uint64_t seed)
{
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (uint8_t)(x >> 32);
    }
}

static uint64_t part_seed(uint64_t round, size_t i, size_t n)
{
    return round * 1000 + (i + 1 == n ? 0 : i);
}

static void make_meta(char *meta, size_t size, uint64_t round)
{
    snprintf(meta, size, "{\"round\":%llu}", (unsigned long long)round);
}

Answer fixture_save(Fixture *f, uint64_t job, uint64_t round, size_t n, size_t bytes, unsigned keep)
{
    uint8_t *data = malloc(n * bytes + 1);
    CheckpointPart *parts = calloc(n + 1, sizeof *parts);
    assert_true(data && parts);
    for (size_t i = 0; i < n; i++) {
        snprintf(parts[i].name, sizeof parts[i].name, "rank%zu/params", i);
        parts[i].data = data + i * bytes;
        parts[i].bytes = bytes;
        fixture_fill(data + i * bytes, bytes, part_seed(round, i, n));
    }
    char meta[64];
    make_meta(meta, sizeof meta, round);
    CheckpointRecord record = {
        .job = job, .round = round, .step = round * 25, .created_ms = 7, .meta = meta};
    Answer answer = {0};
    answer.r = store_checkpoint_save(f->store, &record, parts, n, keep, answer_id, &answer);
    memset(meta, 'x', sizeof meta - 1); /* the store has its own copy */
    memset(parts, 0xff, n * sizeof *parts);
    fixture_drain(f);
    free(parts);
    free(data);
    return answer;
}

static void compare_part(const CheckpointPart *part, uint64_t round, size_t i, size_t n)
{
    char name[48];
    snprintf(name, sizeof name, "rank%zu/params", i);
    assert_string_equal(part->name, name);
    uint8_t *expected = malloc(part->bytes + 1);
    assert_non_null(expected);
    fixture_fill(expected, part->bytes, part_seed(round, i, n));
    assert_memory_equal(part->data, expected, part->bytes);
    free(expected);
}

static void loaded(void *data, int r, const Error *err, const CheckpointRecord *checkpoint,
                   const CheckpointPart *parts, size_t n)
{
    Answer *answer = data;
    answer_id(answer, r, err, checkpoint ? checkpoint->id : 0);
    answer->n = n;
    assert_true((r < 0) == !checkpoint);
    if (!checkpoint)
        return;
    char meta[64];
    make_meta(meta, sizeof meta, checkpoint->round);
    assert_string_equal(checkpoint->meta, meta);
    assert_int_equal(checkpoint->step, checkpoint->round * 25);
    assert_true(checkpoint->valid);
    for (size_t i = 0; i < n; i++)
        compare_part(&parts[i], checkpoint->round, i, n);
}

Answer fixture_load(Fixture *f, uint64_t job, uint64_t id)
{
    Answer answer = {0};
    answer.r = store_checkpoint_load(f->store, job, id, loaded, &answer);
    fixture_drain(f);
    return answer;
}

static void listed(void *data, int r, const Error *err, const CheckpointRecord *checkpoints,
                   size_t n)
{
    Answer *answer = data;
    answer_id(answer, r, err, 0);
    answer->n = n;
    for (size_t i = 0; i < n; i++) {
        answer->id += checkpoints[i].valid;
        if (i > 0)
            assert_true(checkpoints[i].id < checkpoints[i - 1].id);
        if (checkpoints[i].valid)
            assert_null(checkpoints[i].problem);
        else
            assert_true(strlen(checkpoints[i].problem) > 0);
    }
}

Answer fixture_list(Fixture *f, uint64_t job, bool verify)
{
    Answer answer = {0};
    answer.r = store_checkpoints_list(f->store, job, verify, listed, &answer);
    fixture_drain(f);
    return answer;
}

typedef struct Count {
    const char *kind;
    size_t n;
} Count;

static void count_events(void *data, int r, const Error *err, const EventRecord *events, size_t n)
{
    (void)err;
    Count *count = data;
    assert_int_equal(r, 0);
    for (size_t i = 0; i < n; i++)
        count->n += strcmp(events[i].kind, count->kind) == 0;
}

size_t fixture_count_events(Fixture *f, uint64_t job, const char *kind)
{
    Count count = {.kind = kind};
    assert_int_equal(store_events_load(f->store, job, 0, 10000, count_events, &count), 0);
    fixture_drain(f);
    return count.n;
}

/* ---- the files ------------------------------------------------------------------------------- */

static void make_path(const Fixture *f, const char *suffix, char *path, size_t size)
{
    snprintf(path, size, "%s/dps.db%s", f->dir, suffix);
}

static sqlite3 *connect_by_hand(const Fixture *f)
{
    char path[128];
    make_path(f, "", path, sizeof path);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    return db;
}

void fixture_sql(const Fixture *f, const char *sql)
{
    sqlite3 *db = connect_by_hand(f);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", sql, message);
    sqlite3_close(db);
}

int64_t fixture_sql_number(const Fixture *f, const char *sql)
{
    sqlite3 *db = connect_by_hand(f);
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return number;
}

int64_t fixture_file_size(const Fixture *f, const char *suffix)
{
    char path[128];
    make_path(f, suffix, path, sizeof path);
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

char *fixture_file(const Fixture *f, size_t *ret_size)
{
    char path[128];
    make_path(f, "", path, sizeof path);
    size_t size = (size_t)fixture_file_size(f, "");
    char *data = malloc(size + 1);
    FILE *file = fopen(path, "re");
    assert_true(data && file);
    assert_int_equal(fread(data, 1, size, file), size);
    fclose(file);
    *ret_size = size;
    return data;
}

void fixture_write_file(const Fixture *f, const void *data, size_t size)
{
    char path[128];
    make_path(f, "", path, sizeof path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}
