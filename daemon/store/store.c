#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/worker.h"
#include "store/request.h"

/* Lives until it is closed and the last answer was given. */
struct Store {
    Worker *worker; /* NULL once closed */
    Db *db;         /* the store thread's while there is a worker */
    size_t pending; /* loop's thread */
};

/* What waits behind a disk that hangs. A job asks for a few things a round, so that this many
 * means that nothing has moved for very long. */
enum { PENDING_MAX = 4096 };

int store_open(const char *state_dir, Mailbox *loop, Store **ret, Error *err)
{
    Store *store = calloc(1, sizeof *store);
    if (!store)
        return error_set(err, -ENOMEM, "out of memory");
    int r = db_open(state_dir, &store->db, err);
    if (r >= 0) {
        r = worker_new("dps-store", loop, &store->worker);
        if (r < 0)
            error_set(err, r, "cannot start the store's thread: %s", strerror(-r));
    }
    if (r < 0) {
        db_close(store->db);
        free(store);
        return r;
    }
    *ret = store;
    return 0;
}

Store *store_close(Store *store)
{
    if (!store)
        return NULL;
    store->worker = worker_free(store->worker);
    store->db = db_close(store->db);
    if (store->pending == 0)
        free(store);
    return NULL;
}

size_t store_pending(const Store *store)
{
    return store->pending;
}

/* ---- requests -------------------------------------------------------------------------------- */

static int run_in_transaction(Db *db, void *data, Error *err)
{
    Request *request = data;
    return request->kind->run(request, db, err);
}

static void work(Task *task)
{
    Request *request = (Request *)task;
    Db *db = request->store->db;
    const RequestKind *kind = request->kind;
    int r = db_settle(db, &request->err);
    if (r >= 0 && kind->transaction)
        r = db_transaction(db, run_in_transaction, request, &request->err);
    else if (r >= 0)
        r = kind->run(request, db, &request->err);
    request->result = r < 0 ? r : 0;
    if (r >= 0)
        return;
    if (request->err.code != r)
        error_set(&request->err, r, "%s", strerror(-r));
    error_prefix(&request->err, r, "cannot %s", kind->what);
}

static void finish(Task *task)
{
    Request *request = (Request *)task;
    Store *store = request->store;
    request->kind->answer(request);
    request_free(request);
    store->pending--;
    if (store->pending == 0 && !store->worker)
        free(store);
}

int request_new(Store *store, const RequestKind *kind, size_t size, void *data, Request **ret)
{
    if (!store->worker)
        return -ESHUTDOWN;
    if (store->pending >= PENDING_MAX)
        return -EAGAIN;
    Request *request = calloc(1, size);
    if (!request)
        return -ENOMEM;
    request->task = (Task){.work = work, .done = finish};
    request->kind = kind;
    request->store = store;
    request->data = data;
    *ret = request;
    return 0;
}

Request *request_free(Request *request)
{
    if (!request)
        return NULL;
    if (request->kind->release)
        request->kind->release(request);
    free(request);
    return NULL;
}

void request_post(Request *request)
{
    request->store->pending++;
    worker_post(request->store->worker, &request->task);
}

const Error *request_error(const Request *request)
{
    return request->result < 0 ? &request->err : NULL;
}

void request_answer_done(Request *request)
{
    if (request->done)
        request->done(request->data, request->result, request_error(request));
    else if (request->result < 0) /* nobody else will say so */
        log_warning("%s", request->err.message);
}

/* ---- ping ------------------------------------------------------------------------------------ */

static int run_ping(Request *request, Db *db, Error *err)
{
    (void)request, (void)db, (void)err;
    return 0;
}

static const RequestKind ping_kind = {
    .what = "answer a ping", .run = run_ping, .answer = request_answer_done};

int store_ping(Store *store, StoreDone done, void *data)
{
    Request *request;
    int r = request_new(store, &ping_kind, sizeof *request, data, &request);
    if (r < 0)
        return r;
    request->done = done;
    request_post(request);
    return 0;
}
