#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void set_keeps_code_and_sentence(void **state)
{
    (void)state;
    Error err = {0};
    assert_int_equal(error_set(&err, -EINVAL, "job %d: %s", 7, "no data"), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.message, "job 7: no data");
}

static void no_error_is_wanted(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, -EIO, "%s", "lost"), -EIO);
    assert_int_equal(error_prefix(NULL, -EIO, "%s", "lost"), -EIO);
}

static void prefix_comes_first_and_may_change_the_code(void **state)
{
    (void)state;
    Error err = {0};
    error_set(&err, -EINVAL, "odd shape");
    assert_int_equal(error_prefix(&err, -EPROTO, "rank %d", 3), -EPROTO);
    assert_int_equal(err.code, -EPROTO);
    assert_string_equal(err.message, "rank 3: odd shape");
}

static void long_sentences_are_cut_and_ended(void **state)
{
    (void)state;
    Error err = {0};
    char text[2 * sizeof err.message];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&err, -EINVAL, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    error_prefix(&err, -EINVAL, "job 1");
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(strncmp(err.message, "job 1: xxx", 10), 0);
    error_prefix(&err, -EINVAL, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_keeps_code_and_sentence),
        cmocka_unit_test(no_error_is_wanted),
        cmocka_unit_test(prefix_comes_first_and_may_change_the_code),
        cmocka_unit_test(long_sentences_are_cut_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
