#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ctl/interrupt.h"
#include "ctl/json.h"
#include "ctl/render/bar.h"
#include "ctl/render/status.h"
#include "ctl/render/units.h"
#include "ctl/watch.h"

enum {
    UPDATE_MS = 250,        /* between statuses, on a terminal */
    UPDATE_PIPE_MS = 500,   /* in a pipe */
    REDRAW_MS = 500,        /* the time to the end moves on without news */
    LINE_MS = 5000,         /* between lines in a pipe while the round stays the same */
    ROUND_LINE_MS = 2000,   /* while rounds go by */
    AWAY_MS = 60 * 1000,    /* how long a daemon may be away */
    BACKOFF_FIRST_MS = 200, /* between tries to reconnect, doubled up to … */
    BACKOFF_LAST_MS = 2000,
};

typedef struct Watch {
    Request *request;
    Term term;
    LiveBlock *live;           /* on a terminal */
    Dps__V1__JobStatus *job;   /* the latest status */
    int64_t job_ms;            /* when it came */
    bool fresh;                /* it has not been shown yet */
    Dps__V1__JobStatus *shown; /* in a pipe: what the last line said */
    int64_t shown_ms;
    bool no_memory;
    bool away; /* said so already */
} Watch;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static Dps__V1__JobStatus *copy_status(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    _cleanup_free_ uint8_t *packed = malloc(size + 1);

    if (!packed)
        return NULL;
    protobuf_c_message_pack(message, packed);
    return dps__v1__job_status__unpack(NULL, size, packed);
}

static void replace(Dps__V1__JobStatus **slot, Dps__V1__JobStatus *with)
{
    if (*slot)
        dps__v1__job_status__free_unpacked(*slot, NULL);
    *slot = with;
}

static void on_status(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    Watch *watch = user;
    Dps__V1__JobStatus *copy = copy_status(message);

    (void)stream;
    if (!copy) {
        watch->no_memory = true;
        return;
    }
    replace(&watch->job, copy);
    watch->job_ms = now_ms();
    watch->fresh = true;
    watch->away = false;
}

/* ---- showing --------------------------------------------------------------------------------- */

static void draw(Watch *watch, const char *note)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory;

    if (!watch->live || !watch->job)
        return;
    if (interrupt_resized())
        term_resize(&watch->term, stdout);
    memory = open_memstream(&text, &size);
    if (!memory)
        return;
    Term narrower = watch->term; /* the block keeps off the last column */
    narrower.width = narrower.width > 1 ? narrower.width - 1 : 1;
    status_print_live(memory, &narrower, watch->job, (double)(now_ms() - watch->job_ms) / 1000,
                      note);
    fclose(memory);
    if (text)
        live_draw(watch->live, text);
    free(text);
}

/* Whether a status is worth a line in a pipe. */
static bool wants_line(const Watch *watch)
{
    int64_t silent_ms = now_ms() - watch->shown_ms;

    if (!watch->shown || watch->shown->state != watch->job->state)
        return true;
    if (watch->shown->accuracy_round != watch->job->accuracy_round)
        return true;
    if (status_is_held_up(watch->job) && !status_is_held_up(watch->shown))
        return silent_ms >= LINE_MS;
    if (watch->shown->round != watch->job->round)
        return silent_ms >= ROUND_LINE_MS;
    return watch->shown->step != watch->job->step && silent_ms >= LINE_MS;
}

static void print_line(Watch *watch)
{
    Dps__V1__JobStatus *copy;

    if (!watch->fresh || !wants_line(watch))
        return;
    status_print_line(stdout, watch->job);
    fflush(stdout);
    copy = copy_status(&watch->job->base);
    if (!copy)
        watch->no_memory = true;
    replace(&watch->shown, copy);
    watch->shown_ms = now_ms();
    watch->fresh = false;
}

static void show(Watch *watch)
{
    if (watch->request->options.json) {
        if (watch->fresh && json_print(json_job(watch->job)) == -ENOMEM)
            watch->no_memory = true;
        watch->fresh = false;
    } else if (watch->live) {
        draw(watch, NULL);
    } else {
        print_line(watch);
    }
}

/* ---- following ------------------------------------------------------------------------------- */

/* One Watch call until it ends. Returns whether it is worth another try; `status` says how it
 * ended. */
static bool follow(Watch *watch, ClientStatus *status)
{
    static const ClientStreamHandler handler = {.on_message = on_status};
    Dps__V1__WatchRequest request = DPS__V1__WATCH_REQUEST__INIT;
    Client *client = watch->request->client;
    ClientStream *stream = NULL;
    int r;

    request.job = watch->request->job;
    request.interval_ms = watch->live ? UPDATE_MS : UPDATE_PIPE_MS;
    *status = (ClientStatus){.code = GRPC_UNAVAILABLE, .lost = true};
    r = client_stream_open(client, &dps__v1__control__descriptor, "Watch", -1, &handler, watch,
                           &stream);
    if (r == 0)
        r = client_stream_send(stream, &request.base);
    if (r < 0) {
        snprintf(status->message, sizeof status->message, "%s",
                 r == -ENOTCONN ? client_problem(client) : strerror(-r));
        client_stream_free(stream);
        return r == -ENOTCONN;
    }
    client_stream_close_send(stream);
    while (!client_stream_is_ended(stream) && !interrupt_pending() && !watch->no_memory) {
        client_run_once(client, REDRAW_MS);
        if (watch->job)
            show(watch);
    }
    if (client_stream_is_ended(stream))
        *status = *client_stream_status(stream);
    client_stream_free(stream);
    /* A daemon that stops ends the call itself, perhaps before the job has ended. */
    return status->lost || status->code == GRPC_UNAVAILABLE || status->code == GRPC_CANCELLED ||
           status->code == GRPC_OK;
}

static void say_away(Watch *watch)
{
    static const char text[] = "daemon away, reconnecting";

    if (watch->live && watch->job)
        draw(watch, text);
    else if (!watch->away)
        ctl_note("%s", text);
    watch->away = true;
}

/* Tries to connect until `deadline`. */
static bool reconnect(Watch *watch, int64_t deadline, int *backoff_ms, ClientStatus *status)
{
    Request *request = watch->request;

    interrupt_attach(NULL);
    request->client = client_free(request->client);
    say_away(watch);
    while (now_ms() < deadline && !interrupt_pending()) {
        ClientStatus problem;
        poll(NULL, 0, *backoff_ms);
        *backoff_ms = 2 * *backoff_ms < BACKOFF_LAST_MS ? 2 * *backoff_ms : BACKOFF_LAST_MS;
        if (interrupt_resized())
            term_resize(&watch->term, stdout);
        if (client_open(request->options.address, BACKOFF_LAST_MS, &request->client, &problem) ==
            0) {
            interrupt_attach(request->client);
            return true;
        }
        *status = problem;
    }
    return false;
}

static bool is_over(const Watch *watch)
{
    return watch->no_memory || interrupt_pending() ||
           (watch->job && job_state_is_final(watch->job->state));
}

/* Follows over as many connections as it takes. */
static void follow_all(Watch *watch, ClientStatus *status)
{
    int backoff_ms = BACKOFF_FIRST_MS;
    int64_t heard_ms = now_ms();

    interrupt_attach(watch->request->client);
    while (follow(watch, status) && !is_over(watch)) {
        if (watch->job && watch->job_ms > heard_ms) {
            heard_ms = now_ms();
            backoff_ms = BACKOFF_FIRST_MS;
        }
        if (!reconnect(watch, heard_ms + AWAY_MS, &backoff_ms, status))
            break;
    }
    interrupt_attach(NULL);
}

static int verdict(const Watch *watch, const ClientStatus *status)
{
    const CtlOptions *options = &watch->request->options;

    if (watch->no_memory) {
        ctl_error(options, "MEMORY", "out of memory");
        return CTL_EXIT_FAILED;
    }
    if (interrupt_pending()) {
        if (!options->json)
            ctl_note("job %" PRIu64 " goes on; dpsctl watch %" PRIu64 " shows it again",
                     watch->request->job, watch->request->job);
        return CTL_EXIT_FAILED;
    }
    if (!watch->job || !job_state_is_final(watch->job->state)) {
        int exit_status = ctl_report_status(options, status);
        if (exit_status == CTL_EXIT_DONE)
            ctl_error(options, "UNAVAILABLE",
                      "dpsd ended the watch of job %" PRIu64 " before the job has ended",
                      watch->request->job);
        return exit_status == CTL_EXIT_DONE ? CTL_EXIT_FAILED : exit_status;
    }
    if (watch->job->state == DPS__V1__JOB_STATE__COMPLETED)
        return CTL_EXIT_DONE;
    ctl_error(options, job_state_name(watch->job->state), "job %" PRIu64 " is %s%s%s",
              watch->job->id, job_state_name(watch->job->state), *watch->job->reason ? ": " : "",
              watch->job->reason);
    return CTL_EXIT_FAILED;
}

int watch_job(Request *request)
{
    Watch watch = {.request = request, .term = term_of(stdout)};
    ClientStatus status = {.code = GRPC_OK};
    int r;

    if (watch.term.tty && !request->options.json)
        watch.live = live_new(stdout, &watch.term);
    interrupt_begin();
    follow_all(&watch, &status);
    if (watch.job && watch.live)
        draw(&watch, NULL);
    watch.live = live_free(watch.live);
    r = verdict(&watch, &status);
    replace(&watch.job, NULL);
    replace(&watch.shown, NULL);
    fflush(stdout);
    interrupt_die();
    return r;
}
