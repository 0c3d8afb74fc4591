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
    run_fill(run, 42);
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

typedef struct Comparison {
    const char *name;
    const Run *got, *want;
    double tolerance;
} Comparison;

static bool part_agrees(const Comparison *c, const char *part, const float *got, const float *want,
                        size_t n)
{
    char what[400];
    snprintf(what, sizeof what, "%s, %s: %s", c->name, c->got->accelerator.backend->name, part);
    return arrays_agree(what, got, want, n, c->tolerance);
}

static bool buffers_agree(const Comparison *c)
{
    bool same = true;
    for (int i = 0; i < graph_buffer_count(c->got->graph); i++) {
        const ParamInfo *b = graph_buffer(c->got->graph, i);
        if (!b->counter)
            same &= part_agrees(c, b->name, c->got->buffers.data + b->offset,
                                c->want->buffers.data + b->offset, (size_t)b->elements);
        else if (c->got->counters[b->offset] != c->want->counters[b->offset])
            same = part_agrees(c, b->name, (float[]){(float)c->got->counters[b->offset]},
                               (float[]){(float)c->want->counters[b->offset]}, 1);
    }
    return same;
}

static bool gradients_agree(const Comparison *c)
{
    bool same = part_agrees(c, "input gradient", c->got->input_gradient.data,
                            c->want->input_gradient.data, c->want->input_gradient.n);
    for (int i = 0; i < graph_param_count(c->got->graph); i++) {
        const ParamInfo *p = graph_param(c->got->graph, i);
        char part[NODE_NAME_MAX + 64];
        snprintf(part, sizeof part, "gradient of %s", p->name);
        same &= part_agrees(c, part, c->got->param_gradients.data + p->offset,
                            c->want->param_gradients.data + p->offset, (size_t)p->elements);
    }
    return same;
}

bool graph_agrees(const char *name, const Backend *backend, const Graph *graph, int64_t batch,
                  bool training, double tolerance)
{
    _cleanup_run_ Run *got = NULL, *want = NULL;
    Error err = {0};
    int r = run_new(backend, graph, batch, training, &got, &err);
    if (r == 0)
        r = run_new(&backend_ref, graph, batch, training, &want, &err);
    if (r < 0)
        return failed(name, "compile", r, &err);
    if (!run_once(name, got) || !run_once(name, want))
        return false;
    Comparison c = {name, got, want, tolerance};
    bool same = part_agrees(&c, "output", got->output.data, want->output.data, want->output.n);
    same &= buffers_agree(&c);
    if (training)
        same &= gradients_agree(&c);
    return same;
}
