/* Every optimizer with every option on every backend, over several steps, against the textbook
 * formulas in double, one element at a time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "harness.h"

typedef struct Element {
    double p, first, second;
} Element;

static void expect_sgd(const Optimizer *o, int t, double g, Element *e)
{
    g += (double)o->weight_decay * e->p;
    if (o->momentum != 0) {
        e->first = t == 1 ? g : (double)o->momentum * e->first + (1 - (double)o->dampening) * g;
        g = o->nesterov ? g + (double)o->momentum * e->first : e->first;
    }
    e->p -= (double)o->lr * g;
}

static void expect_adam(const Optimizer *o, int t, double g, Element *e)
{
    if (o->kind == OPTIMIZER_ADAMW)
        e->p -= (double)o->lr * (double)o->weight_decay * e->p;
    else
        g += (double)o->weight_decay * e->p;
    e->first = (double)o->beta1 * e->first + (1 - (double)o->beta1) * g;
    e->second = (double)o->beta2 * e->second + (1 - (double)o->beta2) * g * g;
    double mean = e->first / (1 - pow(o->beta1, t));
    double square = e->second / (1 - pow(o->beta2, t));
    e->p -= (double)o->lr * mean / (sqrt(square) + (double)o->eps);
}

static const char *const texts[] = {
    "sgd",
    "sgd,weight_decay=0.1",
    "sgd,momentum=0.9",
    "sgd,momentum=0.9,dampening=0.5",
    "sgd,momentum=0.9,nesterov=true",
    "sgd,momentum=0.9,nesterov=true,weight_decay=0.01",
    "sgd,momentum=0.5,dampening=0.25,weight_decay=0.1",
    "adam",
    "adam,weight_decay=0.1",
    "adam,beta1=0.5,beta2=0.9,eps=1e-3",
    "adamw",
    "adamw,weight_decay=0.1,beta1=0.8",
    "adamw,weight_decay=0",
};
static const size_t lengths[] = {1, 7, 16, 1003};
enum { STEPS = 5, MAX_N = 1003 };

typedef struct Memory {
    float *params, *gradients, *states[OPTIMIZER_MAX_STATES];
} Memory;

static void memory_new(const Accelerator *a, size_t n, Memory *m)
{
    size_t bytes = n * sizeof(float);
    assert_int_equal(accelerator_alloc(a, bytes, (void **)&m->params), 0);
    assert_int_equal(accelerator_alloc(a, bytes, (void **)&m->gradients), 0);
    for (int i = 0; i < OPTIMIZER_MAX_STATES; i++)
        assert_int_equal(accelerator_alloc(a, bytes, (void **)&m->states[i]), 0);
}

static void memory_free(const Accelerator *a, Memory *m)
{
    accelerator_release(a, m->params);
    accelerator_release(a, m->gradients);
    for (int i = 0; i < OPTIMIZER_MAX_STATES; i++)
        accelerator_release(a, m->states[i]);
}

static void expect_step(const Optimizer *o, int t, const float *g, Element *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (o->kind == OPTIMIZER_SGD)
            expect_sgd(o, t, g[i], &elements[i]);
        else
            expect_adam(o, t, g[i], &elements[i]);
    }
}

static bool steps_agree(const Accelerator *a, const Optimizer *o, const char *text, size_t n)
{
    static float host[MAX_N], want[MAX_N];
    static Element elements[MAX_N];
    Memory m;
    bool same = true;
    memory_new(a, n, &m);
    fill_uniform(host, n, 1, 0);
    assert_int_equal(accelerator_write(a, host, m.params, n * sizeof *host), 0);
    for (size_t i = 0; i < n; i++)
        elements[i] = (Element){.p = host[i]};
    for (int t = 1; t <= STEPS; t++) {
        fill_uniform(host, n, 2, (uint32_t)t);
        assert_int_equal(accelerator_write(a, host, m.gradients, n * sizeof *host), 0);
        assert_int_equal(
            accelerator_optimizer_step(a, o, (uint64_t)t, m.params, m.gradients, m.states, n), 0);
        expect_step(o, t, host, elements, n);
        for (size_t i = 0; i < n; i++)
            want[i] = (float)elements[i].p;
        assert_int_equal(accelerator_read(a, m.params, host, n * sizeof *host), 0);
        char what[160];
        snprintf(what, sizeof what, "%s, %s: parameters (%zu) after step %d", text,
                 a->backend->name, n, t);
        same &= arrays_agree(what, host, want, n, 2e-6); /* a few float32 roundings a step */
    }
    memory_free(a, &m);
    return same;
}

static void optimizers_follow_their_formulas(void **state)
{
    (void)state;
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            Optimizer o;
            Error err = {0};
            if (optimizer_parse(texts[i], 0.05F, &o, &err) < 0)
                fail_msg("%s: %s", texts[i], err.message);
            for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
                wrong += !steps_agree(&a, &o, texts[i], lengths[j]);
        }
        accelerator_close(&a);
    }
    assert_int_equal(wrong, 0);
}

/* The gaps between parameters hold zeros, get zero gradients and must stay zero. */
static void zeros_stay_zero(void **state)
{
    (void)state;
    enum { N = 16 };
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            Optimizer o;
            Memory m;
            float host[N] = {0};
            assert_int_equal(optimizer_parse(texts[i], 0.05F, &o, NULL), 0);
            memory_new(&a, N, &m);
            for (uint64_t t = 1; t <= 3; t++)
                assert_int_equal(
                    accelerator_optimizer_step(&a, &o, t, m.params, m.gradients, m.states, N), 0);
            assert_int_equal(accelerator_read(&a, m.params, host, sizeof host), 0);
            for (int j = 0; j < N; j++)
                if (host[j] != 0)
                    fail_msg("%s: a zero became %g", texts[i], (double)host[j]);
            memory_free(&a, &m);
        }
        accelerator_close(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_follow_their_formulas),
        cmocka_unit_test(zeros_stay_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
