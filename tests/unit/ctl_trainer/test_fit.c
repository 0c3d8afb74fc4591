/* Whether a data set fits a job. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/trainer/fit.h"

static int64_t input_dims[9] = {1, 28, 28}, output_dims[9] = {10};
static Dps__V1__JoinReply reply;
static DatasetInfo info;

static int set_up(void **state)
{
    (void)state;
    memcpy(input_dims, (int64_t[9]){1, 28, 28}, sizeof(input_dims));
    memcpy(output_dims, (int64_t[9]){10}, sizeof(output_dims));
    dps__v1__join_reply__init(&reply);
    reply.samples = 100;
    reply.input_dims = input_dims;
    reply.n_input_dims = 3;
    reply.output_dims = output_dims;
    reply.n_output_dims = 1;
    reply.batch = 32;
    reply.window = 4;
    reply.loss = (char *)"nll";
    info = (DatasetInfo){.samples = 100,
                         .dtype = DPS__V1__DTYPE__U8,
                         .ndim = 3,
                         .dims = {1, 28, 28},
                         .sample_bytes = 784,
                         .label_dtype = DPS__V1__DTYPE__U8};
    return 0;
}

static void expect_fit(Fit *fit)
{
    char problem[400] = "";

    if (fit_check(&reply, &info, "the set", fit, problem, sizeof(problem)) < 0)
        fail_msg("%s", problem);
}

static void expect_problem(const char *words)
{
    char problem[400] = "";
    Fit fit;

    assert_int_equal(fit_check(&reply, &info, "the set", &fit, problem, sizeof(problem)), -EINVAL);
    if (!strstr(problem, words))
        fail_msg("'%s' lacks '%s'", problem, words);
}

static void pictures_fit_the_example(void **state)
{
    Fit fit;

    (void)state;
    expect_fit(&fit);
    assert_int_equal(fit.batch, 32);
    assert_int_equal(fit.window, 4);
    assert_int_equal(fit.ndim, 3);
    assert_int_equal(fit.dims[2], 28);
    assert_int_equal(fit.x_dtype, DPS__V1__DTYPE__U8);
    assert_int_equal(fit.y_dtype, DPS__V1__DTYPE__U8);
    assert_int_equal(fit.sample_bytes, 784);
    assert_int_equal(fit.label_bytes, 1);
    assert_int_equal(fit.classes, 10);
}

static void dims_of_one_do_not_count(void **state)
{
    Fit fit;

    (void)state;
    info.ndim = 2;
    info.dims[0] = 28;
    info.dims[1] = 28;
    expect_fit(&fit);
    assert_int_equal(fit.ndim, 3); /* as the model has them */
    info.dims[1] = 27;
    expect_problem("a sample of the set is U8 (28, 27), but the job's model takes (1, 28, 28)");
    info.ndim = 1;
    info.dims[0] = 784;
    expect_problem("(784)");
}

static void both_sides_are_named(void **state)
{
    (void)state;
    info.samples = 99;
    expect_problem("the set has 99 samples, but the job deals out 100");
    set_up(NULL);
    reply.samples = 0;
    expect_problem("deals out no samples");
    set_up(NULL);
    reply.n_input_dims = 9;
    expect_problem("takes (1, 28, 28, 0");
    set_up(NULL);
    reply.n_output_dims = 0;
    expect_problem("no classes");
    set_up(NULL);
    reply.batch = 1 << 20;
    expect_problem("a batch of 1048576 samples");
    set_up(NULL);
    reply.window = 0;
    expect_problem("0 of them under way");
}

static void targets_go_with_mse(void **state)
{
    Fit fit;

    (void)state;
    reply.loss = (char *)"mse";
    expect_problem("classes as labels, but the job's loss is mse");
    info.label = DATASET_TARGETS;
    info.label_dtype = DPS__V1__DTYPE__F32;
    info.target_ndim = 1;
    info.target_dims[0] = 10;
    info.target_elements = 10;
    expect_fit(&fit);
    assert_int_equal(fit.label_bytes, 40);
    assert_int_equal(fit.classes, 0);
    assert_int_equal(fit.target_dims[0], 10);
    output_dims[0] = 3;
    expect_problem("a target of the set is (10), but the job's model gives (3)");
    reply.loss = (char *)"cross-entropy";
    expect_problem("floats as labels, but the job's loss is cross-entropy");
}

static void a_wide_window_is_cut(void **state)
{
    Fit fit;

    (void)state;
    reply.window = UINT32_MAX;
    expect_fit(&fit);
    assert_int_equal(fit.window, FIT_MAX_WINDOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pictures_fit_the_example, set_up),
        cmocka_unit_test_setup(dims_of_one_do_not_count, set_up),
        cmocka_unit_test_setup(both_sides_are_named, set_up),
        cmocka_unit_test_setup(targets_go_with_mse, set_up),
        cmocka_unit_test_setup(a_wide_window_is_cut, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
