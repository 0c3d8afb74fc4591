#include "ctl/trainer/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

enum {
    BAR_MS = 250,    /* as fast as one reads */
    LINES_MS = 5000, /* a log of an hour stays readable */
};

int64_t progress_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

ProgressStyle progress_style(bool managed, bool json)
{
    if (managed || json)
        return PROGRESS_NONE;
    return isatty(STDOUT_FILENO) ? PROGRESS_BAR : PROGRESS_LINES;
}

static void show(Progress *p, int64_t now)
{
    double seconds = (double)(now - p->shown_ms) / 1000;
    double rate = seconds > 0 ? (double)(p->samples - p->shown_samples) / seconds : 0;

    printf("%sjob %" PRIu64 " rank %" PRIu32 "  epoch %" PRIu64 "  round %" PRIu64 "  step %" PRIu64
           "  loss %.4f  %.0f samples/s%s",
           p->style == PROGRESS_BAR ? "\r" : "", p->job, p->rank, p->epoch, p->round, p->step,
           (double)p->loss, rate, p->style == PROGRESS_BAR ? "\033[K" : "\n");
    fflush(stdout);
    p->open = p->style == PROGRESS_BAR;
    p->shown_ms = now;
    p->shown_samples = p->samples;
}

void progress_result(Progress *p, float loss, uint64_t samples)
{
    int64_t now;

    p->step++;
    p->steps++;
    p->samples += samples;
    p->loss = loss;
    if (p->style == PROGRESS_NONE)
        return;
    now = progress_now_ms();
    if (p->shown_ms == 0)
        p->shown_ms = now;
    if (now - p->shown_ms >= (p->style == PROGRESS_BAR ? BAR_MS : LINES_MS))
        show(p, now);
}

void progress_break(Progress *p)
{
    if (!p->open)
        return;
    printf("\n");
    fflush(stdout);
    p->open = false;
}

static void done_json(const Progress *p, const char *reason)
{
    cJSON *object = cJSON_CreateObject();
    char *text;

    cJSON_AddNumberToObject(object, "job", (double)p->job);
    cJSON_AddNumberToObject(object, "rank", p->rank);
    cJSON_AddNumberToObject(object, "step", (double)p->step);
    cJSON_AddNumberToObject(object, "samples", (double)p->samples);
    if (isfinite(p->loss))
        cJSON_AddNumberToObject(object, "loss", (double)p->loss);
    else
        cJSON_AddNullToObject(object, "loss");
    cJSON_AddStringToObject(object, "reason", reason);
    text = cJSON_PrintUnformatted(object);
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(object);
}

void progress_done(Progress *p, const char *reason, bool json)
{
    progress_break(p);
    if (json)
        done_json(p, reason);
    else if (p->style != PROGRESS_NONE && p->steps == 0)
        printf("job %" PRIu64 ": %s; there was nothing to feed\n", p->job, reason);
    else if (p->style != PROGRESS_NONE)
        printf("job %" PRIu64 " rank %" PRIu32 ": %s; fed %" PRIu64 " batches (%" PRIu64
               " samples), last loss %.4f\n",
               p->job, p->rank, reason, p->steps, p->samples, (double)p->loss);
    fflush(stdout);
}
