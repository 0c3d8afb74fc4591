#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/checkpoint.h"
#include "store/rows.h"
#include "store/statement.h"

void checkpoint_release(StoredCheckpoint *checkpoint)
{
    free(checkpoint->record.meta);
    free(checkpoint->record.problem);
    for (size_t i = 0; i < checkpoint->n; i++)
        if (checkpoint->parts[i].source == i) /* the others share */
            free((void *)checkpoint->parts[i].part.data);
    free(checkpoint->parts);
}

/* ---- the row and the list of parts ----------------------------------------------------------- */

static int read_hash(const Statement *row, int column, Hash *ret, Error *err)
{
    const void *bytes = sqlite3_column_blob(row->handle, column);
    if (!bytes || sqlite3_column_bytes(row->handle, column) != HASH_BYTES)
        return error_set(err, -EBADMSG, "a hash has the wrong length");
    memcpy(ret->bytes, bytes, HASH_BYTES);
    return 0;
}

static int read_row(Db *db, uint64_t job, uint64_t id, StoredCheckpoint *checkpoint,
                    size_t *ret_parts, Error *err)
{
    _cleanup_(statement_end) Statement row = {0};
    int r = statement_prepare(db,
                              "SELECT round, step, created_ms, bytes, parts, meta, checksum, valid,"
                              " problem FROM checkpoints WHERE id = ? AND job = ?",
                              &row, err);
    if (r < 0)
        return r;
    statement_bind_u64(&row, id);
    statement_bind_u64(&row, job);
    r = statement_step(&row, err);
    if (r < 0)
        return r;
    if (r == 0)
        return error_set(err, -ENOENT, "job %llu has no checkpoint %llu", (unsigned long long)job,
                         (unsigned long long)id);
    CheckpointRecord *record = &checkpoint->record;
    record->id = id;
    record->job = job;
    record->round = statement_u64(&row, 0);
    record->step = statement_u64(&row, 1);
    record->created_ms = statement_u64(&row, 2);
    record->bytes = statement_u64(&row, 3);
    *ret_parts = statement_u64(&row, 4);
    record->valid = statement_u64(&row, 7) != 0;
    r = statement_text(&row, 5, &record->meta, err);
    if (r >= 0 && !record->valid)
        r = statement_text(&row, 8, &record->problem, err);
    if (r >= 0)
        r = read_hash(&row, 6, &checkpoint->checksum, err);
    return r;
}

static int read_part_row(const Statement *row, size_t number, StoredPart *stored, Error *err)
{
    if (statement_u64(row, 0) != number)
        return error_set(err, -EBADMSG, "part %zu is missing", number);
    const char *name = (const char *)sqlite3_column_text(row->handle, 1);
    if (!name)
        return error_set(err, -ENOMEM, "out of memory");
    size_t length = strlen(name);
    if (length >= sizeof stored->part.name)
        return error_set(err, -EBADMSG, "the name of part %zu is too long", number);
    memcpy(stored->part.name, name, length + 1);
    stored->part.bytes = statement_u64(row, 2);
    stored->source = statement_u64(row, 4);
    if (stored->source > number)
        return error_set(err, -EBADMSG, "part %s points to a part that comes later", name);
    return read_hash(row, 3, &stored->hash, err);
}

static int read_part_rows(Db *db, StoredCheckpoint *checkpoint, size_t expected, Error *err)
{
    size_t capacity = 0;
    _cleanup_(statement_end) Statement row = {0};
    int r = statement_prepare(db,
                              "SELECT number, name, bytes, hash, source FROM checkpoint_parts"
                              " WHERE checkpoint = ? ORDER BY number",
                              &row, err);
    if (r < 0)
        return r;
    statement_bind_u64(&row, checkpoint->record.id);
    while ((r = statement_step(&row, err)) > 0) {
        r = rows_grow((void **)&checkpoint->parts, checkpoint->n, &capacity,
                      sizeof *checkpoint->parts);
        if (r < 0)
            return error_set(err, r, "out of memory");
        StoredPart *stored = &checkpoint->parts[checkpoint->n];
        r = read_part_row(&row, checkpoint->n, stored, err);
        if (r < 0)
            return r;
        checkpoint->n++;
    }
    if (r == 0 && checkpoint->n != expected)
        return error_set(err, -EBADMSG, "%zu of its %zu parts are there", checkpoint->n, expected);
    return r;
}

int checkpoint_read(Db *db, uint64_t job, uint64_t id, StoredCheckpoint *checkpoint, Error *err)
{
    size_t expected = 0;
    int r = read_row(db, job, id, checkpoint, &expected, err);
    if (r >= 0)
        r = read_part_rows(db, checkpoint, expected, err);
    if (r < 0)
        return r;
    Hash sum;
    r = checkpoint_checksum(checkpoint, &sum);
    if (r < 0)
        return error_set(err, r, "out of memory");
    if (!hash_equal(&sum, &checkpoint->checksum))
        return error_set(err, -EBADMSG, "the checksum over meta and the list of parts is wrong");
    return 0;
}

/* ---- the bytes ------------------------------------------------------------------------------- */

/* Where the chunks of one part go: into `to`, if there is one, and into the hash. */
typedef struct Reading {
    const CheckpointPart *part;
    char *to;
    Hasher *hasher;
    size_t done;
    uint64_t chunks;
} Reading;

static int take_chunk(Reading *reading, const Statement *row, Error *err)
{
    const char *name = reading->part->name;
    if (statement_u64(row, 0) != reading->chunks)
        return error_set(err, -EBADMSG, "part %s: chunk %llu is missing", name,
                         (unsigned long long)reading->chunks);
    const void *data = sqlite3_column_blob(row->handle, 1);
    size_t bytes = (size_t)sqlite3_column_bytes(row->handle, 1);
    if (!data && sqlite3_errcode(db_handle(row->db)) == SQLITE_NOMEM)
        return error_set(err, -ENOMEM, "out of memory");
    if (bytes > reading->part->bytes - reading->done)
        return error_set(err, -EBADMSG, "part %s: has more than its %zu bytes", name,
                         reading->part->bytes);
    if (data) { /* NULL where there are no bytes */
        hasher_add(reading->hasher, data, bytes);
        if (reading->to)
            memcpy(reading->to + reading->done, data, bytes);
    }
    reading->done += bytes;
    reading->chunks++;
    return 0;
}

static int check_part(const Reading *reading, const Hash *expected, Error *err)
{
    if (reading->done != reading->part->bytes)
        return error_set(err, -EBADMSG, "part %s: %zu of %zu bytes are there", reading->part->name,
                         reading->done, reading->part->bytes);
    Hash hash = hasher_end(reading->hasher);
    if (!hash_equal(&hash, expected))
        return error_set(err, -EBADMSG, "part %s: its checksum is wrong", reading->part->name);
    return 0;
}

static int read_chunks(Db *db, uint64_t id, size_t number, const StoredPart *stored, char *to,
                       Error *err)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    if (hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    Reading reading = {.part = &stored->part, .to = to, .hasher = hasher};
    _cleanup_(statement_end) Statement row = {0};
    int r = statement_prepare(db,
                              "SELECT number, data FROM checkpoint_chunks"
                              " WHERE checkpoint = ? AND part = ? ORDER BY number",
                              &row, err);
    if (r < 0)
        return r;
    statement_bind_u64(&row, id);
    statement_bind_u64(&row, number);
    while ((r = statement_step(&row, err)) > 0)
        if ((r = take_chunk(&reading, &row, err)) < 0)
            return r;
    if (r < 0)
        return error_prefix(err, r, "part %s", stored->part.name);
    return check_part(&reading, &stored->hash, err);
}

/* The size is what the checksum vouched for. */
static int read_own_part(Db *db, StoredCheckpoint *checkpoint, size_t number, bool keep, Error *err)
{
    StoredPart *stored = &checkpoint->parts[number];
    _cleanup_free_ char *data = NULL;
    if (keep && !(data = malloc(stored->part.bytes ? stored->part.bytes : 1)))
        return error_set(err, -ENOMEM, "out of memory for the %zu bytes of part %s",
                         stored->part.bytes, stored->part.name);
    int r = read_chunks(db, checkpoint->record.id, number, stored, data, err);
    if (r < 0)
        return r;
    stored->part.data = MOVE(data);
    return 0;
}

int checkpoint_read_parts(Db *db, StoredCheckpoint *checkpoint, bool keep, Error *err)
{
    for (size_t i = 0; i < checkpoint->n; i++) {
        StoredPart *stored = &checkpoint->parts[i];
        const StoredPart *source = &checkpoint->parts[stored->source];
        if (source != stored) {
            if (source->part.bytes != stored->part.bytes ||
                !hash_equal(&source->hash, &stored->hash))
                return error_set(err, -EBADMSG, "part %s is not equal to part %s",
                                 stored->part.name, source->part.name);
            stored->part.data = source->part.data;
            continue;
        }
        int r = read_own_part(db, checkpoint, i, keep, err);
        if (r < 0)
            return r;
    }
    return 0;
}
