/* Learning-rate schedules: torch's formulas, warm-up, texts there and back, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "model/schedule.h"

static Schedule parse(const char *text)
{
    Schedule schedule;
    Error err = {0};
    if (schedule_parse(text, &schedule, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return schedule;
}

static float rate(const char *text, float lr, uint64_t step)
{
    Schedule schedule = parse(text);
    return schedule_lr(&schedule, lr, step);
}

static void assert_near(float got, double want)
{
    if (fabs((double)got - want) > 1e-7 * fabs(want) + 1e-12)
        fail_msg("%.9g, not %.9g", (double)got, want);
}

static void constant_keeps_every_bit(void **state)
{
    (void)state;
    static const float rates[] = {0.03F, 0.1F, 1e-5F, 0};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        assert_true(rate("", rates[i], 0) == rates[i]);
        assert_true(rate("constant", rates[i], 1000000000000) == rates[i]);
    }
}

/* The values of torch.optim.lr_scheduler.StepLR(step_size=30, gamma=0.1) with lr 0.05, from its
 * documentation. */
static void step_is_torch_step_lr(void **state)
{
    (void)state;
    assert_true(rate("step,every=30", 0.05F, 0) == 0.05F);
    assert_true(rate("step,every=30", 0.05F, 29) == 0.05F);
    assert_near(rate("step,every=30,gamma=0.1", 0.05F, 30), 0.005);
    assert_near(rate("step,every=30,gamma=0.1", 0.05F, 59), 0.005);
    assert_near(rate("step,every=30,gamma=0.1", 0.05F, 60), 0.0005);
    assert_near(rate("step,every=1,gamma=0.5", 1, 10), 1.0 / 1024);
    assert_true(rate("step,every=1,gamma=0", 1, 0) == 1);
    assert_true(rate("step,every=1,gamma=0", 1, 1) == 0);
}

/* torch's recurrence, which its closed form solves, from step to step. */
static void cosine_is_torch_cosine_annealing(void **state)
{
    (void)state;
    const int steps = 50;
    const double base = 0.1, min = 0.001;
    double want = base;
    for (int t = 0; t <= steps; t++) {
        if (t > 0)
            want = (1 + cos(M_PI * t / steps)) / (1 + cos(M_PI * (t - 1) / steps)) * (want - min) +
                   min;
        float got = rate("cosine,steps=50,min=0.001", 0.1F, (uint64_t)t);
        if (fabs((double)got - want) > 1e-7)
            fail_msg("step %d: %.9g, not %.9g", t, (double)got, want);
    }
    assert_near(rate("cosine,steps=50,min=0.001", 0.1F, 25), (base + min) / 2);
    assert_true(rate("cosine,steps=50", 0.1F, 50) == 0);
    assert_near(rate("cosine,steps=50,min=0.001", 0.1F, 51), min); /* and does not rise again */
    assert_near(rate("cosine,steps=50,min=0.001", 0.1F, UINT64_MAX), min);
}

static void warmup_is_linear_from_0_and_comes_before_the_schedule(void **state)
{
    (void)state;
    assert_true(rate("constant,warmup=4", 0.2F, 0) == 0);
    assert_near(rate("constant,warmup=4", 0.2F, 1), 0.05);
    assert_near(rate("constant,warmup=4", 0.2F, 3), 0.15);
    assert_true(rate("constant,warmup=4", 0.2F, 4) == 0.2F);
    assert_true(rate("step,every=10,warmup=5", 0.2F, 14) == 0.2F);
    assert_near(rate("step,every=10,warmup=5", 0.2F, 15), 0.02);
    assert_true(rate("cosine,steps=10,warmup=5", 0.2F, 5) == 0.2F);
    assert_near(rate("cosine,steps=10,warmup=5", 0.2F, 10), 0.1);
    assert_true(rate("cosine,steps=10,warmup=5", 0.2F, 15) == 0);
    assert_true(rate("constant,warmup=0", 0.2F, 0) == 0.2F);
}

static void texts_come_back_the_same(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", "constant"},
        {"constant", "constant"},
        {"constant,warmup=0", "constant"},
        {"constant,warmup=500", "constant,warmup=500"},
        {"step,gamma=0.1,every=30", "step,every=30"},
        {"step,every=7,gamma=0.333333333333,warmup=9",
         "step,every=7,gamma=0.333333333333,warmup=9"},
        {"cosine,steps=18446744073709551615,min=1e-05",
         "cosine,steps=18446744073709551615,min=1e-05"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[SCHEDULE_TEXT_MAX];
        Schedule schedule = parse(texts[i][0]);
        assert_string_equal(schedule_format(&schedule, text, sizeof text), texts[i][1]);
        Schedule again = parse(text);
        assert_int_equal(again.kind, schedule.kind);
        assert_true(again.every == schedule.every && again.steps == schedule.steps);
        assert_true(again.warmup == schedule.warmup && again.min == schedule.min);
        assert_true(again.gamma == schedule.gamma);
    }
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"linear", "no learning-rate schedule is called \"linear\"; there are constant, step and "
                   "cosine"},
        {"step", "schedule step needs every=N, a number of steps, 1 or more"},
        {"cosine,min=0", "schedule cosine needs steps=N, a number of steps, 1 or more"},
        {"step,every", "schedule setting \"every\" must be KEY=VALUE"},
        {"step,every=0", "every of schedule step must be a number of steps, 1 or more, not \"0\""},
        {"step,every=-3", "every of schedule step must be a number of steps, 1 or more, not "
                          "\"-3\""},
        {"step,every=3x", "every of schedule step must be a number of steps, 1 or more, not "
                          "\"3x\""},
        {"step,every=18446744073709551616",
         "every of schedule step must be a number of steps, 1 or more, not "
         "\"18446744073709551616\""},
        {"step,every=3,gamma=nan", "gamma of schedule step must be a number, 0 or more, not "
                                   "\"nan\""},
        {"step,every=3,gamma=", "gamma of schedule step must be a number, 0 or more, not \"\""},
        {"cosine,steps=9,min=-1", "min of schedule cosine must be a number, 0 or more, not \"-1\""},
        {"cosine,steps=9,gamma=1",
         "schedule cosine does not take \"gamma\"; it takes steps, min, warmup"},
        {"constant,", "schedule setting \"\" must be KEY=VALUE"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        Error err = {0};
        Schedule schedule = {.warmup = 77};
        assert_int_equal(schedule_parse(wrong[i][0], &schedule, &err), -EINVAL);
        assert_string_equal(err.message, wrong[i][1]);
        assert_int_equal(schedule.warmup, 77);
    }
    char longest[2 * SCHEDULE_TEXT_MAX];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    Schedule schedule;
    assert_int_equal(schedule_parse(longest, &schedule, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_keeps_every_bit),
        cmocka_unit_test(step_is_torch_step_lr),
        cmocka_unit_test(cosine_is_torch_cosine_annealing),
        cmocka_unit_test(warmup_is_linear_from_0_and_comes_before_the_schedule),
        cmocka_unit_test(texts_come_back_the_same),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
