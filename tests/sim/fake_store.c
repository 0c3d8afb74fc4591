/* In place of store/store.c, jobs.c and events.c: the queue, jobs, events. */
#include "fake_store.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

struct Store {
    Asked *first, *last; /* to be done */
    Asked *running;
    Asked *done_first, *done_last; /* done, to be answered */
    size_t pending;
    bool closed;
};

static void begin_next(Store *store);

void fake_store_open(Store **ret)
{
    *ret = calloc(1, sizeof(Store));
}

size_t store_pending(const Store *store)
{
    return store->pending;
}

int asked_new(Store *store, const AskedKind *kind, size_t size, uint64_t job, void *data,
              Asked **ret)
{
    if (store->closed)
        return -ESHUTDOWN;
    Asked *asked = calloc(1, size);
    if (!asked)
        return -ENOMEM;
    *asked = (Asked){.store = store, .kind = kind, .job = job, .data = data};
    store->pending++;
    *ret = asked;
    return 0;
}

static void push(Asked **first, Asked **last, Asked *asked)
{
    asked->next = NULL;
    if (*last)
        (*last)->next = asked;
    else
        *first = asked;
    *last = asked;
}

static Asked *pull(Asked **first, Asked **last)
{
    Asked *asked = *first;
    if (asked && !(*first = asked->next))
        *last = NULL;
    return asked;
}

/* ---- doing -------------------------------------------------------------------------------------
 */

static int fault(const Asked *asked)
{
    if (asked->kind->writes && world.disk.full)
        return -ENOSPC;
    if (world.disk.fail_next && sim_chance(200)) {
        world.disk.fail_next--;
        return -EIO;
    }
    return 0;
}

static void do_one(Asked *asked)
{
    asked->r = fault(asked);
    if (asked->r < 0 && asked->kind->fails)
        asked->kind->fails(asked);
    if (asked->r == 0)
        asked->r = asked->kind->run(asked);
    trace("  store: %s of job %llu: %d", asked->kind->what, (unsigned long long)asked->job,
          asked->r);
    events_mix((uint64_t)(uint32_t)asked->r ^ asked->job << 32);
}

static void answer_one(Store *store)
{
    Asked *asked = pull(&store->done_first, &store->done_last);
    Error err = {0};
    if (asked->r < 0)
        error_set(&err, asked->r, "cannot %s: error %d", asked->kind->what, -asked->r);
    store->pending--;
    asked->kind->answer(asked, asked->r < 0 ? &err : NULL);
    if (asked->kind->release)
        asked->kind->release(asked);
    free(asked);
}

static void on_answer(void *data, uint64_t arg)
{
    (void)arg;
    answer_one(data);
}

static void on_done(void *data, uint64_t arg)
{
    Store *store = data;
    Asked *asked = store->running;
    (void)arg;
    store->running = NULL;
    do_one(asked);
    push(&store->done_first, &store->done_last, asked);
    /* Answers keep their order: each is an event for the first that waits. */
    event_of_daemon(sim_chance(800) ? 0 : sim_between(0, world.store_us), "store answers",
                    on_answer, store, 0);
    begin_next(store);
}

static void begin_next(Store *store)
{
    if (store->running || !store->first)
        return;
    uint64_t takes = sim_between(world.store_us / 8, world.store_us);
    if (sim_now() < world.disk.slow_until)
        takes += sim_between(20, 400) * SIM_MS;
    store->running = pull(&store->first, &store->last);
    event_of_daemon(takes, "store works", on_done, store, 0);
}

void asked_post(Asked *asked)
{
    push(&asked->store->first, &asked->store->last, asked);
    begin_next(asked->store);
}

/* As store_close and the loop's last tasks: all that was asked for is done, then answered. */
void fake_store_drain(Store *store)
{
    store->closed = true;
    if (store->running) {
        do_one(store->running);
        push(&store->done_first, &store->done_last, store->running);
        store->running = NULL;
    }
    for (Asked *asked; (asked = pull(&store->first, &store->last));) {
        do_one(asked);
        push(&store->done_first, &store->done_last, asked);
    }
    while (store->done_first)
        answer_one(store);
}

void fake_store_close(Store *store)
{
    if (store->pending)
        sim_fail("the store has %zu requests without an answer at its end", store->pending);
    free(store);
}

void asked_answer_done(Asked *asked, const Error *err)
{
    if (asked->done)
        asked->done(asked->data, asked->r, err);
}

DiskJob *asked_job(Asked *asked)
{
    DiskJob *job = disk_job(&world.disk, asked->job);
    if (!job)
        asked->r = -ENOENT;
    return job;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

typedef struct JobAsked {
    Asked asked;
    char *name, *spec, *owner, *reason, *result;
    int state;
    uint64_t id;
    StoreJobInserted inserted;
    StoreJobsLoaded loaded;
} JobAsked;

static void job_release(Asked *asked)
{
    JobAsked *job = (JobAsked *)asked;
    free(job->name);
    free(job->spec);
    free(job->owner);
    free(job->reason);
    free(job->result);
}

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

static void take_texts(JobAsked *asked, const JobRecord *job)
{
    asked->name = copy(job->name);
    asked->spec = copy(job->spec);
    asked->owner = copy(job->owner);
    asked->reason = copy(job->reason);
    asked->result = copy(job->result);
    asked->state = job->state;
}

static int insert_run(Asked *asked)
{
    JobAsked *insert = (JobAsked *)asked;
    if (world.disk.n == DISK_MAX_JOBS)
        return -ENOSPC;
    DiskJob *job = &world.disk.jobs[world.disk.n++];
    *job = (DiskJob){.record = {.id = ++world.disk.next_job,
                                .name = sim_copy_text(insert->name),
                                .spec = sim_copy_text(insert->spec),
                                .owner = sim_copy_text(insert->owner),
                                .reason = sim_copy_text(insert->reason),
                                .result = sim_copy_text(insert->result),
                                .state = insert->state,
                                .created_ms = 1}};
    insert->id = asked->job = job->record.id;
    return 0;
}

static void insert_answer(Asked *asked, const Error *err)
{
    const JobAsked *insert = (JobAsked *)asked;
    insert->inserted(asked->data, asked->r, err, insert->id);
}

static const AskedKind insert_kind = {.what = "insert the job",
                                      .writes = true,
                                      .run = insert_run,
                                      .answer = insert_answer,
                                      .release = job_release};

int store_job_insert(Store *store, const JobRecord *job, StoreJobInserted done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &insert_kind, sizeof(JobAsked), 0, data, &asked);
    if (r < 0)
        return r;
    take_texts((JobAsked *)asked, job);
    ((JobAsked *)asked)->inserted = done;
    asked_post(asked);
    return 0;
}

static void replace(char **text, const char *by)
{
    sim_release(*text);
    *text = sim_copy_text(by);
}

/* Every state of a job comes by, in order, but for those that a fault has kept away. */
static int update_run(Asked *asked)
{
    const JobAsked *update = (JobAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    if (job->record.state != update->state && !job->state_unsure &&
        !job_state_may_move((JobState)job->record.state, (JobState)update->state))
        sim_fail("job %llu goes from %s to %s in the store", (unsigned long long)asked->job,
                 job_state_name((JobState)job->record.state),
                 job_state_name((JobState)update->state));
    job->record.state = update->state;
    job->state_unsure = job->result_behind = false;
    replace(&job->record.reason, update->reason);
    replace(&job->record.result, update->result);
    return 0;
}

static void update_fails(Asked *asked)
{
    DiskJob *job = disk_job(&world.disk, asked->job);
    if (job)
        job->state_unsure = true;
}

static const AskedKind update_kind = {.what = "save the job's state",
                                      .writes = true,
                                      .run = update_run,
                                      .fails = update_fails,
                                      .answer = asked_answer_done,
                                      .release = job_release};

int store_job_update(Store *store, const JobRecord *job, StoreDone done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &update_kind, sizeof(JobAsked), job->id, data, &asked);
    if (r < 0)
        return r;
    asked->done = done;
    take_texts((JobAsked *)asked, job);
    asked_post(asked);
    return 0;
}

static int load_run(Asked *asked)
{
    (void)asked;
    return 0;
}

static void load_answer(Asked *asked, const Error *err)
{
    JobRecord records[DISK_MAX_JOBS];
    size_t n = 0;
    for (size_t i = 0; i < world.disk.n && asked->r == 0; i++)
        records[n++] = world.disk.jobs[i].record;
    ((JobAsked *)asked)->loaded(asked->data, asked->r, err, records, n);
}

static const AskedKind load_kind = {
    .what = "read the jobs", .run = load_run, .answer = load_answer, .release = job_release};

int store_jobs_load(Store *store, StoreJobsLoaded done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &load_kind, sizeof(JobAsked), 0, data, &asked);
    if (r < 0)
        return r;
    ((JobAsked *)asked)->loaded = done;
    asked_post(asked);
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------
 */

static int event_run(Asked *asked)
{
    return asked->job && !asked_job(asked) ? -ENOENT : 0;
}

static const AskedKind event_kind = {
    .what = "record an event", .writes = true, .run = event_run, .answer = asked_answer_done};

int store_event_add(Store *store, const EventRecord *event, StoreDone done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &event_kind, sizeof *asked, event->job, data, &asked);
    if (r < 0)
        return r;
    asked->done = done;
    trace("  event of job %llu: %s: %s (%s)", (unsigned long long)event->job, event->kind,
          event->text, event->who);
    asked_post(asked);
    return 0;
}
