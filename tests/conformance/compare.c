#include "compare.h"

#include <stdio.h>
#include <string.h>

#include "backend/backends.h"

static bool failed(const char *name, const char *step, int code, const Error *err)
{
    fprintf(stderr, "%s: %s: %s %s\n", name, step, strerror(-code), err ? err->message : "");
    return false;
}

static bool run_once(const char *name, Run *run)
{
    run_fill(run, COMPARE_SEED);
    int r = run_forward(run);
    if (r < 0)
        return failed(name, "forward", r, NULL);
    if (run->training) {
        r = run_backward(run);
        if (r < 0)
            return failed(name, "backward", r, NULL);
    }
    return true;
}

static Results results_of(const Run *run)
{
    return (Results){.backend = run->accelerator.backend->name,
                     .output = run->output.data,
                     .buffers = run->buffers.data,
                     .param_gradients = run->param_gradients.data,
                     .input_gradient = run->input_gradient.data,
                     .counters = run->counters};
}

typedef struct Comparison {
    const char *name;
    const Graph *graph;
    Results got, want;
    double tolerance;
} Comparison;

static bool part_agrees(const Comparison *c, const char *part, const float *got, const float *want,
                        int64_t n)
{
    char what[400];
    snprintf(what, sizeof what, "%s, %s: %s", c->name, c->got.backend, part);
    return arrays_agree(what, got, want, (size_t)n, c->tolerance);
}

static bool buffers_agree(const Comparison *c)
{
    bool same = true;
    for (int i = 0; i < graph_buffer_count(c->graph); i++) {
        const ParamInfo *b = graph_buffer(c->graph, i);
        float got = b->counter ? (float)c->got.counters[b->offset] : 0;
        float want = b->counter ? (float)c->want.counters[b->offset] : 0;
        if (b->counter)
            same &= part_agrees(c, b->name, &got, &want, 1);
        else
            same &= part_agrees(c, b->name, c->got.buffers + b->offset, c->want.buffers + b->offset,
                                b->elements);
    }
    return same;
}

static bool gradients_agree(const Comparison *c)
{
    bool same = true;
    for (int i = 0; i < graph_param_count(c->graph); i++) {
        const ParamInfo *p = graph_param(c->graph, i);
        char part[sizeof p->name + 16];
        snprintf(part, sizeof part, "gradient of %s", p->name);
        same &= part_agrees(c, part, c->got.param_gradients + p->offset,
                            c->want.param_gradients + p->offset, p->elements);
    }
    return same;
}

bool results_agree(const char *name, const Graph *graph, int64_t batch, bool training,
                   const Results *got, double tolerance)
{
    _cleanup_run_ Run *reference = NULL;
    Error err = {0};
    int r = run_new(&backend_ref, graph, batch, training, &reference, &err);
    if (r < 0)
        return failed(name, "compile", r, &err);
    if (!run_once(name, reference))
        return false;
    Comparison c = {name, graph, *got, results_of(reference), tolerance};
    bool same =
        part_agrees(&c, "output", c.got.output, c.want.output, (int64_t)reference->output.n);
    same &= buffers_agree(&c);
    if (training)
        same &= gradients_agree(&c);
    if (training && got->input_gradient)
        same &= part_agrees(&c, "gradient of the input", c.got.input_gradient,
                            c.want.input_gradient, (int64_t)reference->input.n);
    return same;
}

bool graph_agrees(const char *name, const Backend *backend, const Graph *graph, int64_t batch,
                  bool training, double tolerance)
{
    _cleanup_run_ Run *run = NULL;
    Error err = {0};
    int r = run_new(backend, graph, batch, training, &run, &err);
    if (r < 0)
        return failed(name, "compile", r, &err);
    if (!run_once(name, run))
        return false;
    Results got = results_of(run);
    return results_agree(name, graph, batch, training, &got, tolerance);
}
