#include "plan_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void plan_run_open(PlanRun *run, const Backend *backend, const Graph *graph, int64_t batch,
                   bool training)
{
    static const Optimizer sgd = {.kind = OPTIMIZER_SGD};
    Error err = {0};
    *run = (PlanRun){.graph = graph};
    assert_int_equal(accelerator_open(backend, 0, 1, &run->accelerator, &err), 0);
    accelerator_bind(&run->accelerator);
    if (plan_new(&run->accelerator, graph, batch, training, &run->plan, &err) < 0)
        fail_msg("%s: %s", backend->name, err.message);
    assert_int_equal(activations_new(run->plan, &run->activations), 0);
    assert_int_equal(weights_new(&run->accelerator, graph, &sgd, &run->weights), 0);
}

void plan_run_close(PlanRun *run)
{
    weights_free(&run->accelerator, &run->weights);
    activations_free(run->activations);
    plan_free(run->plan);
    accelerator_close(&run->accelerator);
}

void plan_run_write(const PlanRun *run, void *to, const float *host, size_t n)
{
    assert_int_equal(accelerator_write(&run->accelerator, host, to, n * sizeof *host), 0);
}

void plan_run_read(const PlanRun *run, const void *from, float *host, size_t n)
{
    assert_int_equal(accelerator_read(&run->accelerator, from, host, n * sizeof *host), 0);
}
