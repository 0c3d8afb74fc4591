#include <stdlib.h>

#include "base/log.h"
#include "store/checkpoint.h"
#include "store/request.h"
#include "store/statement.h"

typedef struct Load {
    Request request;
    uint64_t job, id; /* 0: the latest valid one */
    StoredCheckpoint checkpoint;
    CheckpointPart *parts; /* as the callback gets them */
    StoreCheckpointLoaded loaded;
} Load;

static int read_whole(Load *load, Db *db, uint64_t id, Error *err)
{
    checkpoint_release(&load->checkpoint);
    load->checkpoint = (StoredCheckpoint){0};
    int r = checkpoint_read(db, load->job, id, &load->checkpoint, err);
    if (r < 0)
        return r;
    return checkpoint_read_parts(db, &load->checkpoint, true, err);
}

static int load_one(Load *load, Db *db, Error *err)
{
    int r = read_whole(load, db, load->id, err);
    const CheckpointRecord *record = &load->checkpoint.record;
    if (r == -EBADMSG && record->valid)
        checkpoint_mark_invalid(db, record, err->message);
    if (r >= 0 && !record->valid)
        r = error_set(err, -EBADMSG, "%s", record->problem);
    if (r == -EBADMSG)
        return error_prefix(err, r, "checkpoint %llu is not usable", (unsigned long long)load->id);
    return r;
}

/* The newest checkpoint older than `before` that is held to be valid. -ENOENT */
static int find_candidate(Db *db, uint64_t job, uint64_t before, uint64_t *ret, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "SELECT id FROM checkpoints WHERE job = ? AND valid = 1 AND id < ?"
                              " ORDER BY id DESC LIMIT 1",
                              &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, job);
    statement_bind_limit(&statement, before);
    r = statement_step(&statement, err);
    if (r == 0)
        return error_set(err, -ENOENT, "job %llu has no checkpoint that can be used",
                         (unsigned long long)job);
    if (r > 0)
        *ret = statement_u64(&statement, 0);
    return r;
}

/* A checkpoint that is damaged is marked. One that the disk fails to give is passed over only: the
 * disk may give it another day. */
static int load_latest(Load *load, Db *db, Error *err)
{
    Error unread = {0};
    uint64_t id = UINT64_MAX;
    for (;;) {
        int r = find_candidate(db, load->job, id, &id, err);
        if (r == -ENOENT && unread.code < 0)
            return error_set(err, unread.code, "%s", unread.message);
        if (r < 0)
            return r;
        r = read_whole(load, db, id, err);
        if (r == -EBADMSG) {
            checkpoint_mark_invalid(db, &load->checkpoint.record, err->message);
        } else if (r == -EIO) {
            unread = *err;
            log_job(LOG_WARNING, load->job, -1, "checkpoint %llu is passed over: %s",
                    (unsigned long long)id, err->message);
        } else {
            return r;
        }
    }
}

static int list_parts(Load *load, Error *err)
{
    load->parts = calloc(load->checkpoint.n ? load->checkpoint.n : 1, sizeof *load->parts);
    if (!load->parts)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < load->checkpoint.n; i++)
        load->parts[i] = load->checkpoint.parts[i].part;
    return 0;
}

static int run(Request *request, Db *db, Error *err)
{
    Load *load = (Load *)request;
    int r = load->id ? load_one(load, db, err) : load_latest(load, db, err);
    if (r < 0)
        return r;
    return list_parts(load, err);
}

static void answer(Request *request)
{
    const Load *load = (Load *)request;
    if (request->result < 0)
        load->loaded(request->data, request->result, &request->err, NULL, NULL, 0);
    else
        load->loaded(request->data, 0, NULL, &load->checkpoint.record, load->parts,
                     load->checkpoint.n);
}

static void release(Request *request)
{
    Load *load = (Load *)request;
    checkpoint_release(&load->checkpoint);
    free(load->parts);
}

static const RequestKind kind = {
    .what = "load the checkpoint", .run = run, .answer = answer, .release = release};

int store_checkpoint_load(Store *store, uint64_t job, uint64_t id, StoreCheckpointLoaded done,
                          void *data)
{
    Request *request;
    int r = request_new(store, &kind, sizeof(Load), data, &request);
    if (r < 0)
        return r;
    Load *load = (Load *)request;
    load->job = job;
    load->id = id;
    load->loaded = done;
    request_post(request);
    return 0;
}
