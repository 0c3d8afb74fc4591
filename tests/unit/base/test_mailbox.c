#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mailbox.h"

enum { WRITERS = 4, EACH = 5000 };

typedef struct Numbered {
    Task task;
    int writer, number;
} Numbered;

typedef struct Writer {
    Mailbox *mailbox;
    Numbered *tasks;
    int index;
} Writer;

static void *post_all(void *data)
{
    Writer *writer = data;
    for (int i = 0; i < EACH; i++) {
        writer->tasks[i].writer = writer->index;
        writer->tasks[i].number = i;
        mailbox_post(writer->mailbox, &writer->tasks[i].task);
    }
    return NULL;
}

static void start(Mailbox *mailbox, Writer writers[], pthread_t threads[])
{
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (Writer){mailbox, calloc(EACH, sizeof *writers[i].tasks), i};
        assert_non_null(writers[i].tasks);
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &writers[i]), 0);
    }
}

static void finish(Writer writers[], pthread_t threads[])
{
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        free(writers[i].tasks);
    }
}

static void expect_next(const Task *task, int next[])
{
    const Numbered *numbered = (const Numbered *)task;
    assert_int_equal(numbered->number, next[numbered->writer]++);
}

static void tasks_of_each_writer_come_in_order(void **state)
{
    (void)state;
    Mailbox *mailbox = NULL;
    Writer writers[WRITERS];
    pthread_t threads[WRITERS];
    int next[WRITERS] = {0};
    assert_int_equal(mailbox_new(&mailbox), 0);
    start(mailbox, writers, threads);
    for (int i = 0; i < WRITERS * EACH; i++)
        expect_next(mailbox_wait(mailbox), next);
    assert_null(mailbox_take(mailbox));
    assert_int_equal(mailbox_length(mailbox), 0);
    finish(writers, threads);
    mailbox_free(mailbox);
}

/* The loop's way of reading: sleep until the descriptor is readable, clear it, take until empty. A
 * wake-up that gets lost hangs here. */
static void the_descriptor_wakes_for_every_task(void **state)
{
    (void)state;
    Mailbox *mailbox = NULL;
    Writer writers[WRITERS];
    pthread_t threads[WRITERS];
    int next[WRITERS] = {0}, taken = 0;
    assert_int_equal(mailbox_new(&mailbox), 0);
    struct pollfd fd = {.fd = mailbox_fd(mailbox), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 0);
    start(mailbox, writers, threads);
    while (taken < WRITERS * EACH) {
        assert_int_equal(poll(&fd, 1, 10000), 1);
        mailbox_clear_fd(mailbox);
        for (Task *task; (task = mailbox_take(mailbox)); taken++)
            expect_next(task, next);
    }
    finish(writers, threads);
    mailbox_free(mailbox);
}

static void closing_ends_the_wait_after_the_tasks_inside(void **state)
{
    (void)state;
    Mailbox *mailbox = NULL;
    Task first, second;
    assert_int_equal(mailbox_new(&mailbox), 0);
    mailbox_post(mailbox, &first);
    mailbox_post(mailbox, &second);
    assert_int_equal(mailbox_length(mailbox), 2);
    mailbox_close(mailbox);
    assert_ptr_equal(mailbox_wait(mailbox), &first);
    assert_ptr_equal(mailbox_wait(mailbox), &second);
    assert_null(mailbox_wait(mailbox));
    mailbox_free(mailbox);
    assert_null(mailbox_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_of_each_writer_come_in_order),
        cmocka_unit_test(the_descriptor_wakes_for_every_task),
        cmocka_unit_test(closing_ends_the_wait_after_the_tasks_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
