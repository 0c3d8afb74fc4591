/* In place of replica/engine.c, replica.c and member.c. Each call checks that it is made by a task
 * of the right lane and that nobody else has the replica at that time. */
#include "fake_replica.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

static const Backend backend = {.name = "sim"};

int backend_find(const char *name, const Backend **ret, Error *err)
{
    (void)name;
    (void)err;
    *ret = &backend;
    return 0;
}

void on_a_lane(const char *what)
{
    if (fake_lane_current() < 0)
        sim_fail("%s runs on the loop", what);
}

void on_the_loop(const char *what)
{
    if (fake_lane_current() >= 0)
        sim_fail("%s runs on lane %d", what, fake_lane_current());
}

uint64_t state_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 32;
    return a == SIM_STATE_NAN || b == SIM_STATE_NAN ? SIM_STATE_NAN : x;
}

/* ---- engines ----------------------------------------------------------------------------------
 */

int engine_new(const EngineSpec *spec, Engine **ret, Error *err)
{
    on_a_lane("engine_new");
    Engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return error_set(err, -ENOMEM, "out of memory");
    engine->spec = *spec;
    engine->lane = fake_lane_current();
    *ret = engine;
    return 0;
}

Engine *engine_free(Engine *engine)
{
    if (!engine)
        return NULL;
    if (engine->replicas || engine->contexts || engine->others)
        sim_fail("an engine goes before %u replicas, %u contexts and %u others", engine->replicas,
                 engine->contexts, engine->others);
    free(engine);
    return NULL;
}

const EngineSpec *engine_spec(const Engine *engine)
{
    return &engine->spec;
}

void engine_bind(Engine *engine)
{
    (void)engine;
    on_a_lane("engine_bind");
}

size_t engine_bytes(const Engine *engine)
{
    return 1000 + (size_t)engine->replicas * 1000;
}

/* ---- replicas ---------------------------------------------------------------------------------
 */

void hold_alone(Holder *holder, const char *what, int rank)
{
    on_a_lane(what);
    if (sim_now() < holder->until_us && holder->task != fake_lane_task())
        sim_fail("%s: another task has that of rank %d", what, rank);
    holder->task = fake_lane_task();
    holder->until_us = fake_lane_task_end();
}

void replica_touch(Replica *replica, const char *what)
{
    hold_alone(&replica->holder, what, replica->rank);
}

static void on_its_lane(Replica *replica, const char *what)
{
    replica_touch(replica, what);
    if (fake_lane_current() != replica->engine->lane)
        sim_fail("%s of rank %d runs on lane %d; its lane is %d", what, replica->rank,
                 fake_lane_current(), replica->engine->lane);
}

int replica_new(Engine *engine, int rank, Replica **ret, Error *err)
{
    Replica *replica = calloc(1, sizeof *replica);
    if (!replica)
        return error_set(err, -ENOMEM, "out of memory");
    replica->engine = engine;
    replica->job = sim_job_of_seed(engine->spec.seed);
    replica->rank = rank;
    replica->state = engine->spec.seed;
    engine->replicas++;
    *ret = replica;
    return 0;
}

int replica_new_shared(Engine *engine, int rank, Replica **ret, Error *err)
{
    int r = replica_new(engine, rank, ret, err);
    if (r == 0)
        (*ret)->shared = true;
    return r;
}

Replica *replica_free(Replica *replica)
{
    if (!replica)
        return NULL;
    on_its_lane(replica, "replica_free");
    replica->engine->replicas--;
    if (!replica->mean)
        ledger_leave(replica->job, &replica->history);
    free(replica);
    return NULL;
}

Engine *replica_engine(const Replica *replica)
{
    return replica->engine;
}

int replica_rank(const Replica *replica)
{
    return replica->rank;
}

uint64_t replica_version(const Replica *replica)
{
    return replica->version;
}

bool replica_is_shared(const Replica *replica)
{
    return replica->shared;
}

void replica_attach(Replica *replica, SharedVersion *version)
{
    if (version)
        version_read(version, "replica_attach");
    replica->attached = version;
}

/* ---- batches ----------------------------------------------------------------------------------
 */

const SimBatch *batch_of(const Batch *batch)
{
    const SimBatch *sim = batch->x;
    if (!sim || sim->magic != SIM_BATCH_MAGIC)
        sim_fail("a batch came to a replica after its memory was given back");
    return sim;
}

static int take_batch(Replica *replica, const Batch *batch, uint64_t step, const char *what,
                      Error *err)
{
    const SimBatch *sim = batch_of(batch);
    on_its_lane(replica, what);
    if (sim->rank != (uint32_t)replica->rank)
        sim_fail("job %llu: a batch of rank %u comes to the replica of rank %d",
                 (unsigned long long)replica->job->id, sim->rank, replica->rank);
    if (sim->step != step)
        sim_fail("job %llu rank %d: the batch of step %llu is used for step %llu",
                 (unsigned long long)replica->job->id, replica->rank, (unsigned long long)sim->step,
                 (unsigned long long)step);
    return sim->fails ? error_set(err, -EIO, "the device failed") : 0;
}

static void fill_result(const Replica *replica, const SimBatch *batch, StepResult *ret)
{
    ret->loss = batch->poison ? (float)(0.0 / 0.0) : 1.0F / (float)(1 + replica->updates);
    ret->compute_us = fake_lane_task_end() - sim_now();
}

int replica_train(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                  StepResult *ret, Error *err)
{
    Gradient gradient;
    int r = take_batch(replica, batch, step, "replica_train", err);
    if (replica->shared)
        sim_fail("replica_train for a shared replica");
    if (r < 0)
        return r;
    check_rate(replica->job, replica->rank, rule->lr);
    gradient_begin(&gradient, replica, batch_of(batch), (uint64_t)batch->samples);
    gradient_settle(replica, &gradient, rule, ret);
    if (ret->verdict == STEP_APPLIED) {
        replica->version++;
        replica->updates++;
        replica->state = state_mix(replica->state, gradient_print(&gradient));
    }
    if (!rule->hold)
        gradient_used(&gradient);
    fill_result(replica, batch_of(batch), ret);
    return 0;
}

int replica_gradient(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                     StepResult *ret, Error *err)
{
    int r = take_batch(replica, batch, step, "replica_gradient", err);
    if (!replica->shared || !replica->attached)
        sim_fail("replica_gradient without parameters");
    if (r < 0)
        return r;
    version_read(replica->attached, "replica_gradient");
    hold_alone(&replica->gradient.holder, "replica_gradient", replica->rank);
    gradient_begin(&replica->gradient, replica, batch_of(batch), (uint64_t)batch->samples);
    gradient_settle(replica, &replica->gradient, rule, ret);
    fill_result(replica, batch_of(batch), ret);
    return 0;
}

const float *replica_gradients(const Replica *replica)
{
    return (const float *)(const void *)&replica->gradient;
}

int replica_evaluate(Replica *replica, const Batch *batch, Evaluation *total, Error *err)
{
    (void)err;
    (void)batch_of(batch);
    on_its_lane(replica, "replica_evaluate");
    if (!replica->mean)
        sim_fail("an evaluation has a replica in training");
    total->samples += batch->samples;
    total->correct += (int64_t)sim_between(0, (uint64_t)batch->samples);
    total->loss_sum += (double)sim_between(0, 100) / 50 * (double)batch->samples;
    return 0;
}
