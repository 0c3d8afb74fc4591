#include "floor.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "model/zoo.h"
#include "replica/replica.h"

enum { BATCHES = 8, PIXELS = 28 * 28, CLASSES = 10, MAX_LANES = 16 };

struct Floor {
    Graph *graph;
    Engine *engine;
    Replica *replica;
    int64_t batch;
    uint64_t step;
    uint8_t *pixels; /* (BATCHES, batch, 1, 28, 28) */
    int64_t *labels; /* (BATCHES, batch) */
    float lr;
};

/* A bright bar whose place is the class, over noise: something that can be learned. */
static void draw_digits(Floor *floor)
{
    RngKey key = {.seed = 1, .purpose = RNG_INIT};
    for (int64_t i = 0; i < BATCHES * floor->batch; i++) {
        uint8_t *pixels = floor->pixels + i * PIXELS;
        int64_t label = floor->labels[i] = rng_word(&key, (uint64_t)i) % CLASSES;
        for (int64_t j = 0; j < PIXELS; j++) {
            uint32_t noise = rng_word(&key, (uint64_t)(i * PIXELS + j)) % 64;
            bool bar = j / 28 / 2 == label + 2;
            pixels[j] = (uint8_t)(noise + (bar ? 191 : 0));
        }
    }
}

static int make_engine(Floor *floor, const Backend *backend, const ModelEntry *model, Error *err)
{
    const ModelDefaults *defaults = &model->defaults;
    EngineSpec spec = {
        .graph = floor->graph,
        .backend = backend,
        .threads = 1,
        .loss = defaults->loss,
        .seed = 1,
        .scale = defaults->scale,
        .channels = defaults->channels,
    };
    for (int i = 0; i < defaults->channels; i++) {
        spec.mean[i] = defaults->mean[i];
        spec.deviation[i] = defaults->deviation[i];
    }
    floor->lr = defaults->lr;
    int r = optimizer_parse("sgd", defaults->lr, &spec.optimizer, err);
    return r < 0 ? r : engine_new(&spec, &floor->engine, err);
}

int floor_new(const Backend *backend, int64_t batch, int rank, Floor **ret, Error *err)
{
    const ModelEntry *model = NULL;
    Floor *floor = calloc(1, sizeof *floor);
    if (!floor)
        return error_set(err, -ENOMEM, "no memory for the floor");
    floor->batch = batch;
    floor->pixels = malloc((size_t)(BATCHES * batch * PIXELS));
    floor->labels = malloc((size_t)(BATCHES * batch) * sizeof *floor->labels);
    if (!floor->pixels || !floor->labels) {
        floor_free(floor);
        return error_set(err, -ENOMEM, "no memory for the floor's batches");
    }
    int r = zoo_find("mnist-cnn", &model, err);
    if (r == 0)
        r = model->build(NULL, 0, &floor->graph, err);
    if (r == 0)
        r = make_engine(floor, backend, model, err);
    if (r == 0) {
        draw_digits(floor);
        engine_bind(floor->engine);
        r = replica_new(floor->engine, rank, &floor->replica, err);
    }
    if (r != 0) {
        floor_free(floor);
        return r;
    }
    *ret = floor;
    return 0;
}

Floor *floor_free(Floor *floor)
{
    if (!floor)
        return NULL;
    replica_free(floor->replica);
    engine_free(floor->engine);
    graph_free(floor->graph);
    free(floor->pixels);
    free(floor->labels);
    free(floor);
    return NULL;
}

int floor_time(Floor *floor, int steps, double *ret, Error *err)
{
    uint64_t begin = clock_monotonic_us();
    for (int i = 0; i < steps; i++) {
        int64_t at = (int64_t)(floor->step % BATCHES) * floor->batch;
        Batch batch = {.samples = floor->batch,
                       .x_is_u8 = true,
                       .x = floor->pixels + at * PIXELS,
                       .y = floor->labels + at};
        StepResult result;
        int r = replica_train(floor->replica, &batch, floor->step++, floor->lr, &result, err);
        if (r < 0)
            return r;
    }
    *ret = (double)(clock_monotonic_us() - begin) / steps;
    return 0;
}

/* ---- several lanes --------------------------------------------------------------------------- */

typedef struct LaneRun {
    pthread_t thread;
    const Backend *backend;
    int64_t batch;
    int rank;
    double seconds;
    pthread_barrier_t *start;
    double us; /* of a step */
    int result;
    Error err;
} LaneRun;

static int run_until(const LaneRun *run, Floor *floor, double *us, Error *err)
{
    uint64_t begin = clock_monotonic_us(), end = begin + (uint64_t)(run->seconds * 1e6);
    double sum = 0;
    int rounds = 0;
    while (clock_monotonic_us() < end) {
        int r = floor_time(floor, 4, us, err);
        if (r < 0)
            return r;
        sum += *us;
        rounds++;
    }
    *us = sum / rounds;
    return 0;
}

static void *lane_main(void *data)
{
    LaneRun *run = data;
    Floor *floor = NULL;
    run->result = floor_new(run->backend, run->batch, run->rank, &floor, &run->err);
    if (floor)
        run->result = floor_time(floor, 4, &run->us, &run->err); /* compiles, warms up */
    pthread_barrier_wait(run->start);
    if (floor && run->result == 0)
        run->result = run_until(run, floor, &run->us, &run->err);
    floor_free(floor);
    return NULL;
}

int floor_time_lanes(const Backend *backend, int64_t batch, int lanes, double seconds, double *ret,
                     Error *err)
{
    LaneRun runs[MAX_LANES];
    pthread_barrier_t start;
    if (lanes < 1 || lanes > MAX_LANES)
        return error_set(err, -EINVAL, "%d lanes are not 1 to %d", lanes, MAX_LANES);
    pthread_barrier_init(&start, NULL, (unsigned)lanes);
    for (int i = 0; i < lanes; i++) {
        runs[i] = (LaneRun){
            .backend = backend, .batch = batch, .rank = i, .seconds = seconds, .start = &start};
        if (pthread_create(&runs[i].thread, NULL, lane_main, &runs[i]) != 0)
            abort(); /* the others wait at the barrier for it */
    }
    int r = 0;
    for (int i = 0; i < lanes; i++) {
        pthread_join(runs[i].thread, NULL);
        ret[i] = runs[i].us;
        if (runs[i].result < 0 && r == 0)
            r = error_set(err, runs[i].result, "lane %d: %s", i, runs[i].err.message);
    }
    pthread_barrier_destroy(&start);
    return r;
}
