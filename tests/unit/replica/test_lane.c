/* A lane runs its queue in order on its own thread and knows how long it was busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/clock.h"
#include "replica/lane.h"

enum { TASKS = 20, SPIN_US = 1000 };

typedef struct Job {
    Task task; /* first, so that a Task is its Job */
    int number;
    pthread_t thread;
    struct Log *log;
} Job;

typedef struct Log {
    int order[TASKS], n;
} Log;

static void spin(Task *task)
{
    Job *job = (Job *)task;
    uint64_t end = clock_monotonic_us() + SPIN_US;
    while (clock_monotonic_us() < end)
        continue;
    job->thread = pthread_self();
    job->log->order[job->log->n++] = job->number;
}

static void nothing(Task *task)
{
    (void)task;
}

static void tasks_run_in_order_and_come_back(void **state)
{
    (void)state;
    Mailbox *loop;
    Lane *lane;
    Log log = {0};
    Job jobs[TASKS];
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(lane_new("cpu:3", 3, loop, &lane), 0);
    assert_string_equal(lane_name(lane), "cpu:3");
    assert_int_equal(lane_index(lane), 3);
    for (int i = 0; i < TASKS; i++) {
        jobs[i] = (Job){.task = {.work = spin, .done = nothing}, .number = i, .log = &log};
        lane_post(lane, &jobs[i].task);
    }
    for (int i = 0; i < TASKS; i++)
        assert_ptr_equal(mailbox_wait(loop), &jobs[i].task);
    for (int i = 0; i < TASKS; i++) {
        assert_int_equal(log.order[i], i);
        assert_false(pthread_equal(jobs[i].thread, pthread_self()));
    }
    assert_int_equal(lane_queue_length(lane), 0);
    assert_true(lane_busy_us(lane) > 0);
    assert_true(lane_busy_us(lane) < 60 * USEC_PER_SEC);
    assert_null(lane_free(lane));
    assert_null(lane_free(NULL));
    mailbox_free(loop);
}

static void free_runs_what_was_posted(void **state)
{
    (void)state;
    Mailbox *loop;
    Lane *lane;
    Log log = {0};
    Job jobs[TASKS];
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(lane_new("cpu:0", 0, loop, &lane), 0);
    for (int i = 0; i < TASKS; i++) {
        jobs[i] = (Job){.task = {.work = spin, .done = nothing}, .number = i, .log = &log};
        lane_post(lane, &jobs[i].task);
    }
    lane_free(lane);
    assert_int_equal(log.n, TASKS);
    for (int i = 0; i < TASKS; i++)
        assert_ptr_equal(mailbox_take(loop), &jobs[i].task);
    assert_null(mailbox_take(loop));
    mailbox_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_in_order_and_come_back),
        cmocka_unit_test(free_runs_what_was_posted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
