/* bench_engine [--json] [--quick] [--seconds S]
 *
 * The engine against the oneDNN primitives of the same step, measured in turns in one run:
 * mnist-cnn, batch 32, one thread a lane. Prints steps/s and where a step's time goes. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "base/clock.h"
#include "floor.h"
#include "primitives.h"
#include "timed_backend.h"

enum {
    BATCH = 32,
    LANES = 2,
    MAX_TURNS = 1000,
    STEPS_A_TURN = 8,
    MAX_NAMES = 32,
};

typedef struct Options {
    bool json;
    double seconds;
} Options;

typedef struct Samples {
    double values[MAX_TURNS];
    int count;
} Samples;

typedef struct Bench {
    PrimitiveSet *primitives;
    Floor *floor, *timed;
    Samples primitive_us[MAX_NAMES], all_us, matrix_us, floor_us, ratio, matrix_ratio;
    double lane_us[LANES];
    double timed_us; /* a step with a clock around every call */
    int timed_steps;
} Bench;

/* ---- numbers --------------------------------------------------------------------------------- */

static void sample(Samples *samples, double value)
{
    if (samples->count < MAX_TURNS)
        samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(Samples *samples)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->values, (size_t)samples->count, sizeof *samples->values, compare);
    return samples->values[samples->count / 2];
}

/* ---- measuring ------------------------------------------------------------------------------- */

static uint64_t deadline_after(double seconds)
{
    return clock_monotonic_us() + (uint64_t)(seconds * 1e6);
}

/* Primitives and engine next to each other, so that a ratio compares the same moment. */
static int one_turn(Bench *bench, Error *err)
{
    double all = 0, matrix = 0, engine = 0;
    for (int i = 0; i < primitive_set_count(bench->primitives); i++) {
        double us = primitive_set_time(bench->primitives, i, STEPS_A_TURN);
        sample(&bench->primitive_us[i], us);
        all += us;
        matrix += primitive_set_is_matrix(bench->primitives, i) ? us : 0;
    }
    int r = floor_time(bench->floor, STEPS_A_TURN, &engine, err);
    if (r < 0)
        return r;
    sample(&bench->all_us, all);
    sample(&bench->matrix_us, matrix);
    sample(&bench->floor_us, engine);
    sample(&bench->ratio, all / engine);
    sample(&bench->matrix_ratio, matrix / engine);
    return 0;
}

static int measure_breakdown(Bench *bench, double seconds, Error *err)
{
    double us = 0;
    int r = floor_time(bench->timed, STEPS_A_TURN, &us, err); /* compiles, warms up */
    uint64_t end = deadline_after(seconds);
    timed_backend_reset();
    while (r == 0 && (bench->timed_steps == 0 || clock_monotonic_us() < end)) {
        r = floor_time(bench->timed, STEPS_A_TURN, &us, err);
        bench->timed_us += us * STEPS_A_TURN;
        bench->timed_steps += STEPS_A_TURN;
    }
    bench->timed_us /= bench->timed_steps > 0 ? bench->timed_steps : 1;
    return r;
}

static int measure(Bench *bench, const Options *options, Error *err)
{
    double warm = 0;
    int r = primitive_set_new(BATCH, &bench->primitives, err);
    if (r == 0)
        r = floor_new(&backend_onednn, BATCH, 0, &bench->floor, err);
    if (r == 0)
        r = floor_new(&timed_backend, BATCH, 0, &bench->timed, err);
    if (r == 0)
        r = floor_time(bench->floor, STEPS_A_TURN, &warm, err);
    uint64_t end = deadline_after(options->seconds * 0.6);
    while (r == 0 && (bench->floor_us.count < 3 || clock_monotonic_us() < end) &&
           bench->floor_us.count < MAX_TURNS)
        r = one_turn(bench, err);
    if (r == 0)
        r = measure_breakdown(bench, options->seconds * 0.2, err);
    if (r == 0)
        r = floor_time_lanes(&backend_onednn, BATCH, LANES, options->seconds * 0.2, bench->lane_us,
                             err);
    return r;
}

/* ---- printing -------------------------------------------------------------------------------- */

static cJSON *primitives_json(Bench *bench)
{
    cJSON *list = cJSON_CreateObject();
    for (int i = 0; i < primitive_set_count(bench->primitives); i++)
        cJSON_AddNumberToObject(list, primitive_set_name(bench->primitives, i),
                                median(&bench->primitive_us[i]));
    return list;
}

/* Microseconds a step by call, and what lies between the calls. */
static cJSON *breakdown_json(const Bench *bench)
{
    cJSON *list = cJSON_CreateObject();
    double inside = 0;
    for (int i = 0; i < timed_backend_count(); i++) {
        const TimedEntry *entry = timed_backend_entry(i);
        double us = (double)entry->ns / 1e3 / bench->timed_steps;
        if (entry->calls > 0)
            cJSON_AddNumberToObject(list, entry->name, us);
        inside += us;
    }
    cJSON_AddNumberToObject(list, "between the calls", bench->timed_us - inside);
    return list;
}

static cJSON *results_json(Bench *bench)
{
    cJSON *root = cJSON_CreateObject();
    double lanes = 0;
    for (int i = 0; i < LANES; i++)
        lanes += 1e6 / bench->lane_us[i];
    cJSON_AddNumberToObject(root, "primitives", 1e6 / median(&bench->all_us));
    cJSON_AddNumberToObject(root, "primitives_matrix", 1e6 / median(&bench->matrix_us));
    cJSON_AddNumberToObject(root, "floor", 1e6 / median(&bench->floor_us));
    cJSON_AddNumberToObject(root, "floor_2", lanes);
    cJSON_AddNumberToObject(root, "ratio_engine", median(&bench->ratio));
    cJSON_AddNumberToObject(root, "ratio_engine_matrix", median(&bench->matrix_ratio));
    cJSON_AddNumberToObject(root, "turns", bench->floor_us.count);
    cJSON_AddItemToObject(root, "primitives_us", primitives_json(bench));
    cJSON_AddItemToObject(root, "step_us", breakdown_json(bench));
    return root;
}

static int compare_items(const void *a, const void *b)
{
    double x = (*(const cJSON *const *)a)->valuedouble, y = (*(const cJSON *const *)b)->valuedouble;
    return (x < y) - (x > y);
}

/* The largest first. */
static void print_items(const char *title, const cJSON *list)
{
    const cJSON *items[TIMED_MAX], *item;
    int count = 0;
    printf("\n%s (us a step)\n", title);
    cJSON_ArrayForEach(item, list) if (count < TIMED_MAX) items[count++] = item;
    qsort(items, (size_t)count, sizeof *items, compare_items);
    for (int i = 0; i < count; i++)
        printf("  %-28s %9.1f\n", items[i]->string, items[i]->valuedouble);
}

static void print_table(const cJSON *root)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        if (cJSON_IsObject(item))
            print_items(item->string, item);
        else
            printf("%-22s %9.3f\n", item->string, item->valuedouble);
    }
}

static int report(Bench *bench, const Options *options)
{
    cJSON *root = results_json(bench);
    char *text = root ? cJSON_Print(root) : NULL;
    if (text && options->json)
        puts(text);
    else if (text)
        print_table(root);
    int r = text ? 0 : -ENOMEM;
    free(text);
    cJSON_Delete(root);
    return r;
}

static int parse_options(int argc, char **argv, Options *options)
{
    *options = (Options){.seconds = 20};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            options->json = true;
        else if (strcmp(argv[i], "--quick") == 0)
            options->seconds = 4;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            options->seconds = strtod(argv[++i], NULL);
        else
            return -EINVAL;
    }
    return options->seconds > 0 ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
    static Bench bench;
    Options options;
    Error err = {0};
    if (parse_options(argc, argv, &options) < 0) {
        fprintf(stderr, "usage: bench_engine [--json] [--quick] [--seconds S]\n");
        return 2;
    }
    int r = measure(&bench, &options, &err);
    if (r == 0)
        r = report(&bench, &options);
    if (r < 0)
        fprintf(stderr, "bench_engine: %s\n", err.message);
    primitive_set_free(bench.primitives);
    floor_free(bench.floor);
    floor_free(bench.timed);
    return r < 0;
}
