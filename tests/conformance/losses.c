/* Every loss on every backend: values against sums in double written out here, gradients against
 * finite differences of those. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "harness.h"

static double log_sum_exp(const double *row, int64_t width)
{
    double top = row[0], sum = 0;
    for (int64_t k = 1; k < width; k++)
        top = fmax(top, row[k]);
    for (int64_t k = 0; k < width; k++)
        sum += exp(row[k] - top);
    return top + log(sum);
}

/* One row's part of the loss, before the mean over the batch. */
static double row_loss(LossKind kind, const double *row, int64_t class, const float *target,
                       int64_t width)
{
    double sum = 0;
    if (kind == LOSS_NLL)
        return -row[class];
    if (kind == LOSS_CROSS_ENTROPY)
        return log_sum_exp(row, width) - row[class];
    for (int64_t k = 0; k < width; k++)
        sum += (row[k] - target[k]) * (row[k] - target[k]);
    return sum / (double)width;
}

typedef struct LossCase {
    LossKind kind;
    int64_t batch, width;
    float scale; /* of the outputs */
} LossCase;

static const LossCase cases[] = {
    {LOSS_NLL, 32, 10, 3},
    {LOSS_NLL, 1, 1, 1},
    {LOSS_NLL, 7, 3, 1},
    {LOSS_CROSS_ENTROPY, 32, 10, 3},
    {LOSS_CROSS_ENTROPY, 1, 1, 5},
    {LOSS_CROSS_ENTROPY, 5, 17, 1},
    {LOSS_CROSS_ENTROPY, 3, 4, 500},
    {LOSS_MSE, 32, 10, 2},
    {LOSS_MSE, 1, 1, 1},
    {LOSS_MSE, 3, 33, 1},
};
enum { N_CASES = sizeof cases / sizeof *cases, MAX_ELEMENTS = 320 };

typedef struct LossData {
    float output[MAX_ELEMENTS], target[MAX_ELEMENTS];
    int64_t classes[MAX_ELEMENTS];
    float loss, gradient[MAX_ELEMENTS];
    int64_t correct;
    float want_loss, want_gradient[MAX_ELEMENTS];
    int64_t want_correct;
} LossData;

static void fill(const LossCase *c, LossData *d)
{
    uint32_t words[MAX_ELEMENTS];
    size_t n = (size_t)(c->batch * c->width);
    fill_uniform(d->output, n, 5, (uint32_t)c->kind);
    fill_uniform(d->target, n, 6, (uint32_t)c->kind);
    fill_words(words, (size_t)c->batch, 7, (uint32_t)c->kind);
    for (size_t i = 0; i < n; i++)
        d->output[i] *= c->scale;
    for (int64_t b = 0; b < c->batch; b++)
        d->classes[b] = words[b] % c->width;
}

static void expect_row(const LossCase *c, LossData *d, int64_t b)
{
    const double step = 1e-5;
    double row[MAX_ELEMENTS] = {0};
    int64_t at = b * c->width, class = d->classes[b], best = 0;
    for (int64_t k = 0; k < c->width; k++) {
        row[k] = d->output[at + k];
        best = row[k] > row[best] ? k : best;
    }
    for (int64_t k = 0; k < c->width; k++) {
        double saved = row[k];
        row[k] = saved + step;
        double above = row_loss(c->kind, row, class, d->target + at, c->width);
        row[k] = saved - step;
        double below = row_loss(c->kind, row, class, d->target + at, c->width);
        row[k] = saved;
        d->want_gradient[at + k] = (float)((above - below) / (2 * step) / (double)c->batch);
    }
    d->want_correct += c->kind != LOSS_MSE && best == class;
}

static void expect(const LossCase *c, LossData *d)
{
    double sum = 0;
    for (int64_t b = 0; b < c->batch; b++) {
        double row[MAX_ELEMENTS] = {0};
        for (int64_t k = 0; k < c->width; k++)
            row[k] = d->output[b * c->width + k];
        sum += row_loss(c->kind, row, d->classes[b], d->target + b * c->width, c->width);
        expect_row(c, d, b);
    }
    d->want_loss = (float)(sum / (double)c->batch);
}

static bool case_agrees(const Backend *backend, const LossCase *c)
{
    static LossData zero;
    LossData d = zero;
    Accelerator a;
    fill(c, &d);
    expect(c, &d);
    assert_int_equal(accelerator_open(backend, 0, 1, &a, NULL), 0);
    accelerator_bind(&a);
    const void *target = c->kind == LOSS_MSE ? (const void *)d.target : d.classes;
    float *output = NULL, *gradient = NULL;
    void *device_target = NULL;
    size_t bytes = (size_t)(c->batch * c->width) * sizeof(float);
    size_t target_bytes = c->kind == LOSS_MSE ? bytes : (size_t)c->batch * sizeof(int64_t);
    assert_int_equal(accelerator_alloc(&a, bytes, (void **)&output), 0);
    assert_int_equal(accelerator_alloc(&a, bytes, (void **)&gradient), 0);
    assert_int_equal(accelerator_alloc(&a, target_bytes, &device_target), 0);
    assert_int_equal(accelerator_write(&a, d.output, output, bytes), 0);
    assert_int_equal(accelerator_write(&a, target, device_target, target_bytes), 0);
    assert_int_equal(accelerator_loss(&a, c->kind, output, device_target, c->batch, c->width,
                                      &d.loss, gradient, &d.correct),
                     0);
    assert_int_equal(accelerator_read(&a, gradient, d.gradient, bytes), 0);
    accelerator_release(&a, output);
    accelerator_release(&a, gradient);
    accelerator_release(&a, device_target);
    accelerator_close(&a);

    char what[160];
    snprintf(what, sizeof what, "%s (%lld,%lld), %s: loss", loss_name(c->kind), (long long)c->batch,
             (long long)c->width, backend->name);
    bool same = arrays_agree(what, &d.loss, &d.want_loss, 1, 1e-6);
    snprintf(what, sizeof what, "%s (%lld,%lld), %s: gradient", loss_name(c->kind),
             (long long)c->batch, (long long)c->width, backend->name);
    /* central differences in double with a step of 1e-5: good to about 1e-8 of the loss */
    same &= arrays_agree(what, d.gradient, d.want_gradient, bytes / sizeof(float),
                         c->scale > 100 ? 1e-4 : 1e-5);
    if (d.correct != d.want_correct)
        fprintf(stderr, "%s: %lld correct, not %lld\n", what, (long long)d.correct,
                (long long)d.want_correct);
    return same && d.correct == d.want_correct;
}

static void losses_and_their_gradients_are_right(void **state)
{
    (void)state;
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++)
        for (int i = 0; i < N_CASES; i++)
            wrong += !case_agrees(backend_entry(b), &cases[i]);
    assert_int_equal(wrong, 0);
}

static void classes_out_of_range_are_refused(void **state)
{
    (void)state;
    static const int64_t classes[][2] = {{0, 3}, {-1, 0}, {0, INT64_MAX}, {INT64_MIN, 1}};
    _Alignas(64) float output[6] = {0}, gradient[6] = {9, 9, 9, 9, 9, 9};
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        float loss = 9;
        int64_t correct = 9;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (int kind = LOSS_NLL; kind <= LOSS_CROSS_ENTROPY; kind++)
            for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
                assert_int_equal(accelerator_loss(&a, (LossKind)kind, output, classes[i], 2, 3,
                                                  &loss, gradient, &correct),
                                 -EINVAL);
        accelerator_close(&a);
        assert_true(loss == 9 && correct == 9 && gradient[0] == 9);
    }
}

static void gradient_and_count_may_be_left_out(void **state)
{
    (void)state;
    _Alignas(64) float output[] = {0.5F, -0.5F};
    _Alignas(64) float target[] = {0.25F, 0.5F};
    const int64_t class = 1;
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        float loss = 0;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (int kind = 0; kind < LOSS_KIND_COUNT; kind++)
            assert_int_equal(accelerator_loss(&a, (LossKind)kind, output,
                                              kind == LOSS_MSE ? (const void *)target : &class, 1,
                                              2, &loss, NULL, NULL),
                             0);
        assert_float_equal(loss, (0.0625F + 1) / 2, 1e-6F);
        accelerator_close(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_their_gradients_are_right),
        cmocka_unit_test(classes_out_of_range_are_refused),
        cmocka_unit_test(gradient_and_count_may_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
