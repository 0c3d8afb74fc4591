#include "store/checkpoint.h"
#include "store/request.h"
#include "store/statement.h"

/* In both a pin that stays where it is costs no write. */
static const char *const take_over[] = {
    [PIN_IN_USE] = "UPDATE checkpoints SET in_use = (id = ?) WHERE job = ? AND in_use <> (id = ?)",
    [PIN_BEST] = "UPDATE checkpoints SET best = (id = ?) WHERE job = ? AND best <> (id = ?)",
};

typedef struct Pin {
    Request request;
    uint64_t job, id;
    CheckpointPin pin;
} Pin;

int checkpoint_pin(Db *db, uint64_t job, CheckpointPin pin, uint64_t id, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, take_over[pin], &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, id);
    statement_bind_u64(&statement, job);
    statement_bind_u64(&statement, id);
    return statement_run(&statement, err);
}

static int run(Request *request, Db *db, Error *err)
{
    const Pin *pin = (Pin *)request;
    return checkpoint_pin(db, pin->job, pin->pin, pin->id, err);
}

static const RequestKind kind = {
    .what = "pin the checkpoint", .transaction = true, .run = run, .answer = request_answer_done};

int store_checkpoint_pin(Store *store, uint64_t job, CheckpointPin pin, uint64_t id, StoreDone done,
                         void *data)
{
    Request *request;
    int r = request_new(store, &kind, sizeof(Pin), data, &request);
    if (r < 0)
        return r;
    Pin *message = (Pin *)request;
    message->request.done = done;
    message->job = job;
    message->pin = pin;
    message->id = id;
    request_post(request);
    return 0;
}
