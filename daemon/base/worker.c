#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct Worker {
    pthread_t thread;
    Mailbox *inbox;
    Mailbox *loop;
    char name[16];
};

static void *run(void *data)
{
    Worker *worker = data;
    pthread_setname_np(pthread_self(), worker->name);
    Task *task;
    while ((task = mailbox_wait(worker->inbox))) {
        void (*done)(Task *) = task->done; /* work() may free a task that does not come back */
        task->work(task);
        if (done)
            mailbox_post(worker->loop, task);
    }
    return NULL;
}

/* Signals belong to the loop. */
static int start_without_signals(Worker *worker)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

int worker_new(const char *name, Mailbox *loop, Worker **ret)
{
    Worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return -ENOMEM;
    worker->loop = loop;
    snprintf(worker->name, sizeof worker->name, "%s", name);
    int r = mailbox_new(&worker->inbox);
    if (r == 0)
        r = start_without_signals(worker);
    if (r < 0) {
        mailbox_free(worker->inbox);
        free(worker);
        return r;
    }
    *ret = worker;
    return 0;
}

void worker_post(Worker *worker, Task *task)
{
    mailbox_post(worker->inbox, task);
}

size_t worker_queue_length(Worker *worker)
{
    return mailbox_length(worker->inbox);
}

Worker *worker_free(Worker *worker)
{
    if (!worker)
        return NULL;
    mailbox_close(worker->inbox);
    pthread_join(worker->thread, NULL);
    mailbox_free(worker->inbox);
    free(worker);
    return NULL;
}
