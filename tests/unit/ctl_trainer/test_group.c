/* Which batches are held: groups of the size asked for, and never one without an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ctl/trainer/group.h"

static void nothing_is_held_without_accumulation(void **state)
{
    Group group = {.size = 1};

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(group_judge(&group, i % 2, i % 3, 1000), GROUP_STEP);
        group_sent(&group, GROUP_STEP);
    }
    assert_int_equal(group_wait_ms(&group, 1000), -1);
}

static void the_last_of_a_group_steps(void **state)
{
    Group group = {.size = 3};

    (void)state;
    for (int i = 0; i < 12; i++) {
        GroupVerdict verdict = group_judge(&group, true, true, 1000);
        assert_int_equal(verdict, i % 3 == 2 ? GROUP_STEP : GROUP_HOLD);
        group_sent(&group, verdict);
    }
}

static void the_last_of_a_group_needs_no_successor(void **state)
{
    Group group = {.size = 2, .held = 1};

    (void)state;
    assert_int_equal(group_judge(&group, false, false, 1000), GROUP_STEP);
}

static void a_lease_may_come_with_an_answer(void **state)
{
    Group group = {.size = 4};

    (void)state;
    assert_int_equal(group_judge(&group, false, true, 1000), GROUP_WAIT);
    assert_int_equal(group_wait_ms(&group, 100000), -1); /* no end to it but the answer */
    assert_int_equal(group_judge(&group, false, true, 100000), GROUP_WAIT);
    assert_int_equal(group_judge(&group, true, true, 100001), GROUP_HOLD);
}

static void without_a_successor_the_group_is_closed_in_time(void **state)
{
    Group group = {.size = 4, .held = 1};

    (void)state;
    assert_int_equal(group_judge(&group, false, false, 1000), GROUP_WAIT);
    assert_int_equal(group_wait_ms(&group, 1000), GROUP_PATIENCE_MS);
    assert_int_equal(group_wait_ms(&group, 1000 + GROUP_PATIENCE_MS - 1), 1);
    assert_int_equal(group_judge(&group, false, false, 1000 + GROUP_PATIENCE_MS - 1), GROUP_WAIT);
    assert_int_equal(group_wait_ms(&group, 1000 + 2 * GROUP_PATIENCE_MS), 0);
    assert_int_equal(group_judge(&group, false, false, 1000 + GROUP_PATIENCE_MS), GROUP_STEP);
    group_sent(&group, GROUP_STEP);
    assert_int_equal(group.held, 0);
    assert_int_equal(group_wait_ms(&group, 1000 + 2 * GROUP_PATIENCE_MS), -1);
}

static void a_lease_that_comes_in_time_ends_the_wait(void **state)
{
    Group group = {.size = 4};

    (void)state;
    assert_int_equal(group_judge(&group, false, false, 1000), GROUP_WAIT);
    assert_int_equal(group_judge(&group, true, false, 1100), GROUP_HOLD);
    group_sent(&group, GROUP_HOLD);
    assert_int_equal(group.held, 1);
    assert_int_equal(group_wait_ms(&group, 1100), -1);
    assert_int_equal(group_judge(&group, false, false, 5000), GROUP_WAIT); /* its own patience */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_held_without_accumulation),
        cmocka_unit_test(the_last_of_a_group_steps),
        cmocka_unit_test(the_last_of_a_group_needs_no_successor),
        cmocka_unit_test(a_lease_may_come_with_an_answer),
        cmocka_unit_test(without_a_successor_the_group_is_closed_in_time),
        cmocka_unit_test(a_lease_that_comes_in_time_ends_the_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
