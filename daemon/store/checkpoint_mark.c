#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/checkpoint.h"
#include "store/events.h"
#include "store/statement.h"

typedef struct Mark {
    const CheckpointRecord *checkpoint;
    const char *problem;
} Mark;

static int write_mark(Db *db, void *data, Error *err)
{
    const Mark *mark = data;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, "UPDATE checkpoints SET valid = 0, problem = ? WHERE id = ?",
                              &statement, err);
    if (r < 0)
        return r;
    statement_bind_text(&statement, mark->problem);
    statement_bind_u64(&statement, mark->checkpoint->id);
    r = statement_run(&statement, err);
    if (r < 0)
        return r;
    char text[640];
    snprintf(text, sizeof text, "checkpoint %llu is not usable: %s",
             (unsigned long long)mark->checkpoint->id, mark->problem);
    EventRecord event = {.job = mark->checkpoint->job,
                         .unix_ms = clock_unix_ms(),
                         .round = mark->checkpoint->round,
                         .kind = "checkpoint-invalid",
                         .who = "dpsd",
                         .text = text};
    return event_insert(db, &event, err);
}

void checkpoint_mark_invalid(Db *db, const CheckpointRecord *checkpoint, const char *problem)
{
    log_job(LOG_WARNING, checkpoint->job, -1, "checkpoint %llu (round %llu) is not usable: %s",
            (unsigned long long)checkpoint->id, (unsigned long long)checkpoint->round, problem);
    Mark mark = {.checkpoint = checkpoint, .problem = problem};
    Error err = {0};
    if (db_transaction(db, write_mark, &mark, &err) < 0)
        log_job(LOG_WARNING, checkpoint->job, -1, "cannot mark checkpoint %llu as not valid: %s",
                (unsigned long long)checkpoint->id, err.message);
}
