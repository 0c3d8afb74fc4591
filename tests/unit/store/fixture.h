/* A store in a directory of its own, with the loop played by the test: every helper below asks,
 * waits for the answer and hands back what the callback got. Fails the test on a broken store, so
 * that tests say only what they are about. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/store.h"

typedef struct Fixture {
    char dir[64]; /* removed by fixture_free */
    Mailbox *loop;
    Store *store;
} Fixture;

/* cmocka's setup and teardown; the fixture is *state. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* For tests that make their own: the directory without a store. */
void fixture_new(Fixture *f);
void fixture_free(Fixture *f);
void fixture_start(Fixture *f);
void fixture_stop(Fixture *f);
/* What store_open answers; the store is closed again where it succeeds. */
int fixture_try_open(const Fixture *f, Error *err);
/* Runs callbacks until none is outstanding. */
void fixture_drain(Fixture *f);

/* What a callback got. */
typedef struct Answer {
    int called; /* how often */
    int r;
    uint64_t id;
    size_t n;
    char message[480];
} Answer;

/* Callbacks whose data is an Answer. */
void answer_done(void *data, int r, const Error *err);
void answer_id(void *data, int r, const Error *err, uint64_t id);

/* A job that checkpoints and metrics can refer to. */
uint64_t fixture_job(Fixture *f);

/* A checkpoint of `n` parts of `bytes` each, made up from the round; part n-1 equals part 0 where
 * there is more than one. */
Answer fixture_save(Fixture *f, uint64_t job, uint64_t round, size_t n, size_t bytes,
                    unsigned keep);
/* Loads and compares every byte with what fixture_save made up for the round that came back.
 * .id is the checkpoint, .n its number of parts. */
Answer fixture_load(Fixture *f, uint64_t job, uint64_t id);
/* .n is how many there are, .id how many of them are valid. */
Answer fixture_list(Fixture *f, uint64_t job, bool verify);
/* How many events of this kind the job has. */
size_t fixture_count_events(Fixture *f, uint64_t job, const char *kind);

/* An administrator's hand: runs SQL on dps.db over a connection of its own. */
void fixture_sql(const Fixture *f, const char *sql);
int64_t fixture_sql_number(const Fixture *f, const char *sql);
/* Of dps.db with this suffix ("", "-wal"); 0 where it is not. */
int64_t fixture_file_size(const Fixture *f, const char *suffix);
/* The whole of dps.db, which the caller frees. */
char *fixture_file(const Fixture *f, size_t *ret_size);
void fixture_write_file(const Fixture *f, const void *data, size_t size);

/* What a part of a checkpoint holds. */
void fixture_fill(uint8_t *data, size_t bytes, uint64_t seed);
