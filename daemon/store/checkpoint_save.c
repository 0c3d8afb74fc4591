#include <string.h>

#include "store/checkpoint.h"
#include "store/request.h"
#include "store/rows.h"
#include "store/space.h"
#include "store/statement.h"

typedef struct Save {
    Request request;
    StoredCheckpoint checkpoint; /* the parts' data is the caller's */
    unsigned keep;
    StoreCheckpointSaved saved;
} Save;

/* ---- what is to be written ------------------------------------------------------------------- */

static size_t find_equal(const StoredCheckpoint *checkpoint, size_t number)
{
    const StoredPart *part = &checkpoint->parts[number];
    for (size_t i = 0; i < number; i++) {
        const StoredPart *other = &checkpoint->parts[i];
        if (other->source == i && other->part.bytes == part->part.bytes &&
            hash_equal(&other->hash, &part->hash) &&
            (part->part.bytes == 0 ||
             memcmp(other->part.data, part->part.data, part->part.bytes) == 0))
            return i;
    }
    return number;
}

static int hash_parts(StoredCheckpoint *checkpoint, Error *err)
{
    checkpoint->record.bytes = 0;
    for (size_t i = 0; i < checkpoint->n; i++) {
        StoredPart *stored = &checkpoint->parts[i];
        stored->hash = hash_bytes(stored->part.data, stored->part.bytes);
        stored->source = find_equal(checkpoint, i);
        if (stored->source == i)
            checkpoint->record.bytes += stored->part.bytes;
    }
    if (checkpoint_checksum(checkpoint, &checkpoint->checksum) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_row(Db *db, StoredCheckpoint *checkpoint, Error *err)
{
    CheckpointRecord *record = &checkpoint->record;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "INSERT INTO checkpoints (job, round, step, created_ms, bytes, parts, meta, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, record->job);
    statement_bind_u64(&statement, record->round);
    statement_bind_u64(&statement, record->step);
    statement_bind_u64(&statement, record->created_ms);
    statement_bind_u64(&statement, record->bytes);
    statement_bind_u64(&statement, checkpoint->n);
    statement_bind_text(&statement, record->meta);
    statement_bind_blob(&statement, checkpoint->checksum.bytes, HASH_BYTES);
    r = statement_run(&statement, err);
    if (r >= 0)
        record->id = (uint64_t)sqlite3_last_insert_rowid(db_handle(db));
    return r;
}

static int write_part_rows(Db *db, const StoredCheckpoint *checkpoint, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "INSERT INTO checkpoint_parts (checkpoint, number, name, bytes, hash, source)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        &statement, err);
    for (size_t i = 0; r >= 0 && i < checkpoint->n; i++) {
        const StoredPart *stored = &checkpoint->parts[i];
        statement_bind_u64(&statement, checkpoint->record.id);
        statement_bind_u64(&statement, i);
        statement_bind_text(&statement, stored->part.name);
        statement_bind_u64(&statement, stored->part.bytes);
        statement_bind_blob(&statement, stored->hash.bytes, HASH_BYTES);
        statement_bind_u64(&statement, stored->source);
        r = statement_run(&statement, err);
    }
    return r;
}

static int write_chunks(Statement *statement, uint64_t id, size_t number,
                        const CheckpointPart *part, Error *err)
{
    int r = 0;
    uint64_t chunk = 0;
    for (size_t at = 0; r >= 0 && at < part->bytes; at += CHECKPOINT_CHUNK) {
        size_t left = part->bytes - at;
        statement_bind_u64(statement, id);
        statement_bind_u64(statement, number);
        statement_bind_u64(statement, chunk++);
        statement_bind_blob(statement, (const char *)part->data + at,
                            left < CHECKPOINT_CHUNK ? left : CHECKPOINT_CHUNK);
        r = statement_run(statement, err);
    }
    return r;
}

static int write_data(Db *db, const StoredCheckpoint *checkpoint, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db, "INSERT INTO checkpoint_chunks (checkpoint, part, number, data) VALUES (?, ?, ?, ?)",
        &statement, err);
    for (size_t i = 0; r >= 0 && i < checkpoint->n; i++)
        if (checkpoint->parts[i].source == i)
            r = write_chunks(&statement, checkpoint->record.id, i, &checkpoint->parts[i].part, err);
    return r;
}

static int write_checkpoint(Db *db, void *data, Error *err)
{
    Save *save = data;
    StoredCheckpoint *checkpoint = &save->checkpoint;
    int r = checkpoint_prune(db, checkpoint->record.job, save->keep, err);
    if (r >= 0)
        r = write_row(db, checkpoint, err);
    if (r >= 0)
        r = write_part_rows(db, checkpoint, err);
    if (r >= 0)
        r = write_data(db, checkpoint, err);
    return r;
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Space is given back after a failure too: what was written of it lies in the log. */
static int run(Request *request, Db *db, Error *err)
{
    Save *save = (Save *)request;
    int r = hash_parts(&save->checkpoint, err);
    if (r < 0)
        return r;
    r = db_transaction(db, write_checkpoint, save, err);
    space_reclaim(db);
    return r;
}

static void answer(Request *request)
{
    const Save *save = (Save *)request;
    save->saved(request->data, request->result, request_error(request),
                request->result < 0 ? 0 : save->checkpoint.record.id);
}

static void release(Request *request)
{
    Save *save = (Save *)request;
    free(save->checkpoint.record.meta);
    free(save->checkpoint.parts);
}

static const RequestKind kind = {
    .what = "save the checkpoint", .run = run, .answer = answer, .release = release};

static int copy_parts(StoredCheckpoint *checkpoint, const CheckpointPart *parts, size_t n)
{
    checkpoint->parts = calloc(n ? n : 1, sizeof *checkpoint->parts);
    if (!checkpoint->parts)
        return -ENOMEM;
    checkpoint->n = n;
    for (size_t i = 0; i < n; i++) {
        if (!memchr(parts[i].name, '\0', sizeof parts[i].name))
            return -EINVAL;
        checkpoint->parts[i].part = parts[i];
    }
    return 0;
}

int store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                          const CheckpointPart *parts, size_t n, unsigned keep,
                          StoreCheckpointSaved done, void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &kind, sizeof(Save), data, &request);
    if (r < 0)
        return r;
    Save *save = (Save *)request;
    save->keep = keep;
    save->saved = done;
    save->checkpoint.record = (CheckpointRecord){.job = checkpoint->job,
                                                 .round = checkpoint->round,
                                                 .step = checkpoint->step,
                                                 .created_ms = checkpoint->created_ms};
    r = text_copy(checkpoint->meta, &save->checkpoint.record.meta);
    if (r >= 0)
        r = copy_parts(&save->checkpoint, parts, n);
    if (r < 0)
        return r;
    request_post(MOVE(request));
    return 0;
}
