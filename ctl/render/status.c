#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ctl/cleanup.h"
#include "ctl/messages.h"
#include "ctl/render/bar.h"
#include "ctl/render/settings.h"
#include "ctl/render/status.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"
#include "ctl/text.h"

DEFINE_CLEANUP(Table, table_free);

enum {
    TEXT_SIZE = 256,
    LABEL_WIDTH = 12,
    BAR_MAX = 40,
    LIVE_FRAME_LINES = 6, /* of the live block, besides the trainers */
    HELD_UP_S = 5,        /* a meeting in good order takes no such time */
};

TermColour status_state_colour(Dps__V1__JobState state)
{
    switch (state) {
    case DPS__V1__JOB_STATE__RUNNING:
    case DPS__V1__JOB_STATE__COMPLETED:
        return TERM_GREEN;
    case DPS__V1__JOB_STATE__PAUSED:
    case DPS__V1__JOB_STATE__RECOVERING:
        return TERM_YELLOW;
    case DPS__V1__JOB_STATE__FAILED:
        return TERM_RED;
    case DPS__V1__JOB_STATE__CANCELLED:
    case DPS__V1__JOB_STATE__QUEUED:
    default:
        return TERM_DIM;
    }
}

/* A state may say more after its word: "computing (2 strikes)". */
TermColour status_trainer_colour(const char *state)
{
    size_t word = strcspn(state, " (,");
    static const struct {
        const char *state;
        TermColour colour;
    } colours[] = {
        {"computing", TERM_GREEN}, {"waiting", TERM_BLUE},    {"reading", TERM_BLUE},
        {"starting", TERM_YELLOW}, {"absent", TERM_YELLOW},   {"dropped", TERM_RED},
        {"done", TERM_DIM},        {"quarantined", TERM_RED},
    };

    if (strstr(state, "strike") || strstr(state, "quarantine"))
        return TERM_RED;
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (strlen(colours[i].state) == word && strncmp(state, colours[i].state, word) == 0)
            return colours[i].colour;
    return TERM_PLAIN;
}

double status_share(const Dps__V1__JobStatus *job)
{
    double share;

    if (job->state == DPS__V1__JOB_STATE__COMPLETED)
        return 1;
    if (job->samples_total == 0)
        return -1;
    share = (double)job->samples / (double)job->samples_total;
    return share < 1 ? share : 1;
}

bool status_is_evaluated(const Dps__V1__JobStatus *job)
{
    return job->accuracy >= 0 && job->accuracy_round > 0;
}

const Dps__V1__TrainerStatus *status_longest_waiting(const Dps__V1__JobStatus *job)
{
    const Dps__V1__TrainerStatus *longest = NULL;

    for (size_t i = 0; i < job->n_trainers; i++) {
        const Dps__V1__TrainerStatus *trainer = job->trainers[i];
        if (*trainer->waiting_for && (!longest || trainer->waiting_s > longest->waiting_s))
            longest = trainer;
    }
    return longest;
}

bool status_is_held_up(const Dps__V1__JobStatus *job)
{
    const Dps__V1__TrainerStatus *longest = status_longest_waiting(job);

    return longest && longest->waiting_s >= HELD_UP_S && !job_state_is_final(job->state);
}

/* ---- lines made of parts --------------------------------------------------------------------- */

/* A line of parts, two blanks apart; those that do not fit are left out. */
typedef struct Line {
    FILE *out;
    size_t used, width;
    bool full;
} Line;

__attribute__((format(printf, 3, 4))) static void line_part(Line *line, const char *colour_on,
                                                            const char *format, ...)
{
    char text[TEXT_SIZE];
    size_t columns, gap = line->used > 0 ? 2 : 0;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    columns = term_columns(text);
    if (line->full || (line->used > 0 && line->used + gap + columns > line->width)) {
        line->full = true;
        return;
    }
    fprintf(line->out, "%*s%s", (int)gap, "", colour_on);
    line->used += gap + term_print_cut(line->out, text, line->width);
    fputs(*colour_on ? "\033[0m" : "", line->out);
}

static void progress_bar(FILE *out, const Term *term, double share, size_t width)
{
    bar_print(out, term, share, width);
    fprintf(out, " %3d%%", (int)(share * 100));
}

/* ---- trainers -------------------------------------------------------------------------------- */

static void waiting_cell(Table *table, const Dps__V1__TrainerStatus *trainer)
{
    char duration[UNITS_SIZE];

    if (trainer->waiting_s > 0 && *trainer->waiting_for)
        table_cellf(table, "%s, %s", trainer->waiting_for,
                    units_duration(trainer->waiting_s, duration));
    else
        table_cell(table, *trainer->waiting_for ? trainer->waiting_for : "");
}

static int print_trainers(FILE *out, const Term *term, const Dps__V1__JobStatus *job, size_t most)
{
    static const TableColumn columns[] = {
        {"rank", true},    {"state", false},       {"step", true},     {"loss", true},
        {"device", false}, {"waiting for", false}, {"restarts", true}, {"client", false},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    size_t shown = job->n_trainers <= most ? job->n_trainers : most > 0 ? most - 1 : 0;
    char text[UNITS_SIZE];
    int r;

    if (!table)
        return -ENOMEM;
    if (job->n_trainers == 0)
        return 0;
    for (size_t i = 0; i < shown; i++) {
        const Dps__V1__TrainerStatus *trainer = job->trainers[i];
        table_cellf(table, "%" PRIu32, trainer->rank);
        table_cell(table, trainer->state);
        table_colour(table, status_trainer_colour(trainer->state));
        table_cellf(table, "%" PRIu64, trainer->step);
        table_cell(table, units_loss((double)trainer->loss, text));
        table_cell(table, trainer->device);
        waiting_cell(table, trainer);
        if (trainer->restarts > 0)
            table_cellf(table, "%" PRIu32, trainer->restarts);
        else
            table_cell(table, "");
        table_cell(table, trainer->client);
    }
    r = table_print(table, out, term, 2);
    if (shown < job->n_trainers)
        fprintf(out, "  %s and %zu more\n", term->utf8 ? "…" : "...", job->n_trainers - shown);
    return r;
}

/* ---- in full --------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void field(FILE *out, const char *label,
                                                        const char *format, ...)
{
    char text[2 * TEXT_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(out, "%*s: %s\n", LABEL_WIDTH, label, ctl_sanitise(text));
}

static void print_state(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    char reason[TEXT_SIZE];

    ctl_sanitise_to(job->reason, reason, sizeof reason);
    fprintf(out, "%*s: %s%s%s%s%s%s\n", LABEL_WIDTH, "State",
            term_on(term, status_state_colour(job->state)), job_state_name(job->state),
            term_off(term), *reason ? " (" : "", reason, *reason ? ")" : "");
}

static void print_progress(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    double share = status_share(job);
    char left[UNITS_SIZE], rate[UNITS_SIZE];

    if (share >= 0) {
        fprintf(out, "%*s: ", LABEL_WIDTH, "Progress");
        progress_bar(out, term, share, BAR_MAX / 2);
        fprintf(out, "  %" PRIu64 "/%" PRIu64 " samples\n", job->samples, job->samples_total);
    } else {
        field(out, "Progress", "%" PRIu64 " samples", job->samples);
    }
    field(out, "At", "round %" PRIu64 ", step %" PRIu64 ", epoch %" PRIu64, job->round, job->step,
          job->epoch);
    if (!job_state_is_final(job->state))
        field(out, "Speed", "%s samples/s%s%s%s", units_rate(job->samples_per_s, rate),
              job->eta_s >= 0 ? ", " : "", job->eta_s >= 0 ? units_duration(job->eta_s, left) : "",
              job->eta_s >= 0 ? " left" : "");
}

static void print_settings(FILE *out, const Dps__V1__JobStatus *job)
{
    char policy[TEXT_SIZE], more[TEXT_SIZE], lr[UNITS_SIZE];

    field(out, "Sync", "%s steps%s", settings_policy(job, policy, sizeof policy),
          settings_unusual(job, "sync.", more, sizeof more));
    field(out, "Optimizer", "%s, lr %s, batch %" PRIu32 "%s",
          *job->optimizer ? job->optimizer : "sgd", units_float(job->lr, lr), job->batch,
          settings_unusual(job, "optimizer.", more, sizeof more));
    if (*settings_unusual(job, "guard.", more, sizeof more))
        field(out, "Guard", "%s", more + strlen(", "));
    if (*settings_unknown(job, more, sizeof more))
        field(out, "Settings", "%s", more + strlen(", "));
}

static void print_results(FILE *out, const Dps__V1__JobStatus *job)
{
    char more[TEXT_SIZE], loss[UNITS_SIZE];
    const char *every = settings_value(job, "eval.every");

    if (job->step > 0)
        field(out, "Loss", "%s", units_loss((double)job->loss, loss));
    if (status_is_evaluated(job))
        field(out, "Accuracy", "%.4f, of round %" PRIu64, job->accuracy, job->accuracy_round);
    else if (every && strcmp(every, "0") != 0)
        field(out, "Accuracy", "not yet; evaluated every %s rounds", every);
    settings_unusual(job, "checkpoint.", more, sizeof more);
    if (job->checkpoint)
        field(out, "Checkpoint", "%" PRIu64 "%s", job->checkpoint, more);
    else if (*more)
        field(out, "Checkpoint", "none yet%s", more);
    if (*job->checksum)
        field(out, "Checksum", "%s", job->checksum);
}

static void print_members(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    const Dps__V1__TrainerStatus *longest = status_longest_waiting(job);
    char text[UNITS_SIZE], most[UNITS_SIZE] = "", awaited[TEXT_SIZE];

    if (longest)
        fprintf(out, "%*s: %s%s%s, for %s\n", LABEL_WIDTH, "Waiting for",
                term_on(term, status_is_held_up(job) ? TERM_YELLOW : TERM_PLAIN),
                ctl_sanitise_to(longest->waiting_for, awaited, sizeof awaited), term_off(term),
                units_duration(longest->waiting_s, text));
    if (job->max_trainers > job->n_trainers)
        snprintf(most, sizeof most, ", at most %" PRIu32, job->max_trainers);
    field(out, "Trainers", "%zu%s%s", job->n_trainers, most,
          job->external_trainers ? ", external" : "");
}

int status_print(FILE *out, const Term *term, const Dps__V1__JobStatus *job, uint64_t now_unix_ms)
{
    char a[UNITS_SIZE], b[UNITS_SIZE], name[TEXT_SIZE];

    fprintf(out, "%s%s%s job %" PRIu64 ": %s\n", term_on(term, status_state_colour(job->state)),
            term->utf8 ? "●" : "*", term_off(term), job->id,
            ctl_sanitise_to(job->name, name, sizeof name));
    print_state(out, term, job);
    field(out, "Created", "%s (%s)%s%s, ran %s", units_clock(job->created_unix_ms, a),
          units_ago(job->created_unix_ms, now_unix_ms, b), *job->owner ? " by " : "", job->owner,
          units_duration(job->running_s, (char[UNITS_SIZE]){0}));
    field(out, "Model", "%s, loss %s", job->model, *job->loss_function ? job->loss_function : "?");
    if (*job->data)
        field(out, "Data", "%s", job->data);
    print_settings(out, job);
    field(out, "Device", "%s, seed %" PRIu64, job->device, job->seed);
    print_progress(out, term, job);
    print_results(out, job);
    print_members(out, term, job);
    return print_trainers(out, term, job, TERM_NO_LIMIT);
}

/* ---- live ------------------------------------------------------------------------------------ */

static void live_title(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    Line line = {.out = out, .width = (size_t)term->width};
    char name[TEXT_SIZE], policy[TEXT_SIZE], more[TEXT_SIZE], reason[TEXT_SIZE];

    line_part(&line, term_on(term, TERM_BOLD), "job %" PRIu64, job->id);
    line_part(&line, term_on(term, status_state_colour(job->state)), "%s",
              job_state_name(job->state));
    line_part(&line, "", "%s", ctl_sanitise_to(job->name, name, sizeof name));
    line_part(&line, "", "%s%s", ctl_sanitise(settings_policy(job, policy, sizeof policy)),
              ctl_sanitise(settings_unusual(job, "sync.", more, sizeof more)));
    if (*job->reason)
        line_part(&line, "", "%s", ctl_sanitise_to(job->reason, reason, sizeof reason));
    fputc('\n', out);
}

static void live_progress(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    Line line = {.out = out, .width = (size_t)term->width};
    double share = status_share(job);
    enum { PERCENT = 5, BAR_MIN = 8 }; /* " 100%"; narrower bars say nothing */

    if (share >= 0) {
        size_t room = line.width > PERCENT ? line.width - PERCENT : 0;
        size_t bar = room < BAR_MAX ? room : BAR_MAX;
        if (bar >= BAR_MIN)
            bar_print(out, term, share, bar);
        fprintf(out, " %3d%%", (int)(share * 100));
        line.used = (bar >= BAR_MIN ? bar : 0) + PERCENT;
    }
    line_part(&line, "", "round %" PRIu64, job->round);
    line_part(&line, "", "step %" PRIu64, job->step);
    line_part(&line, "", "epoch %" PRIu64, job->epoch);
    fputc('\n', out);
}

static void live_numbers(FILE *out, const Term *term, const Dps__V1__JobStatus *job, double age_s)
{
    Line line = {.out = out, .width = (size_t)term->width};
    bool moving = job->state == DPS__V1__JOB_STATE__RUNNING;
    char text[UNITS_SIZE];

    if (job->step > 0) /* before, there is none */
        line_part(&line, "", "loss %s", units_loss((double)job->loss, text));
    if (status_is_evaluated(job))
        line_part(&line, "", "accuracy %.4f (round %" PRIu64 ")", job->accuracy,
                  job->accuracy_round);
    if (moving && job->samples_per_s > 0)
        line_part(&line, "", "%s samples/s", units_rate(job->samples_per_s, text));
    if (moving && job->eta_s >= 0)
        line_part(&line, "", "%s left",
                  units_duration(job->eta_s > age_s ? job->eta_s - age_s : 0, text));
    line_part(&line, "", "ran %s", units_duration(job->running_s + (moving ? age_s : 0), text));
    line_part(&line, "", "lr %s", units_float(job->lr, text));
    if (job->samples_total)
        line_part(&line, "", "%" PRIu64 "/%" PRIu64 " samples", job->samples, job->samples_total);
    fputc('\n', out);
}

/* Whom the others wait for: the table may be too narrow to say it in full. */
static void live_waiting(FILE *out, const Term *term, const Dps__V1__JobStatus *job)
{
    const Dps__V1__TrainerStatus *longest = status_longest_waiting(job);
    Line line = {.out = out, .width = (size_t)term->width};
    char text[UNITS_SIZE], awaited[TEXT_SIZE];

    line_part(&line, term_on(term, TERM_YELLOW), "waiting %s for %s",
              units_duration(longest->waiting_s, text),
              ctl_sanitise_to(longest->waiting_for, awaited, sizeof awaited));
    fputc('\n', out);
}

int status_print_live(FILE *out, const Term *term, const Dps__V1__JobStatus *job, double age_s,
                      const char *note)
{
    bool held_up = status_is_held_up(job) && term->height > LIVE_FRAME_LINES;
    int frame = LIVE_FRAME_LINES + held_up;
    size_t most = term->height > frame ? (size_t)(term->height - frame) : 0;
    int r = 0;

    live_title(out, term, job);
    live_progress(out, term, job);
    live_numbers(out, term, job, age_s);
    if (held_up)
        live_waiting(out, term, job);
    if (most > 0)
        r = print_trainers(out, term, job, most);
    if (note)
        fprintf(out, "%s%s%s\n", term_on(term, TERM_YELLOW), note, term_off(term));
    return r;
}

/* ---- a line ---------------------------------------------------------------------------------- */

void status_print_line(FILE *out, const Dps__V1__JobStatus *job)
{
    char text[UNITS_SIZE], reason[TEXT_SIZE], awaited[TEXT_SIZE];
    double share = status_share(job);

    fprintf(out, "job %" PRIu64 "  %s", job->id, job_state_name(job->state));
    if (share >= 0)
        fprintf(out, "  %3d%%", (int)(share * 100));
    fprintf(out, "  round %" PRIu64 "  step %" PRIu64 "  epoch %" PRIu64, job->round, job->step,
            job->epoch);
    if (job->step > 0) /* before, there is none */
        fprintf(out, "  loss %s", units_loss((double)job->loss, text));
    if (status_is_evaluated(job))
        fprintf(out, "  accuracy %.4f (round %" PRIu64 ")", job->accuracy, job->accuracy_round);
    if (job->state == DPS__V1__JOB_STATE__RUNNING && job->samples_per_s > 0) {
        fprintf(out, "  %s samples/s", units_rate(job->samples_per_s, text));
        if (job->eta_s >= 0)
            fprintf(out, "  %s left", units_duration(job->eta_s, text));
    }
    if (status_is_held_up(job)) {
        const Dps__V1__TrainerStatus *longest = status_longest_waiting(job);
        fprintf(out, "  waiting %s for %s", units_duration(longest->waiting_s, text),
                ctl_sanitise_to(longest->waiting_for, awaited, sizeof awaited));
    }
    if (*job->reason)
        fprintf(out, "  (%s)", ctl_sanitise_to(job->reason, reason, sizeof reason));
    fputc('\n', out);
}
