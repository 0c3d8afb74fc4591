#include "ctl/trainer/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl/args.h"
#include "ctl/report.h"
#include "ctl/trainer/backoff.h"
#include "ctl/trainer/link.h"
#include "ctl/trainer/stop.h"

enum {
    RECONNECT_S = 600,
    /* A daemon that was never reached is more likely misspelt than away for long. */
    FIRST_CONNECT_S = 10,
    /* As long as a dead session of ours may keep the rank: trainer.lease and a bit. */
    BUSY_S = 20,
    /* A session that lived so long was a good one: patience begins anew. */
    GOOD_MS = 2000,
};

/* ---- options --------------------------------------------------------------------------------- */

typedef struct TrainerArgs {
    const char *job, *data;
    uint64_t rank, parent, reconnect;
    uint32_t accumulate;
    bool managed;
} TrainerArgs;

static const ArgOption arg_options[] = {
    {"job", 0, ARG_STRING, offsetof(TrainerArgs, job), "JOB", "the job's number"},
    {"rank", 'r', ARG_U64, offsetof(TrainerArgs, rank), "R", "which rank to be (any free one)"},
    {"data", 'd', ARG_STRING, offsetof(TrainerArgs, data), "DIR",
     "IDX files or .npz with x and y, or synthetic[:SEED[:COUNT]]"},
    {"accumulate", 0, ARG_U32, offsetof(TrainerArgs, accumulate), "A",
     "batches to an optimizer step: their gradients are averaged (1)"},
    {"reconnect", 0, ARG_U64, offsetof(TrainerArgs, reconnect), "SECONDS",
     "how long to look for a daemon that went away (600)"},
    {"managed", 0, ARG_FLAG, offsetof(TrainerArgs, managed), NULL,
     "started by dpsd: say nothing but warnings; DPS_TRAINER_TOKEN has the token"},
    {"parent", 0, ARG_U64, offsetof(TrainerArgs, parent), "PID", "end when this process does"},
};

const ArgSpec trainer_args = {
    .verb = "trainer",
    .positional = "",
    .summary = "Feed one rank of a job with batches",
    .details = "Runs until the job is done. When the daemon goes away it comes back by itself and "
               "goes on\n"
               "where the job stands. SIGTERM and SIGINT leave the job; the rank's remaining work "
               "goes to\n"
               "the other trainers. With --accumulate A a group of A batches is one step of the "
               "optimizer;\n"
               "the last group may be smaller. Trainers in other languages need only "
               "proto/dps.proto.\n",
    .options = arg_options,
    .count = sizeof(arg_options) / sizeof(arg_options[0]),
};

static int parse(int argc, char **argv, TrainerArgs *args, CtlOptions *options, LinkPlan *plan)
{
    Args positional;
    int r = args_parse(&trainer_args, argc, argv, args, options, &positional);

    if (r >= 0)
        return r;
    if (!args->job || !args->data) {
        ctl_error(options, "USAGE", "trainer needs --job and --data; see dpsctl trainer --help");
        return CTL_EXIT_USAGE;
    }
    if (args_number(args->job, &plan->job) < 0) {
        ctl_error(options, "USAGE", "--job: '%s' is not the number of a job", args->job);
        return CTL_EXIT_USAGE;
    }
    if ((args->rank != UINT64_MAX && args->rank > UINT32_MAX) || args->parent > INT_MAX ||
        args->reconnect > INT_MAX) {
        ctl_error(options, "USAGE", "--rank, --parent or --reconnect is too large");
        return CTL_EXIT_USAGE;
    }
    plan->address = options->address;
    plan->any_rank = args->rank == UINT64_MAX;
    plan->rank = plan->any_rank ? 0 : (uint32_t)args->rank;
    plan->data = args->data;
    plan->accumulate = args->accumulate;
    plan->managed = args->managed;
    return -1;
}

/* ---- staying with the job -------------------------------------------------------------------- */

typedef struct Trainer {
    const CtlOptions *options;
    LinkPlan plan;
    Progress progress;
    Backoff backoff;
    int64_t reconnect_ms;
    int64_t trouble_since; /* 0: there is none */
    bool busy;             /* the trouble is that the rank is taken */
    bool joined;           /* ever */
} Trainer;

/* How long this kind of trouble is borne. A daemon that answers is waited for without limit. */
static int64_t patience_ms(const Trainer *t, LinkEnd end)
{
    if (end == LINK_BUSY)
        return BUSY_S * 1000;
    if (!t->joined && t->reconnect_ms > FIRST_CONNECT_S * 1000)
        return FIRST_CONNECT_S * 1000;
    return t->reconnect_ms;
}

/* Says once an outage what goes on. */
static void announce(Trainer *t, const LinkResult *result, int64_t patience)
{
    progress_break(&t->progress);
    if (result->end == LINK_LOST)
        ctl_note("%s; trying again for up to %" PRId64 " s", result->status.message,
                 patience / 1000);
    else
        ctl_note("%s; trying again", result->status.message);
}

static int give_up(Trainer *t, const LinkResult *result)
{
    progress_break(&t->progress);
    return ctl_report_status(t->options, &result->status);
}

/* A link ended in a way that may pass: waits a while, or gives up. -1: try again. */
static int try_again(Trainer *t, const LinkResult *result, int64_t began)
{
    int64_t now = progress_now_ms(), patience = patience_ms(t, result->end);
    bool busy = result->end == LINK_BUSY;

    /* A daemon that answers a Join with "come back" is there: nothing is lost yet. */
    bool alive = result->end == LINK_AGAIN && !result->joined;

    if (result->steps > 0 || (result->joined && now - began >= GOOD_MS)) {
        backoff_reset(&t->backoff);
        t->trouble_since = 0;
    }
    if (t->trouble_since == 0 || busy != t->busy) {
        t->trouble_since = now;
        announce(t, result, patience);
    } else if (alive) {
        t->trouble_since = now;
    }
    t->busy = busy;
    if (!alive && now - t->trouble_since >= patience)
        return give_up(t, result);
    if (!stop_sleep(backoff_next(&t->backoff)))
        return stop_exit_status();
    return -1;
}

static int done(Trainer *t, const LinkResult *result)
{
    bool failed = strcmp(result->reason, "failed") == 0;

    if (failed) {
        progress_break(&t->progress);
        ctl_error(t->options, "FAILED",
                  "job %" PRIu64 " failed; dpsctl status %" PRIu64 " says why", t->plan.job,
                  t->plan.job);
        return CTL_EXIT_FAILED;
    }
    progress_done(&t->progress, result->reason, t->options->json);
    return CTL_EXIT_DONE;
}

/* Whether a reason of Done is final. Others, such as a job that was put back to a checkpoint, ask
 * to join again. */
static bool is_final(const char *reason)
{
    static const char *const reasons[] = {"completed", "cancelled", "failed", "left"};

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strcmp(reason, reasons[i]) == 0)
            return true;
    return false;
}

/* What to do after a link: -1 to go on with another, else the exit status. */
static int after(Trainer *t, LinkResult *result, int64_t began)
{
    t->joined |= result->joined;
    if (result->end == LINK_DONE && !is_final(result->reason)) {
        snprintf(result->status.message, sizeof(result->status.message),
                 "job %" PRIu64 " was interrupted: %s", t->plan.job, result->reason);
        result->end = LINK_AGAIN;
    }
    switch (result->end) {
    case LINK_DONE:
        return done(t, result);
    case LINK_STOPPED:
        progress_done(&t->progress, "left", t->options->json);
        return stop_exit_status();
    case LINK_NO_JOB:
    case LINK_REFUSED:
        return give_up(t, result);
    case LINK_LOST:
    case LINK_AGAIN:
    case LINK_BUSY:
        break;
    }
    return try_again(t, result, began);
}

static int feed_job(Trainer *t)
{
    LinkResult result;
    int status = -1;

    while (status < 0) {
        int64_t began = progress_now_ms();

        link_run(&t->plan, &t->progress, &result);
        status = after(t, &result, began);
    }
    return status;
}

/* Any seed will do: trainers only should not agree. */
static uint64_t some_seed(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
}

int trainer_main(int argc, char **argv, const CtlOptions *given)
{
    TrainerArgs args = {.rank = UINT64_MAX, .reconnect = RECONNECT_S, .accumulate = 1};
    CtlOptions options = *given;
    Trainer t = {.options = &options};
    const char *token = getenv("DPS_TRAINER_TOKEN");
    char problem[400];
    int r = parse(argc, argv, &args, &options, &t.plan);

    if (r >= 0)
        return r;
    if (stop_init(args.managed) < 0) {
        ctl_error(&options, "INTERNAL", "cannot watch for signals: %s", strerror(errno));
        return CTL_EXIT_FAILED;
    }
    if (args.parent > 0 && !stop_with_parent((int)args.parent))
        return CTL_EXIT_FAILED; /* whoever would read why is gone */
    if (dataset_open(args.data, DATASET_TRAIN, 0, &t.plan.dataset, problem, sizeof(problem)) < 0) {
        ctl_error(&options, "FILE", "%s", problem);
        return CTL_EXIT_FAILED;
    }
    t.plan.token = token ? token : "";
    t.progress.style = progress_style(args.managed, options.json);
    t.progress.job = t.plan.job;
    t.backoff.random = some_seed();
    t.reconnect_ms = (int64_t)args.reconnect * 1000;
    r = feed_job(&t);
    dataset_free(t.plan.dataset);
    return r;
}
