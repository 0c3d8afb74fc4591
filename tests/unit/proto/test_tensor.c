#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/tensor.h"

static char problem[256];

static bool view_of(Dps__V1__DType dtype, const int64_t *dims, size_t n_dims, size_t bytes,
                    TensorView *view)
{
    static uint8_t data[4096];
    Dps__V1__Tensor tensor = DPS__V1__TENSOR__INIT;
    tensor.dtype = dtype;
    tensor.dims = (int64_t *)dims;
    tensor.n_dims = n_dims;
    tensor.data = (ProtobufCBinaryData){.data = data, .len = bytes};
    problem[0] = '\0';
    return tensor_view(&tensor, "x", view, problem, sizeof problem);
}

#define VIEW(dtype, bytes, ...)                                                                    \
    view_of(DPS__V1__DTYPE__##dtype, (int64_t[]){__VA_ARGS__},                                     \
            sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), bytes, &view)

static TensorView view;

static void good_tensors_pass(void **state)
{
    (void)state;
    assert_true(VIEW(F32, 4 * 6, 2, 3));
    assert_int_equal(view.elements, 6);
    assert_int_equal(view.ndim, 2);
    assert_int_equal(view.bytes, 24);
    assert_true(VIEW(I64, 8, 1));
    assert_true(VIEW(U8, 5, 5));
    assert_true(VIEW(BF16, 4, 2));
    assert_true(view_of(DPS__V1__DTYPE__F32, NULL, 0, 4, &view)); /* a scalar */
    assert_int_equal(view.elements, 1);
    assert_true(VIEW(F32, 0, 0, 28));
    assert_int_equal(view.elements, 0);
}

static void data_of_another_size_is_refused_with_both_sizes(void **state)
{
    (void)state;
    assert_false(VIEW(F32, 23, 2, 3));
    assert_string_equal(problem, "x is F32 (2, 3), which takes 24 bytes, but its data has 23");
    assert_false(VIEW(F32, 25, 2, 3));
    assert_false(VIEW(F32, 4, 0, 3));
    assert_false(VIEW(F32, 0, 1));
}

static void dims_that_multiply_past_the_range_are_refused(void **state)
{
    (void)state;
    assert_false(VIEW(U8, 0, INT64_MAX));
    assert_false(VIEW(F32, 0, INT64_MAX, 2));
    assert_non_null(strstr(problem, "2^63"));
    assert_false(VIEW(F32, 0, INT64_C(1) << 32, INT64_C(1) << 32));
    assert_false(VIEW(F32, 0, INT64_C(1) << 62)); /* elements fit, bytes wrap to 0 */
    assert_false(VIEW(F32, 0, INT64_C(1) << 62, 4, 0));
    assert_false(VIEW(F32, 0, 0, INT64_C(1) << 62, 4));
}

static void negative_dims_are_refused_by_number(void **state)
{
    (void)state;
    assert_false(VIEW(F32, 4, -1, -1));
    assert_string_equal(problem, "dim 0 of x is -1, it must not be negative");
    assert_false(VIEW(F32, 4, 1, INT64_MIN)); /* 2^63 on the wire */
}

static void too_many_dims_are_refused(void **state)
{
    (void)state;
    assert_true(VIEW(U8, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    assert_false(VIEW(U8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    assert_string_equal(problem, "x has 9 dims, the most is 8");
}

static void unknown_dtypes_are_refused(void **state)
{
    (void)state;
    assert_false(VIEW(DTYPE_UNSPECIFIED, 4, 1));
    assert_false(view_of((Dps__V1__DType)77, NULL, 0, 4, &view));
    assert_non_null(strstr(problem, "dtype 77"));
    assert_false(view_of((Dps__V1__DType)-1, NULL, 0, 4, &view));
    assert_false(tensor_view(NULL, "y", &view, problem, sizeof problem));
    assert_string_equal(problem, "y is missing");
}

static void text_of_a_view_never_passes_its_buffer(void **state)
{
    (void)state;
    assert_true(VIEW(F32, 4 * 6, 2, 3));
    char text[64];
    assert_string_equal(tensor_format(&view, text, sizeof text), "F32 (2, 3)");
    for (size_t size = 1; size < sizeof text; size++) {
        memset(text, 'x', sizeof text);
        tensor_format(&view, text, size);
        assert_true(strlen(text) < size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_tensors_pass),
        cmocka_unit_test(data_of_another_size_is_refused_with_both_sizes),
        cmocka_unit_test(dims_that_multiply_past_the_range_are_refused),
        cmocka_unit_test(negative_dims_are_refused_by_number),
        cmocka_unit_test(too_many_dims_are_refused),
        cmocka_unit_test(unknown_dtypes_are_refused),
        cmocka_unit_test(text_of_a_view_never_passes_its_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
