#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/worker.h"

enum { N = 1000 };

typedef struct Job {
    Task task;
    int number;
    pthread_t ran_on;
} Job;

static int order[N], ran; /* the worker's while it lives */

static void record(Task *task)
{
    Job *job = (Job *)task;
    job->ran_on = pthread_self();
    order[ran++] = job->number;
}

static void counted_done(Task *task)
{
    (void)task;
}

static void tasks_run_in_order_on_the_thread_and_come_back(void **state)
{
    (void)state;
    static Job jobs[N];
    Mailbox *loop = NULL;
    Worker *worker = NULL;
    ran = 0;
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(worker_new("a name that is too long", loop, &worker), 0);
    for (int i = 0; i < N; i++) {
        jobs[i] = (Job){.task = {.work = record, .done = counted_done}, .number = i};
        worker_post(worker, &jobs[i].task);
    }
    for (int i = 0; i < N; i++) {
        Task *task = mailbox_wait(loop);
        assert_ptr_equal(task, &jobs[i].task);
        assert_false(pthread_equal(jobs[i].ran_on, pthread_self()));
        assert_true(pthread_equal(jobs[i].ran_on, jobs[0].ran_on));
    }
    assert_int_equal(worker_queue_length(worker), 0);
    worker_free(worker);
    for (int i = 0; i < N; i++)
        assert_int_equal(order[i], i);
    mailbox_free(loop);
}

static void free_itself(Task *task)
{
    ran++;
    free(task);
}

/* A task without `done` is work()'s to free; freeing the worker runs what was posted. */
static void freeing_the_worker_runs_what_was_posted(void **state)
{
    (void)state;
    Mailbox *loop = NULL;
    Worker *worker = NULL;
    ran = 0;
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(worker_new("w", loop, &worker), 0);
    for (int i = 0; i < N; i++) {
        Task *task = calloc(1, sizeof *task);
        assert_non_null(task);
        task->work = free_itself;
        worker_post(worker, task);
    }
    worker_free(worker);
    assert_int_equal(ran, N);
    assert_null(mailbox_take(loop));
    mailbox_free(loop);
    assert_null(worker_free(NULL));
}

static atomic_bool blocked;

static void look_at_signals(Task *task)
{
    (void)task;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    blocked = sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGINT) == 1;
}

static void signals_are_left_to_the_loop(void **state)
{
    (void)state;
    Mailbox *loop = NULL;
    Worker *worker = NULL;
    Task task = {.work = look_at_signals};
    assert_int_equal(mailbox_new(&loop), 0);
    assert_int_equal(worker_new("w", loop, &worker), 0);
    worker_post(worker, &task);
    worker_free(worker);
    sigset_t here;
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    assert_true(blocked);
    assert_false(sigismember(&here, SIGTERM));
    mailbox_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_in_order_on_the_thread_and_come_back),
        cmocka_unit_test(freeing_the_worker_runs_what_was_posted),
        cmocka_unit_test(signals_are_left_to_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
