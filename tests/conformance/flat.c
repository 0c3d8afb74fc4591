/* The flat operations on every backend, and the masks that all backends draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "backend/cpu_math.h"
#include "harness.h"

enum { N = 5003 }; /* whole blocks and a rest, prime */

/* Runs the check on a device of each backend. */
static void on_every_backend(void (*check)(const Accelerator *a))
{
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        print_message("  on %s\n", a.backend->name);
        check(&a);
        accelerator_close(&a);
    }
}

static float *upload(const Accelerator *a, const float *host, size_t n)
{
    void *memory = NULL;
    assert_int_equal(accelerator_alloc(a, n * sizeof *host, &memory), 0);
    assert_int_equal(accelerator_write(a, host, memory, n * sizeof *host), 0);
    return memory;
}

static void check_mean(const Accelerator *a)
{
    enum { COUNT = 4, BEGIN = 5, END = N - 3 };
    static float host[COUNT][N], want[N], got[N];
    float *arrays[COUNT];
    for (uint32_t k = 0; k < COUNT; k++) {
        fill_uniform(host[k], N, 3, k);
        arrays[k] = upload(a, host[k], N);
    }
    memcpy(want, host[2], sizeof want); /* outside the range nothing changes */
    for (size_t i = BEGIN; i < END; i++)
        want[i] = (host[0][i] + host[1][i] + host[2][i] + host[3][i]) / COUNT;
    assert_int_equal(
        accelerator_mean(a, (const float *const *)arrays, COUNT, arrays[2], BEGIN, END), 0);
    assert_int_equal(accelerator_read(a, arrays[2], got, sizeof got), 0);
    assert_true(arrays_agree("mean into its third array", got, want, N, 0));

    const float *one[] = {arrays[0]};
    assert_int_equal(accelerator_mean(a, one, 1, arrays[1], 0, N), 0);
    assert_int_equal(accelerator_read(a, arrays[1], got, sizeof got), 0);
    assert_memory_equal(got, host[0], sizeof got); /* the mean of one is that one, bit for bit */
    for (int k = 0; k < COUNT; k++)
        accelerator_release(a, arrays[k]);
}

/* The mean of a range is the same bits, whoever computes which part. */
static void check_mean_split(const Accelerator *a)
{
    static float host[3][N], whole[N], parts[N];
    float *arrays[3], *to = NULL;
    for (uint32_t k = 0; k < 3; k++) {
        fill_uniform(host[k], N, 4, k);
        arrays[k] = upload(a, host[k], N);
    }
    to = upload(a, host[0], N);
    const float *const *from = (const float *const *)arrays;
    assert_int_equal(accelerator_mean(a, from, 3, to, 0, N), 0);
    assert_int_equal(accelerator_read(a, to, whole, sizeof whole), 0);
    assert_int_equal(accelerator_zero(a, to, sizeof whole), 0);
    for (size_t i = 0; i < N; i += 1234)
        assert_int_equal(accelerator_mean(a, from, 3, to, i, i + 1234 < N ? i + 1234 : N), 0);
    assert_int_equal(accelerator_read(a, to, parts, sizeof parts), 0);
    assert_memory_equal(whole, parts, sizeof parts);
    for (int k = 0; k < 3; k++)
        accelerator_release(a, arrays[k]);
    accelerator_release(a, to);
}

/* Sums in the order given, without fused multiply-adds, into one of its own arrays; what weighs
 * nothing is not read. */
static void check_weighted_sum(const Accelerator *a)
{
    enum { COUNT = 4, BEGIN = 3, END = N - 2 };
    static const float weights[COUNT] = {0, 0.3F, -1.75F, 1e-3F};
    static float host[COUNT][N], want[N], got[N];
    float *arrays[COUNT];
    for (uint32_t k = 0; k < COUNT; k++)
        fill_uniform(host[k], N, 5, k);
    host[0][100] = NAN;
    for (uint32_t k = 0; k < COUNT; k++)
        arrays[k] = upload(a, host[k], N);
    memcpy(want, host[2], sizeof want);
    for (size_t i = BEGIN; i < END; i++) {
        float products[COUNT];
        for (int k = 1; k < COUNT; k++)
            products[k] = weights[k] * host[k][i];
        want[i] = products[1] + products[2];
        want[i] = want[i] + products[3];
    }
    const float *const *from = (const float *const *)arrays;
    assert_int_equal(accelerator_weighted_sum(a, from, weights, COUNT, arrays[2], BEGIN, END), 0);
    assert_int_equal(accelerator_read(a, arrays[2], got, sizeof got), 0);
    assert_memory_equal(got, want, sizeof got);

    static const float only_second[COUNT] = {0, 1, 0, 0}, nothing[COUNT] = {0};
    host[1][7] = -0.0F; /* plus 0 · x it would be +0 */
    assert_int_equal(accelerator_write(a, host[1], arrays[1], sizeof host[1]), 0);
    assert_int_equal(accelerator_weighted_sum(a, from, only_second, COUNT, arrays[3], 0, N), 0);
    assert_int_equal(accelerator_read(a, arrays[3], got, sizeof got), 0);
    assert_memory_equal(got, host[1], sizeof got);
    assert_int_equal(accelerator_weighted_sum(a, from, nothing, COUNT, arrays[3], 0, N), 0);
    assert_int_equal(accelerator_read(a, arrays[3], got, sizeof got), 0);
    for (size_t i = 0; i < N; i++)
        assert_true(got[i] == 0);
    assert_int_equal(accelerator_weighted_sum(a, from + 1, only_second + 1, 1, arrays[3], 2, 9), 0);
    assert_int_equal(accelerator_read(a, arrays[3], got, sizeof got), 0);
    for (size_t i = 0; i < N; i++)
        assert_true(got[i] == (i >= 2 && i < 9 ? host[1][i] : 0));
    for (int k = 0; k < COUNT; k++)
        accelerator_release(a, arrays[k]);
}

static void check_normalise(const Accelerator *a)
{
    enum { B = 3, C = 2, P = 35 };
    static const float mean[C] = {0.1307F, 0.5F}, deviation[C] = {0.3081F, 0.25F};
    uint8_t pixels[B * C * P];
    float want[B * C * P], got[B * C * P];
    for (int i = 0; i < B * C * P; i++) {
        pixels[i] = (uint8_t)(i * 37);
        int c = i / P % C;
        want[i] = (float)(((double)pixels[i] / 255 - (double)mean[c]) / (double)deviation[c]);
    }
    void *from = NULL, *to = NULL;
    assert_int_equal(accelerator_alloc(a, sizeof pixels, &from), 0);
    assert_int_equal(accelerator_alloc(a, sizeof got, &to), 0);
    assert_int_equal(accelerator_write(a, pixels, from, sizeof pixels), 0);
    assert_int_equal(accelerator_normalise(a, from, to, B, C, P, 1 / 255.0F, mean, deviation), 0);
    assert_int_equal(accelerator_read(a, to, got, sizeof got), 0);
    assert_true(arrays_agree("normalise", got, want, B * C * P, 1e-6));
    accelerator_release(a, from);
    accelerator_release(a, to);
}

static void check_norm2(const Accelerator *a)
{
    static const size_t lengths[] = {0, 1, 15, 16, 17, N};
    static float host[N];
    fill_uniform(host, N, 9, 0);
    float *array = upload(a, host, N);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        double want = 0, got = -1;
        for (size_t i = 0; i < lengths[l]; i++)
            want += (double)host[i] * host[i];
        assert_int_equal(accelerator_norm2(a, array, lengths[l], &got), 0);
        assert_true(fabs(got - want) <= 1e-12 * want);
    }
    accelerator_release(a, array);
}

static bool finite_on(const Accelerator *a, const float *array, size_t n)
{
    bool finite = false;
    assert_int_equal(accelerator_all_finite(a, array, n, &finite), 0);
    return finite;
}

static void check_all_finite(const Accelerator *a)
{
    static const size_t places[] = {0, 1, 7, 1023, 1024, 4096, N - 1};
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static float host[N];
    fill_uniform(host, N, 10, 0);
    host[3] = 3.402823466e38F; /* the largest and the smallest are finite */
    host[4] = 1e-45F;
    host[5] = -0.0F;
    float *array = upload(a, host, N);
    assert_true(finite_on(a, array, N));
    assert_true(finite_on(a, array, 0));
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            assert_int_equal(accelerator_write(a, &bad[i], array + places[p], sizeof *bad), 0);
            if (finite_on(a, array, N))
                fail_msg("%g at %zu was not found", (double)bad[i], places[p]);
        }
        assert_int_equal(accelerator_write(a, &host[places[p]], array + places[p], sizeof *host),
                         0);
    }
    accelerator_release(a, array);
}

static void mean_is_the_mean(void **state)
{
    (void)state;
    on_every_backend(check_mean);
}

static void mean_does_not_depend_on_the_split(void **state)
{
    (void)state;
    on_every_backend(check_mean_split);
}

static void weighted_sum_rounds_each_term(void **state)
{
    (void)state;
    on_every_backend(check_weighted_sum);
}

static void pixels_are_normalised(void **state)
{
    (void)state;
    on_every_backend(check_normalise);
}

static void norm2_sums_squares(void **state)
{
    (void)state;
    on_every_backend(check_norm2);
}

static void all_finite_finds_every_nan_and_infinity(void **state)
{
    (void)state;
    on_every_backend(check_all_finite);
}

/* The definition, word by word: kept iff rng_to_unit(word i) >= p, then scaled by 1/(1-p). */
static void dropout_masks_follow_their_definition(void **state)
{
    (void)state;
    static float mask[N];
    RngKey step = {.seed = 77, .a = 2, .b = 1234567890123};
    RngKey key = cpu_dropout_key(&step, 5);
    assert_int_equal(key.purpose, RNG_DROPOUT);
    assert_int_equal(key.c, 5);
    /* the last is one of the numbers themselves: it is kept */
    float ps[] = {0, 0.25F, 0.5F, 0.9F, 1, rng_to_unit(rng_word(&key, 3 + 1000))};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++) {
        size_t kept = 0;
        cpu_dropout_mask(&key, ps[k], 3, N, mask);
        for (size_t i = 0; i < N; i++) {
            bool keep = rng_to_unit(rng_word(&key, 3 + i)) >= ps[k];
            float want = keep ? 1 / (1 - ps[k]) : 0;
            if (fabsf(mask[i] - want) > 1e-6F * want)
                fail_msg("p %g, element %zu: %g, not %g", (double)ps[k], i, (double)mask[i],
                         (double)want);
            kept += keep;
        }
        /* 5 standard deviations of a binomial are 5 · √(N/4) = 177 at most */
        assert_true(fabs((double)kept - N * (1 - (double)ps[k])) < 177);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_is_the_mean),
        cmocka_unit_test(mean_does_not_depend_on_the_split),
        cmocka_unit_test(weighted_sum_rounds_each_term),
        cmocka_unit_test(pixels_are_normalised),
        cmocka_unit_test(norm2_sums_squares),
        cmocka_unit_test(all_finite_finds_every_nan_and_infinity),
        cmocka_unit_test(dropout_masks_follow_their_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
