#include <stdlib.h>

#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

static void release_record(JobRecord *job)
{
    free(job->name);
    free(job->spec);
    free(job->owner);
    free(job->reason);
    free(job->result);
}

static int copy_record(const JobRecord *from, JobRecord *to)
{
    *to = (JobRecord){.id = from->id,
                      .state = from->state,
                      .created_ms = from->created_ms,
                      .updated_ms = from->updated_ms};
    int r = text_copy(from->name, &to->name);
    if (r >= 0)
        r = text_copy(from->spec, &to->spec);
    if (r >= 0)
        r = text_copy(from->owner, &to->owner);
    if (r >= 0)
        r = text_copy(from->reason, &to->reason);
    if (r >= 0)
        r = text_copy(from->result, &to->result);
    return r;
}

/* ---- insert ---------------------------------------------------------------------------------- */

typedef struct JobWrite {
    Request request;
    JobRecord job;
    StoreJobInserted inserted;
} JobWrite;

static void release_write(Request *request)
{
    release_record(&((JobWrite *)request)->job);
}

static int run_insert(Request *request, Db *db, Error *err)
{
    JobRecord *job = &((JobWrite *)request)->job;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "INSERT INTO jobs (name, spec, owner, state, reason, result, created_ms, updated_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_text(&statement, job->name);
    statement_bind_text(&statement, job->spec);
    statement_bind_text(&statement, job->owner);
    statement_bind_u64(&statement, (uint64_t)job->state);
    statement_bind_text(&statement, job->reason);
    statement_bind_text(&statement, job->result);
    statement_bind_u64(&statement, job->created_ms);
    statement_bind_u64(&statement, job->updated_ms);
    r = statement_run(&statement, err);
    if (r >= 0)
        job->id = (uint64_t)sqlite3_last_insert_rowid(db_handle(db));
    return r;
}

static void answer_insert(Request *request)
{
    const JobWrite *insert = (JobWrite *)request;
    insert->inserted(request->data, request->result, request_error(request),
                     request->result < 0 ? 0 : insert->job.id);
}

static const RequestKind insert_kind = {.what = "record the job",
                                        .transaction = true,
                                        .run = run_insert,
                                        .answer = answer_insert,
                                        .release = release_write};

int store_job_insert(Store *store, const JobRecord *job, StoreJobInserted done, void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &insert_kind, sizeof(JobWrite), data, &request);
    if (r < 0)
        return r;
    JobWrite *insert = (JobWrite *)request;
    insert->inserted = done;
    r = copy_record(job, &insert->job);
    if (r < 0)
        return r;
    request_post(MOVE(request));
    return 0;
}

/* ---- update ---------------------------------------------------------------------------------- */

static int run_update(Request *request, Db *db, Error *err)
{
    const JobRecord *job = &((JobWrite *)request)->job;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db, "UPDATE jobs SET state = ?, reason = ?, result = ?, updated_ms = ? WHERE id = ?",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, (uint64_t)job->state);
    statement_bind_text(&statement, job->reason);
    statement_bind_text(&statement, job->result);
    statement_bind_u64(&statement, job->updated_ms);
    statement_bind_u64(&statement, job->id);
    r = statement_run(&statement, err);
    if (r >= 0 && sqlite3_changes(db_handle(db)) == 0)
        return error_set(err, -ENOENT, "%s has no job %llu", db_path(db),
                         (unsigned long long)job->id);
    return r;
}

static const RequestKind update_kind = {.what = "record the job's state",
                                        .transaction = true,
                                        .run = run_update,
                                        .answer = request_answer_done,
                                        .release = release_write};

int store_job_update(Store *store, const JobRecord *job, StoreDone done, void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &update_kind, sizeof(JobWrite), data, &request);
    if (r < 0)
        return r;
    request->done = done;
    r = copy_record(job, &((JobWrite *)request)->job);
    if (r < 0)
        return r;
    request_post(MOVE(request));
    return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

typedef struct JobsLoad {
    Request request;
    JobRecord *jobs;
    size_t n, capacity;
    StoreJobsLoaded loaded;
} JobsLoad;

static int read_record(const Statement *row, JobRecord *job, Error *err)
{
    job->id = statement_u64(row, 0);
    job->state = (int)statement_u64(row, 4);
    job->created_ms = statement_u64(row, 7);
    job->updated_ms = statement_u64(row, 8);
    int r = statement_text(row, 1, &job->name, err);
    if (r >= 0)
        r = statement_text(row, 2, &job->spec, err);
    if (r >= 0)
        r = statement_text(row, 3, &job->owner, err);
    if (r >= 0)
        r = statement_text(row, 5, &job->reason, err);
    if (r >= 0)
        r = statement_text(row, 6, &job->result, err);
    return r;
}

static int run_load(Request *request, Db *db, Error *err)
{
    JobsLoad *load = (JobsLoad *)request;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "SELECT id, name, spec, owner, state, reason, result, created_ms, updated_ms"
        " FROM jobs ORDER BY id",
        &statement, err);
    while (r >= 0 && (r = statement_step(&statement, err)) > 0) {
        r = rows_grow((void **)&load->jobs, load->n, &load->capacity, sizeof *load->jobs);
        if (r >= 0)
            r = read_record(&statement, &load->jobs[load->n++], err);
    }
    return r;
}

static void answer_load(Request *request)
{
    const JobsLoad *load = (JobsLoad *)request;
    bool failed = request->result < 0;
    load->loaded(request->data, request->result, request_error(request), failed ? NULL : load->jobs,
                 failed ? 0 : load->n);
}

static void release_load(Request *request)
{
    JobsLoad *load = (JobsLoad *)request;
    for (size_t i = 0; i < load->n; i++)
        release_record(&load->jobs[i]);
    free(load->jobs);
}

static const RequestKind load_kind = {
    .what = "read the jobs", .run = run_load, .answer = answer_load, .release = release_load};

int store_jobs_load(Store *store, StoreJobsLoaded done, void *data)
{
    Request *request;
    int r = request_new(store, &load_kind, sizeof(JobsLoad), data, &request);
    if (r < 0)
        return r;
    ((JobsLoad *)request)->loaded = done;
    request_post(request);
    return 0;
}
