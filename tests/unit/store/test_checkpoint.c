/* Checkpoints: saved, loaded, shared, listed, pruned; damage is found, named and passed over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { LARGE = (4 << 20) + 12345 }; /* more than one chunk */

static void a_checkpoint_comes_back_bit_for_bit(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    Answer saved = fixture_save(f, job, 3, 3, LARGE, 0);
    assert_int_equal(saved.r, 0);
    assert_true(saved.id > 0);
    fixture_stop(f);
    fixture_start(f);
    Answer latest = fixture_load(f, job, 0), by_id = fixture_load(f, job, saved.id);
    assert_int_equal(latest.r, 0);
    assert_int_equal(latest.id, saved.id);
    assert_int_equal(latest.n, 3);
    assert_int_equal(by_id.r, 0);
    assert_int_equal(fixture_list(f, job, true).id, 1);
}

static void sizes_around_a_chunk_come_back(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    static const size_t sizes[] = {0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 8 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(fixture_save(f, job, i, 1, sizes[i], 1).r, 0);
        Answer latest = fixture_load(f, job, 0);
        assert_int_equal(latest.r, 0);
        assert_int_equal(latest.n, 1);
    }
    assert_int_equal(fixture_save(f, job, 9, 0, 0, 1).r, 0); /* no parts at all */
    assert_int_equal(fixture_load(f, job, 0).n, 0);
}

static void equal_parts_are_stored_once(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    uint8_t data[2][1000];
    memset(data, 7, sizeof data);
    CheckpointPart parts[8];
    for (int i = 0; i < 8; i++) {
        parts[i] = (CheckpointPart){.data = data[i % 2], .bytes = 1000};
        snprintf(parts[i].name, sizeof parts[i].name, "rank%d/params", i);
    }
    Answer answer = {0};
    CheckpointRecord record = {.job = job};
    assert_int_equal(store_checkpoint_save(f->store, &record, parts, 8, 0, answer_id, &answer), 0);
    fixture_drain(f);
    assert_int_equal(answer.r, 0);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoint_chunks"), 1);
    assert_int_equal(fixture_sql_number(f, "SELECT bytes FROM checkpoints"), 1000);
    assert_int_equal(fixture_list(f, job, true).id, 1);
}

static void a_bad_list_of_parts_is_refused_whole(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    CheckpointPart twice[2] = {{.name = "a"}, {.name = "a"}};
    CheckpointRecord record = {.job = job};
    Answer answer = {0};
    store_checkpoint_save(f->store, &record, twice, 2, 0, answer_id, &answer);
    fixture_drain(f);
    assert_int_equal(answer.r, -EEXIST);
    assert_int_equal(fixture_list(f, job, false).n, 0);
    CheckpointPart unending = {0};
    memset(unending.name, 'a', sizeof unending.name);
    assert_int_equal(store_checkpoint_save(f->store, &record, &unending, 1, 0, answer_id, &answer),
                     -EINVAL);
    assert_int_equal(store_pending(f->store), 0);
}

static void what_is_not_there_is_not_found(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), other = fixture_job(f);
    assert_int_equal(fixture_load(f, job, 0).r, -ENOENT);
    assert_int_equal(fixture_load(f, job, 5).r, -ENOENT);
    uint64_t id = fixture_save(f, job, 1, 1, 10, 0).id;
    assert_int_equal(fixture_load(f, other, id).r, -ENOENT);
    assert_int_equal(fixture_load(f, other, 0).r, -ENOENT);
    assert_int_equal(fixture_load(f, job, id).r, 0);
}

static void pruning_keeps_the_newest_of_this_job(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f), other = fixture_job(f);
    assert_int_equal(fixture_save(f, other, 1, 2, 1000, 3).r, 0);
    for (uint64_t round = 1; round <= 6; round++) {
        assert_int_equal(fixture_save(f, job, round, 2, 1000, 3).r, 0);
        assert_int_equal(fixture_list(f, job, true).id, round < 3 ? round : 3);
    }
    assert_int_equal(fixture_save(f, job, 7, 2, 1000, 1).r, 0);
    assert_int_equal(fixture_list(f, job, true).n, 1);
    assert_int_equal(fixture_list(f, other, true).id, 1);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoint_parts"), 4);
    assert_int_equal(fixture_sql_number(f, "SELECT count(*) FROM checkpoint_chunks"), 2);
}

static void ids_are_not_used_again(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    uint64_t id = fixture_save(f, job, 1, 1, 10, 0).id;
    Answer answer = {0};
    store_job_rewind(f->store, job, 0, true, 0, answer_done, &answer);
    fixture_drain(f);
    assert_true(fixture_save(f, job, 1, 1, 10, 0).id > id);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* What an accident did to the second of two checkpoints, and what the sentence must say of it. */
typedef struct Damage {
    const char *sql;
    const char *says;
} Damage;

static const Damage damages[] = {
    {"UPDATE checkpoint_chunks SET data = zeroblob(length(data))"
     " WHERE checkpoint = 2 AND part = 1 AND number = 1",
     "part rank1/params: its checksum"},
    {"UPDATE checkpoint_chunks SET data = CAST(data || x'00' AS BLOB)"
     " WHERE checkpoint = 2 AND part = 1 AND number = 1",
     "part rank1/params: has more"},
    {"UPDATE checkpoint_chunks SET data = CAST(substr(data, 2) AS BLOB)"
     " WHERE checkpoint = 2 AND part = 0 AND number = 1",
     "part rank0/params: 4206648 of 4206649 bytes"},
    {"DELETE FROM checkpoint_chunks WHERE checkpoint = 2 AND part = 1 AND number = 0",
     "part rank1/params: chunk 0"},
    {"DELETE FROM checkpoint_chunks WHERE checkpoint = 2 AND part = 0 AND number = 1",
     "part rank0/params"},
    {"DELETE FROM checkpoint_parts WHERE checkpoint = 2 AND number = 2", "2 of its 3 parts"},
    {"DELETE FROM checkpoint_parts WHERE checkpoint = 2 AND number = 1", "part 1 is missing"},
    {"DELETE FROM checkpoint_parts WHERE checkpoint = 2", "0 of its 3 parts"},
    {"UPDATE checkpoint_parts SET name = 'rank7/params' WHERE checkpoint = 2 AND number = 0",
     "list of parts"},
    {"UPDATE checkpoint_parts SET name = printf('%060d', 1) WHERE checkpoint = 2 AND number = 0",
     "too long"},
    {"UPDATE checkpoint_parts SET source = 7 WHERE checkpoint = 2 AND number = 0", "comes later"},
    {"UPDATE checkpoint_parts SET source = 0 WHERE checkpoint = 2 AND number = 1", "list of parts"},
    {"UPDATE checkpoint_parts SET bytes = 4611686018427387904 WHERE checkpoint = 2",
     "list of parts"},
    {"UPDATE checkpoint_parts SET hash = x'00' WHERE checkpoint = 2 AND number = 0",
     "wrong length"},
    {"UPDATE checkpoints SET meta = '{\"round\":9}' WHERE id = 2", "meta"},
    {"UPDATE checkpoints SET step = step + 1 WHERE id = 2", "meta"},
    {"UPDATE checkpoints SET checksum = zeroblob(16) WHERE id = 2", "meta"},
    {"UPDATE checkpoints SET parts = 4 WHERE id = 2", "3 of its 4 parts"},
};

/* A database with two checkpoints, to be damaged again and again. */
static char *make_pair(size_t *ret_size)
{
    Fixture f;
    fixture_new(&f);
    fixture_start(&f);
    uint64_t job = fixture_job(&f);
    assert_int_equal(fixture_save(&f, job, 1, 3, LARGE, 0).id, 1);
    assert_int_equal(fixture_save(&f, job, 2, 3, LARGE, 0).id, 2);
    fixture_stop(&f);
    char *file = fixture_file(&f, ret_size);
    fixture_free(&f);
    return file;
}

static void start_damaged(Fixture *f, const char *pair, size_t size, const Damage *damage)
{
    fixture_new(f);
    fixture_write_file(f, pair, size);
    fixture_start(f);
    fixture_sql(f, damage->sql);
}

static void a_damaged_checkpoint_is_passed_over(void **state)
{
    (void)state;
    size_t size;
    char *pair = make_pair(&size);
    uint64_t job = 1;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        Fixture f;
        start_damaged(&f, pair, size, &damages[i]);
        Answer latest = fixture_load(&f, job, 0);
        assert_int_equal(latest.r, 0);
        assert_int_equal(latest.id, 1);
        assert_int_equal(fixture_count_events(&f, job, "checkpoint-invalid"), 1);
        Answer listed = fixture_list(&f, job, false);
        assert_int_equal(listed.n, 2);
        assert_int_equal(listed.id, 1);
        Answer by_id = fixture_load(&f, job, 2);
        assert_int_equal(by_id.r, -EBADMSG);
        if (!strstr(by_id.message, damages[i].says) || !strstr(by_id.message, "checkpoint 2"))
            fail_msg("damage %zu: %s", i, by_id.message);
        assert_int_equal(fixture_count_events(&f, job, "checkpoint-invalid"), 1);
        fixture_free(&f);
    }
    free(pair);
}

static void verifying_a_list_finds_damage(void **state)
{
    (void)state;
    size_t size;
    char *pair = make_pair(&size);
    uint64_t job = 1;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        Fixture f;
        start_damaged(&f, pair, size, &damages[i]);
        assert_int_equal(fixture_list(&f, job, false).id, 2);
        assert_int_equal(fixture_list(&f, job, true).id, 1);
        assert_int_equal(fixture_list(&f, job, false).id, 1);
        assert_int_equal(fixture_load(&f, job, 0).id, 1);
        fixture_free(&f);
    }
    free(pair);
}

static void where_all_are_damaged_none_is_found(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    for (uint64_t round = 1; round <= 3; round++)
        fixture_save(f, job, round, 1, 100, 0);
    fixture_sql(f, "UPDATE checkpoint_chunks SET data = zeroblob(100)");
    assert_int_equal(fixture_load(f, job, 3).r, -EBADMSG);
    assert_int_equal(fixture_load(f, job, 0).r, -ENOENT);
    assert_int_equal(fixture_count_events(f, job, "checkpoint-invalid"), 3);
    /* and pruning counts valid ones only */
    for (uint64_t round = 4; round <= 5; round++)
        fixture_save(f, job, round, 1, 100, 2);
    assert_int_equal(fixture_list(f, job, true).id, 2);
    fixture_save(f, job, 6, 1, 100, 2);
    assert_int_equal(fixture_list(f, job, true).n, 2);
}

/* Flips one bit of every 16 KiB page in turn, as a bad sector would, below SQLite. Whatever it
 * hits, nothing wrong is ever handed out: fixture_load compares every byte. */
static void a_flipped_bit_anywhere_is_never_handed_out(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    fixture_save(f, job, 1, 2, 100000, 0);
    fixture_save(f, job, 2, 3, 100000, 0);
    fixture_stop(f);
    size_t size, refused = 0, older = 0;
    char *good = fixture_file(f, &size);
    for (size_t at = 5000; at < size; at += 16384) {
        good[at] ^= 0x10;
        fixture_write_file(f, good, size);
        good[at] ^= 0x10;
        Error err = {0};
        if (store_open(f->dir, f->loop, &f->store, &err) < 0) {
            assert_int_equal(err.code, -EBADMSG);
            refused++;
            continue;
        }
        Answer latest = fixture_load(f, job, 0);
        assert_true(latest.r == 0 || latest.r == -EBADMSG || latest.r == -ENOENT);
        older += latest.r == 0 && latest.id == 1;
        fixture_stop(f);
    }
    free(good);
    assert_true(older > 5); /* the pages of the second one's bytes */
    assert_true(refused + older < size / 16384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_checkpoint_comes_back_bit_for_bit, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(sizes_around_a_chunk_come_back, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(equal_parts_are_stored_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_bad_list_of_parts_is_refused_whole, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_not_found, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(pruning_keeps_the_newest_of_this_job, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(ids_are_not_used_again, fixture_setup, fixture_teardown),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(verifying_a_list_finds_damage),
        cmocka_unit_test_setup_teardown(where_all_are_damaged_none_is_found, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_flipped_bit_anywhere_is_never_handed_out, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store checkpoints", tests, NULL, NULL);
}
