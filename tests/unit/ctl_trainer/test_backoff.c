/* The waits between tries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ctl/trainer/backoff.h"

static void waits_double_up_to_the_last(void **state)
{
    Backoff backoff = {.random = 1};

    (void)state;
    for (int i = 0, step = 50; i < 100; i++, step = step < 1600 ? step * 2 : 2000) {
        int wait = backoff_next(&backoff);

        assert_in_range(wait, step < 2000 ? step / 2 : 800, step);
    }
    backoff_reset(&backoff);
    assert_in_range(backoff_next(&backoff), 25, 50);
}

static void two_trainers_do_not_march_in_step(void **state)
{
    Backoff a = {.random = 1}, b = {.random = 2};
    int same = 0;

    (void)state;
    for (int i = 0; i < 100; i++)
        same += backoff_next(&a) == backoff_next(&b);
    assert_in_range(same, 0, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_last),
        cmocka_unit_test(two_trainers_do_not_march_in_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
