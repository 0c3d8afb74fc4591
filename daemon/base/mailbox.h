/* The only way between threads: a queue of owned tasks that wakes its reader.
 *
 * A Task is embedded in the message of whoever posts it. Posting hands it over: the poster must not
 * touch it until it comes back. A mailbox has any number of writers and one reader. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct Mailbox Mailbox;
typedef struct Task Task;

struct Task {
    void (*work)(Task *task); /* runs on the worker's thread */
    void (*done)(Task *task); /* then runs on the loop's thread, which owns the task again */
    Task *next;               /* private */
};

/* -ENOMEM, -EMFILE */
int mailbox_new(Mailbox **ret);
/* Tasks still inside are dropped without being run: drain first. */
Mailbox *mailbox_free(Mailbox *mailbox);

/* Any thread. Never fails: the bound on what is under way lies with those who post, each of whom
 * has a named limit and waits for `done` before it posts more. */
void mailbox_post(Mailbox *mailbox, Task *task);

/* Reader. Waits for a task; NULL once mailbox_close was called and all tasks are taken. */
Task *mailbox_wait(Mailbox *mailbox);
/* Reader. The next task or NULL, without waiting. */
Task *mailbox_take(Mailbox *mailbox);
/* Readable while the mailbox may hold tasks; for the event loop, which calls mailbox_clear_fd first
 * and takes until NULL after. */
int mailbox_fd(const Mailbox *mailbox);
void mailbox_clear_fd(Mailbox *mailbox);

/* Any thread. Ends mailbox_wait after the tasks that are already inside. */
void mailbox_close(Mailbox *mailbox);

size_t mailbox_length(Mailbox *mailbox);
