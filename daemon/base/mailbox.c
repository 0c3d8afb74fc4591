#include "base/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct Mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    Task *head, *tail;
    size_t length;
    bool closed;
    int fd;
};

int mailbox_new(Mailbox **ret)
{
    Mailbox *mailbox = calloc(1, sizeof *mailbox);
    if (!mailbox)
        return -ENOMEM;
    mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->fd < 0) {
        free(mailbox);
        return -EMFILE;
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_cond_init(&mailbox->filled, NULL);
    *ret = mailbox;
    return 0;
}

Mailbox *mailbox_free(Mailbox *mailbox)
{
    if (!mailbox)
        return NULL;
    close(mailbox->fd);
    pthread_cond_destroy(&mailbox->filled);
    pthread_mutex_destroy(&mailbox->lock);
    free(mailbox);
    return NULL;
}

static void wake(Mailbox *mailbox)
{
    uint64_t one = 1;
    ssize_t ignored = write(mailbox->fd, &one, sizeof one);
    (void)ignored; /* EAGAIN means that the counter is full, so the reader is awake anyway */
}

void mailbox_post(Mailbox *mailbox, Task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&mailbox->lock);
    if (mailbox->tail)
        mailbox->tail->next = task;
    else
        mailbox->head = task;
    mailbox->tail = task;
    bool first = mailbox->length++ == 0;
    pthread_cond_signal(&mailbox->filled);
    pthread_mutex_unlock(&mailbox->lock);
    if (first)
        wake(mailbox);
}

static Task *take_locked(Mailbox *mailbox)
{
    Task *task = mailbox->head;
    if (!task)
        return NULL;
    mailbox->head = task->next;
    if (!mailbox->head)
        mailbox->tail = NULL;
    mailbox->length--;
    task->next = NULL;
    return task;
}

Task *mailbox_wait(Mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    while (!mailbox->head && !mailbox->closed)
        pthread_cond_wait(&mailbox->filled, &mailbox->lock);
    Task *task = take_locked(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
    return task;
}

Task *mailbox_take(Mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    Task *task = take_locked(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
    return task;
}

int mailbox_fd(const Mailbox *mailbox)
{
    return mailbox->fd;
}

void mailbox_clear_fd(Mailbox *mailbox)
{
    uint64_t count;
    ssize_t ignored = read(mailbox->fd, &count, sizeof count);
    (void)ignored;
}

void mailbox_close(Mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->closed = true;
    pthread_cond_broadcast(&mailbox->filled);
    pthread_mutex_unlock(&mailbox->lock);
}

size_t mailbox_length(Mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    size_t length = mailbox->length;
    pthread_mutex_unlock(&mailbox->lock);
    return length;
}
