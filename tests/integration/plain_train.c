/* A plain training loop on dpsd's engine, without daemon, sessions, rounds or wire: what one
 * trainer on policy "average" must equal bit for bit.
 *
 *   plain_train --images FILE --labels FILE --samples N [--model M] [--batch B] [--steps S]
 *               [--epochs E] [--seed S] [--lr X] [--optimizer TEXT] [--backend NAME]
 *
 * images: N raw U8 samples of the model's input; labels: N bytes. Batch i of an epoch holds the
 * samples that the epoch's permutation has at B·i … B·i+B-1. Prints the checksum of the parameters
 * as `dpsctl status` shows it, and the loss of the last batch. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/rng.h"
#include "model/zoo.h"
#include "replica/mean.h"
#include "replica/snapshot.h"

typedef struct Run {
    const char *model, *images, *labels, *optimizer, *backend;
    uint64_t samples, batch, steps, epochs, seed;
    float lr;
} Run;

typedef struct Data {
    uint8_t *x, *y;
    int64_t width; /* bytes of a sample */
} Data;

static int die(const char *what, const Error *err)
{
    fprintf(stderr, "plain_train: %s: %s\n", what, err ? err->message : strerror(errno));
    return 1;
}

static uint8_t *read_bytes(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *data = malloc(bytes);
    if (data && fread(data, 1, bytes, file) != bytes) {
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

static EngineSpec engine_spec_of(const Run *run, const ModelEntry *model, const Graph *graph,
                                 const Backend *backend, const Optimizer *optimizer)
{
    EngineSpec spec = {.graph = graph,
                       .backend = backend,
                       .threads = 1,
                       .loss = model->defaults.loss,
                       .optimizer = *optimizer,
                       .seed = run->seed,
                       .scale = model->defaults.scale,
                       .channels = model->defaults.channels};
    memcpy(spec.mean, model->defaults.mean, sizeof spec.mean);
    memcpy(spec.deviation, model->defaults.deviation, sizeof spec.deviation);
    return spec;
}

/* x (batch, width) and y (batch) of batch `number`, counted through all epochs. Returns its
 * samples.
 */
static int64_t gather(const Run *run, const Data *data, uint64_t number, uint64_t *permutation,
                      uint8_t *x, int64_t *y)
{
    uint64_t per_epoch = (run->samples + run->batch - 1) / run->batch;
    uint64_t first = number % per_epoch * run->batch;
    uint64_t count = run->samples - first < run->batch ? run->samples - first : run->batch;
    if (number % per_epoch == 0) {
        RngKey key = {
            .seed = run->seed, .purpose = RNG_PERMUTATION, .a = (uint32_t)(number / per_epoch)};
        rng_permutation(&key, run->samples, permutation);
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = permutation[first + i];
        memcpy(x + i * data->width, data->x + index * data->width, data->width);
        y[i] = data->y[index];
    }
    return (int64_t)count;
}

static int train(const Run *run, const Data *data, Replica *replica, float lr)
{
    uint64_t per_epoch = (run->samples + run->batch - 1) / run->batch;
    uint64_t steps = run->steps ? run->steps : per_epoch * run->epochs;
    _cleanup_free_ uint64_t *permutation = calloc(run->samples, sizeof *permutation);
    _cleanup_free_ uint8_t *x = malloc(run->batch * data->width);
    _cleanup_free_ int64_t *y = malloc(run->batch * sizeof *y);
    if (!permutation || !x || !y)
        return die("memory", NULL);
    StepResult result = {0};
    const StepRule rule = {.lr = lr};
    for (uint64_t step = 0; step < steps; step++) {
        Error err = {0};
        Batch batch = {.x_is_u8 = true, .x = x, .y = y};
        batch.samples = gather(run, data, step, permutation, x, y);
        if (replica_train(replica, &batch, step, &rule, &result, &err) < 0)
            return die("step", &err);
    }
    fprintf(stderr, "%" PRIu64 " steps, last loss %.9g\n", steps, (double)result.loss);
    return 0;
}

static int print_checksum(const Graph *graph, const Optimizer *optimizer, Replica *replica)
{
    Snapshot *snapshot = NULL;
    if (snapshot_new(graph, optimizer, &snapshot) < 0 || replica_snapshot(replica, snapshot) < 0)
        return die("snapshot", NULL);
    printf("%016" PRIx64 "\n", snapshot_checksum(graph, snapshot));
    snapshot_free(snapshot);
    return 0;
}

static int run_on_engine(const Run *run, const ModelEntry *model, const Graph *graph)
{
    Error err = {0};
    Optimizer optimizer;
    const Backend *backend;
    Engine *engine = NULL;
    Replica *replica = NULL;
    float lr = run->lr > 0 ? run->lr : model->defaults.lr;
    if (optimizer_parse(run->optimizer, lr, &optimizer, &err) < 0)
        return die("optimizer", &err);
    if (backend_find(run->backend, &backend, &err) < 0)
        return die("backend", &err);
    EngineSpec spec = engine_spec_of(run, model, graph, backend, &optimizer);
    if (engine_new(&spec, &engine, &err) < 0)
        return die("engine", &err);
    engine_bind(engine);
    if (replica_new(engine, 0, &replica, &err) < 0)
        return die("replica", &err);
    Shape sample = model->defaults.input;
    Data data = {.width = shape_elements(&sample, 1)};
    data.x = read_bytes(run->images, run->samples * data.width);
    data.y = read_bytes(run->labels, run->samples);
    int status = !data.x || !data.y ? die("data", NULL) : train(run, &data, replica, optimizer.lr);
    if (status == 0)
        status = print_checksum(graph, &optimizer, replica);
    free(data.x);
    free(data.y);
    replica_free(replica);
    engine_free(engine);
    return status;
}

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},   {"images", required_argument, NULL, 'x'},
    {"labels", required_argument, NULL, 'y'},  {"samples", required_argument, NULL, 'n'},
    {"batch", required_argument, NULL, 'b'},   {"steps", required_argument, NULL, 's'},
    {"epochs", required_argument, NULL, 'e'},  {"seed", required_argument, NULL, 'r'},
    {"lr", required_argument, NULL, 'l'},      {"optimizer", required_argument, NULL, 'o'},
    {"backend", required_argument, NULL, 'k'}, {NULL, 0, NULL, 0}};

static int parse(int argc, char **argv, Run *run)
{
    int c;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        uint64_t *numbers[] = {['n'] = &run->samples,
                               ['b'] = &run->batch,
                               ['s'] = &run->steps,
                               ['e'] = &run->epochs,
                               ['r'] = &run->seed};
        const char **texts[] = {['m'] = &run->model,
                                ['x'] = &run->images,
                                ['y'] = &run->labels,
                                ['o'] = &run->optimizer,
                                ['k'] = &run->backend};
        if (c == '?')
            return -1;
        if (c == 'l')
            run->lr = strtof(optarg, NULL);
        else if ((size_t)c < sizeof numbers / sizeof *numbers && numbers[c])
            *numbers[c] = strtoull(optarg, NULL, 10);
        else
            *texts[c] = optarg;
    }
    return run->images && run->labels && run->samples && run->batch ? 0 : -1;
}

int main(int argc, char **argv)
{
    Run run = {.model = "mnist-cnn", .optimizer = "sgd", .batch = 32, .epochs = 1};
    if (parse(argc, argv, &run) < 0) {
        fprintf(stderr, "usage: plain_train --images FILE --labels FILE --samples N …\n");
        return 2;
    }
    Error err = {0};
    const ModelEntry *model;
    Graph *graph = NULL;
    if (zoo_find(run.model, &model, &err) < 0)
        return die("model", &err);
    if (model->build(NULL, 0, &graph, &err) < 0)
        return die(run.model, &err);
    int status = run_on_engine(&run, model, graph);
    graph_free(graph);
    return status;
}
