/* Tensors of a request as a batch, and specs as the job layer's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/batch.h"
#include "rpc/unpack_spec.h"

enum { WIDTH = 784 };

static JobPlan plan_of(const char *loss)
{
    static const JobDefaults defaults = {1, 1};
    JobPlan plan;
    Error err = {0};
    JobSpec spec = {.model = "mlp",
                    .backend = "ref",
                    .external_trainers = true,
                    .steps = 1,
                    .n_options = 1,
                    .options = {{"hidden", "2"}}};
    strcpy(spec.loss, loss);
    if (job_spec_resolve(&spec, &defaults, &plan, &err) < 0)
        fail_msg("%s", err.message);
    return plan;
}

/* A Batch message as it came over the wire. */
static Dps__V1__Batch *message_of(Dps__V1__DType x_type, size_t x_bytes, const int64_t *x_dims,
                                  size_t x_n, Dps__V1__DType y_type, const void *y_data,
                                  size_t y_bytes, const int64_t *y_dims, size_t y_n)
{
    Dps__V1__Batch batch = DPS__V1__BATCH__INIT;
    Dps__V1__Tensor x = DPS__V1__TENSOR__INIT, y = DPS__V1__TENSOR__INIT;
    uint8_t *pixels = calloc(1, x_bytes + 1);
    x.dtype = x_type;
    x.dims = (int64_t *)x_dims;
    x.n_dims = x_n;
    x.data = (ProtobufCBinaryData){x_bytes, pixels};
    y.dtype = y_type;
    y.dims = (int64_t *)y_dims;
    y.n_dims = y_n;
    y.data = (ProtobufCBinaryData){y_bytes, (uint8_t *)y_data};
    batch.x = &x;
    batch.y = y_data ? &y : NULL;
    size_t size = dps__v1__batch__get_packed_size(&batch);
    uint8_t *bytes = malloc(size + 1);
    dps__v1__batch__pack(&batch, bytes);
    Dps__V1__Batch *back = dps__v1__batch__unpack(NULL, size, bytes);
    free(bytes);
    free(pixels);
    assert_non_null(back);
    return back;
}

static int make(const JobPlan *plan, Dps__V1__Batch *message, OwnedBatch *ret, Error *err)
{
    *err = (Error){0};
    return batch_from_tensors(plan, &message->base, message->x, message->y, ret, err);
}

static const int64_t x_dims[] = {2, 1, 28, 28}, y_dims[] = {2};

static void classes_are_widened(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {9, 3};
    static const int32_t narrow[] = {-1, 7};
    static const int64_t wide[] = {INT64_MIN, 5};
    JobPlan plan = plan_of("cross-entropy");
    OwnedBatch batch;
    Error err;
    const struct {
        Dps__V1__DType type;
        const void *data;
        size_t bytes;
        int64_t first, second;
    } cases[] = {{DPS__V1__DTYPE__U8, bytes, 2, 9, 3},
                 {DPS__V1__DTYPE__I32, narrow, 8, -1, 7},
                 {DPS__V1__DTYPE__I64, wide, 16, INT64_MIN, 5}};
    for (size_t i = 0; i < 3; i++) {
        Dps__V1__Batch *message =
            message_of(DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4, cases[i].type, cases[i].data,
                       cases[i].bytes, y_dims, 1);
        assert_int_equal(make(&plan, message, &batch, &err), 0);
        assert_int_equal(batch.batch.samples, 2);
        assert_false(batch.batch.x_is_u8);
        assert_int_equal(((const int64_t *)batch.batch.y)[0], cases[i].first);
        assert_int_equal(((const int64_t *)batch.batch.y)[1], cases[i].second);
        batch.release(batch.owner);
    }
    job_plan_free(&plan);
}

static void bytes_are_taken_for_a_model_that_normalises(void **state)
{
    (void)state;
    static const int64_t classes[] = {1, 2};
    JobPlan plan = plan_of("cross-entropy");
    OwnedBatch batch;
    Error err;
    assert_int_equal(make(&plan,
                          message_of(DPS__V1__DTYPE__U8, 2 * WIDTH, x_dims, 4, DPS__V1__DTYPE__I64,
                                     classes, 16, y_dims, 1),
                          &batch, &err),
                     0);
    assert_true(batch.batch.x_is_u8);
    batch.release(batch.owner);
    job_plan_free(&plan);
}

static void values_are_taken_for_mse(void **state)
{
    (void)state;
    static const float values[20] = {0.5F};
    static const int64_t dims[] = {2, 10}, three[] = {3, 10};
    JobPlan plan = plan_of("mse");
    OwnedBatch batch;
    Error err;
    assert_int_equal(make(&plan,
                          message_of(DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4,
                                     DPS__V1__DTYPE__F32, values, 80, dims, 2),
                          &batch, &err),
                     0);
    assert_true(((const float *)batch.batch.y)[0] == 0.5F);
    batch.release(batch.owner);
    static const float more[30];
    assert_int_equal(make(&plan,
                          message_of(DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4,
                                     DPS__V1__DTYPE__F32, more, 120, three, 2),
                          &batch, &err),
                     -EINVAL);
    assert_string_equal(err.message, "y has 3 samples, x has 2");
    job_plan_free(&plan);
}

static void wrong_tensors_are_refused_in_words(void **state)
{
    (void)state;
    static const int64_t classes[] = {1, 2, 3}, flat[] = {2, 784}, none[] = {0, 1, 28, 28},
                         three[] = {3}, square[] = {2, 1};
    static const float reals[] = {1, 2};
    JobPlan plan = plan_of("cross-entropy");
    const struct {
        Dps__V1__DType x_type;
        size_t x_bytes;
        const int64_t *x_dims;
        size_t x_n;
        Dps__V1__DType y_type;
        const void *y;
        size_t y_bytes;
        const int64_t *y_dims;
        size_t y_n;
        const char *sentence;
    } cases[] = {
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4, flat, 2, DPS__V1__DTYPE__I64, classes, 16, y_dims, 1,
         "x is F32 (2, 784); the model takes (B, 1, 28, 28)"},
        {DPS__V1__DTYPE__F32, 0, none, 4, DPS__V1__DTYPE__I64, classes, 16, y_dims, 1,
         "x is F32 (0, 1, 28, 28)"},
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4 - 1, x_dims, 4, DPS__V1__DTYPE__I64, classes, 16,
         y_dims, 1, "x"},
        {DPS__V1__DTYPE__I32, 2 * WIDTH * 4, x_dims, 4, DPS__V1__DTYPE__I64, classes, 16, y_dims, 1,
         "x is I32; the model takes F32"},
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4, DPS__V1__DTYPE__I64, classes, 24, three, 1,
         "x has 2 samples, so y takes (2)"},
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4, DPS__V1__DTYPE__I64, classes, 16, square, 2,
         "y is I64 (2, 1)"},
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4, DPS__V1__DTYPE__F32, reals, 8, y_dims, 1,
         "class indices are I64, I32 or U8"},
        {DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4, DPS__V1__DTYPE__I64, classes, 15, y_dims, 1,
         "y"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OwnedBatch batch;
        Error err;
        int r = make(&plan,
                     message_of(cases[i].x_type, cases[i].x_bytes, cases[i].x_dims, cases[i].x_n,
                                cases[i].y_type, cases[i].y, cases[i].y_bytes, cases[i].y_dims,
                                cases[i].y_n),
                     &batch, &err);
        if (r != -EINVAL || !strstr(err.message, cases[i].sentence))
            fail_msg("%zu: %d '%s' instead of '%s'", i, r, err.message, cases[i].sentence);
    }
    job_plan_free(&plan);
}

static void forward_needs_no_y(void **state)
{
    (void)state;
    JobPlan plan = plan_of("cross-entropy");
    OwnedBatch batch;
    Error err;
    assert_int_equal(make(&plan,
                          message_of(DPS__V1__DTYPE__F32, 2 * WIDTH * 4, x_dims, 4,
                                     DPS__V1__DTYPE__F32, NULL, 0, NULL, 0),
                          &batch, &err),
                     0);
    assert_null(batch.batch.y);
    batch.release(batch.owner);
    job_plan_free(&plan);
}

/* ---- specs ----------------------------------------------------------------------------------- */

static void spec_is_copied_field_by_field(void **state)
{
    (void)state;
    Dps__V1__JobSpec message = DPS__V1__JOB_SPEC__INIT;
    Dps__V1__JobSpec__OptionsEntry option = DPS__V1__JOB_SPEC__OPTIONS_ENTRY__INIT,
                                   *options[] = {&option};
    JobSpec spec;
    Error err;
    message.name = "n";
    message.model = "mlp";
    message.seed = UINT64_MAX;
    message.trainers = 3;
    message.lr = 0.5F;
    message.external_trainers = true;
    option.key = "hidden";
    option.value = "7";
    message.options = options;
    message.n_options = 1;
    assert_int_equal(unpack_spec(&message, &spec, &err), 0);
    assert_string_equal(spec.name, "n");
    assert_string_equal(spec.model, "mlp");
    assert_true(spec.seed == UINT64_MAX && spec.trainers == 3 && spec.lr == 0.5F);
    assert_true(spec.external_trainers);
    assert_int_equal(spec.n_options, 1);
    assert_string_equal(spec.options[0].key, "hidden");
    assert_string_equal(spec.options[0].value, "7");
}

static void spec_of_too_long_fields_is_refused(void **state)
{
    (void)state;
    char text[JOB_PATH_MAX + 1];
    JobSpec spec;
    Error err;
    memset(text, 'a', JOB_PATH_MAX);
    text[JOB_PATH_MAX] = '\0';
    Dps__V1__JobSpec message = DPS__V1__JOB_SPEC__INIT;
    message.data = text;
    assert_int_equal(unpack_spec(&message, &spec, &err), -EINVAL);
    assert_string_equal(err.message, "data has 1024 bytes; the most is 1023");
    message.data = text + 1;
    assert_int_equal(unpack_spec(&message, &spec, &err), 0);
    message.name = text + JOB_PATH_MAX - JOB_NAME_MAX;
    assert_int_equal(unpack_spec(&message, &spec, &err), -EINVAL);
    message.name = "";
    Dps__V1__JobSpec__OptionsEntry option = DPS__V1__JOB_SPEC__OPTIONS_ENTRY__INIT,
                                   *options[JOB_MAX_OPTIONS + 1];
    for (size_t i = 0; i <= JOB_MAX_OPTIONS; i++)
        options[i] = &option;
    message.options = options;
    message.n_options = JOB_MAX_OPTIONS + 1;
    assert_int_equal(unpack_spec(&message, &spec, &err), -EINVAL);
    message.n_options = 1;
    option.key = text + JOB_PATH_MAX - 32;
    assert_int_equal(unpack_spec(&message, &spec, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_widened),
        cmocka_unit_test(bytes_are_taken_for_a_model_that_normalises),
        cmocka_unit_test(values_are_taken_for_mse),
        cmocka_unit_test(wrong_tensors_are_refused_in_words),
        cmocka_unit_test(forward_needs_no_y),
        cmocka_unit_test(spec_is_copied_field_by_field),
        cmocka_unit_test(spec_of_too_long_fields_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
