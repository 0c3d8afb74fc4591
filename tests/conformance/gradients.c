/* Gradients of the reference against finite differences of the reference, so that the truth itself
 * is true: for L = Σ r·out with fixed r, summed in double, every element x of the input and of the
 * parameters is moved by ±h and dL/dx ≈ (L(x+h) − L(x−h)) / 2h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "cases.h"
#include "harness.h"

/* Outputs are rounded to float32, an error of 6e-8 of their size, which the division by 2h = 2^-6
 * makes 4e-6 an output; the method's own error is h²/6 = 1e-5 times the third derivative, which
 * matters for BatchNorm and LogSoftmax. A hundred outputs together stay well under 2e-3 of the
 * largest gradient, and no wrong formula does. */
static const float h = 0x1p-7F;
static const double tolerance = 2e-3;

/* Every value at least 2h from 0 and from every other, in an order that looks random, so that
 * moving one by h crosses no kink of Relu and changes no maximum. */
static void fill_apart(Array array)
{
    size_t n = array.n, half = n / 2, factor = half + 1; /* made coprime to n below */
    for (size_t a = factor, b = n; n > 1 && b > 0;) {
        size_t rest = a % b;
        a = b;
        b = rest;
        if (b == 0 && a != 1) {
            a = ++factor;
            b = n;
        }
    }
    for (size_t i = 0; i < n; i++)
        array.data[i] = ((float)(i * factor % n) - (float)half + 0.5F) * 4 * h;
}

static double loss_of(Run *run)
{
    double sum = 0;
    assert_int_equal(run_forward(run), 0);
    for (size_t i = 0; i < run->output.n; i++)
        sum += (double)run->output_gradient.data[i] * run->output.data[i];
    return sum;
}

static float difference(Run *run, float *x)
{
    float saved = *x;
    *x = saved + h;
    double above = loss_of(run);
    *x = saved - h;
    double below = loss_of(run);
    *x = saved;
    return (float)((above - below) / (2 * (double)h));
}

static bool matches(const char *name, const char *part, Run *run, float *x, const float *gradient,
                    size_t n)
{
    _cleanup_free_ float *numeric = calloc(n, sizeof *numeric);
    assert_non_null(numeric);
    for (size_t i = 0; i < n; i++)
        numeric[i] = difference(run, &x[i]);
    char what[200];
    snprintf(what, sizeof what, "%s: gradient of %s, against finite differences", name, part);
    return arrays_agree(what, gradient, numeric, n, tolerance);
}

static bool case_is_differentiated(const OpCase *c)
{
    _cleanup_graph_ Graph *graph = op_case_graph(c, ALONE);
    _cleanup_run_ Run *run = NULL;
    assert_int_equal(run_new(&backend_ref, graph, c->batch, true, &run, NULL), 0);
    run_fill(run, 7);
    fill_uniform(run->output_gradient.data, run->output_gradient.n, 8, 0);
    if (!c->relu_after)
        fill_apart(run->input);
    assert_int_equal(run_forward(run), 0);
    assert_int_equal(run_backward(run), 0);
    bool same =
        matches(c->name, "input", run, run->input.data, run->input_gradient.data, run->input.n);
    for (int i = 0; i < graph_param_count(graph); i++) {
        const ParamInfo *p = graph_param(graph, i);
        same &= matches(c->name, p->name, run, run->params.data + p->offset,
                        run->param_gradients.data + p->offset, (size_t)p->elements);
    }
    return same;
}

/* Relu has a kink, and after another operator its place is not ours to choose: those cases are the
 * Relu's own case and the operator's together. */
static void gradients_match_finite_differences(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < n_op_cases; i++)
        if (!op_cases[i].relu_after)
            wrong += !case_is_differentiated(&op_cases[i]);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
