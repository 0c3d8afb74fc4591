#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/timer.h"

static uint64_t fake_now;

static uint64_t fake_clock(void)
{
    return fake_now;
}

static char fired[64];

typedef struct Probe {
    Timer timer;
    char letter;
    Timers *timers;
    Timer *cancels;
    uint64_t again_after;
} Probe;

static void fire(void *data)
{
    Probe *probe = data;
    size_t used = strlen(fired);
    fired[used] = probe->letter;
    fired[used + 1] = '\0';
    if (probe->cancels)
        timer_cancel(probe->timers, probe->cancels);
    if (probe->again_after > 0)
        timer_arm(probe->timers, &probe->timer, probe->again_after);
}

static Probe probe_of(char letter, Timers *timers)
{
    return (Probe){.timer = {.fire = fire}, .letter = letter, .timers = timers};
}

static Timers *new_timers(void)
{
    Timers *timers = NULL;
    fake_now = 1000;
    fired[0] = '\0';
    assert_int_equal(timers_new(fake_clock, &timers), 0);
    return timers;
}

static void timers_fire_in_order_of_due_time(void **state)
{
    (void)state;
    Timers *timers = new_timers();
    Probe a = probe_of('a', timers), b = probe_of('b', timers), c = probe_of('c', timers),
          d = probe_of('d', timers);
    Probe *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++)
        all[i]->timer.data = all[i];
    assert_true(timers_next_us(timers) == UINT64_MAX);
    timer_arm(timers, &c.timer, 30);
    timer_arm(timers, &a.timer, 10);
    timer_arm(timers, &d.timer, 40);
    timer_arm(timers, &b.timer, 10); /* equal times: in the order of arming */
    assert_int_equal(timers_next_us(timers), 10);
    timers_run(timers);
    assert_string_equal(fired, "");
    fake_now += 30;
    assert_int_equal(timers_next_us(timers), 0);
    timers_run(timers);
    assert_string_equal(fired, "abc");
    assert_false(timer_is_armed(&a.timer));
    assert_true(timer_is_armed(&d.timer));
    assert_int_equal(timers_next_us(timers), 10);
    timer_cancel(timers, &d.timer);
    timer_cancel(timers, &d.timer); /* twice is fine */
    assert_true(timers_next_us(timers) == UINT64_MAX);
    timers_free(timers);
}

static void arming_again_moves_a_timer(void **state)
{
    (void)state;
    Timers *timers = new_timers();
    Probe a = probe_of('a', timers), b = probe_of('b', timers);
    a.timer.data = &a;
    b.timer.data = &b;
    timer_arm(timers, &a.timer, 10);
    timer_arm(timers, &b.timer, 20);
    timer_arm(timers, &a.timer, 50);
    fake_now += 30;
    timers_run(timers);
    assert_string_equal(fired, "b");
    fake_now += 30;
    timers_run(timers);
    assert_string_equal(fired, "ba");
    timers_free(timers);
}

static void firing_may_cancel_another_and_arm_itself(void **state)
{
    (void)state;
    Timers *timers = new_timers();
    Probe a = probe_of('a', timers), b = probe_of('b', timers);
    a.timer.data = &a;
    b.timer.data = &b;
    a.cancels = &b.timer;
    a.again_after = 100;
    timer_arm(timers, &a.timer, 10);
    timer_arm(timers, &b.timer, 11);
    fake_now += 20;
    timers_run(timers);
    assert_string_equal(fired, "a");
    assert_false(timer_is_armed(&b.timer));
    assert_int_equal(timers_next_us(timers), 100);
    timer_cancel(timers, &a.timer);
    timers_free(timers);
}

static void the_default_clock_moves(void **state)
{
    (void)state;
    Timers *timers = NULL;
    assert_int_equal(timers_new(NULL, &timers), 0);
    uint64_t before = timers_now_us(timers);
    Probe a = probe_of('a', timers);
    a.timer.data = &a;
    fired[0] = '\0';
    timer_arm(timers, &a.timer, 500);
    while (timers_next_us(timers) > 0)
        ;
    timers_run(timers);
    assert_string_equal(fired, "a");
    assert_true(timers_now_us(timers) >= before + 500);
    timers_free(timers);
    assert_null(timers_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_of_due_time),
        cmocka_unit_test(arming_again_moves_a_timer),
        cmocka_unit_test(firing_may_cancel_another_and_arm_itself),
        cmocka_unit_test(the_default_clock_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
