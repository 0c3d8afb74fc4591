#include "ctl/trainer/feeder.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct FeederLease {
    uint64_t step, epoch;
    size_t n;
    uint64_t *indices; /* fit.batch of them */
} FeederLease;

/* Lease k stands in leases[k % capacity], its batch in batches[k % window]. The reader owns the
 * lease and the batch number `read`; the counters are guarded by the mutex. */
struct Feeder {
    Dataset *dataset;
    Fit fit;
    int event;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t work;           /* something to read, room to read it to, or the end */
    uint64_t pushed, read, popped; /* popped <= read <= pushed */
    bool stop;
    size_t capacity;
    FeederLease *leases;
    uint64_t *indices;
    FeederBatch *batches;
    char *buffers; /* x and y of every batch */
    int64_t *classes;
};

/* Classes as they are on the wire: y (n). */
static int write_classes(const Feeder *f, FeederBatch *batch, const FeederLease *lease)
{
    for (size_t i = 0; i < batch->samples; i++) {
        if (f->classes[i] >= f->fit.classes) {
            snprintf(batch->problem, sizeof(batch->problem),
                     "sample %" PRIu64 " has label %" PRId64 ", but the job's model has %" PRId64
                     " classes",
                     lease->indices[i], f->classes[i], f->fit.classes);
            return -EINVAL;
        }
        if (f->fit.y_dtype == DPS__V1__DTYPE__U8)
            ((uint8_t *)batch->y)[i] = (uint8_t)f->classes[i];
    }
    if (f->fit.y_dtype == DPS__V1__DTYPE__I64)
        memcpy(batch->y, f->classes, batch->samples * sizeof(int64_t));
    return 0;
}

static void read_batch(Feeder *f, const FeederLease *lease, FeederBatch *batch)
{
    int r;

    batch->step = lease->step;
    batch->epoch = lease->epoch;
    batch->samples = lease->n;
    batch->x_bytes = lease->n * f->fit.sample_bytes;
    batch->y_bytes = lease->n * f->fit.label_bytes;
    if (f->fit.classes > 0) {
        r = dataset_read(f->dataset, lease->indices, lease->n, batch->x, f->classes);
        batch->error = r < 0 ? r : write_classes(f, batch, lease);
    } else {
        r = dataset_read_targets(f->dataset, lease->indices, lease->n, batch->x, batch->y);
        batch->error = r;
    }
    if (r < 0)
        snprintf(batch->problem, sizeof(batch->problem),
                 "step %" PRIu64 " was leased a sample that the data set of %" PRIu64
                 " samples has not",
                 lease->step, dataset_info(f->dataset)->samples);
}

static bool may_read(const Feeder *f)
{
    return f->read < f->pushed && f->read - f->popped < f->fit.window;
}

static void *run(void *user)
{
    Feeder *f = user;
    const uint64_t one = 1;

    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->stop && !may_read(f))
            pthread_cond_wait(&f->work, &f->mutex);
        if (f->stop)
            break;
        pthread_mutex_unlock(&f->mutex);
        read_batch(f, &f->leases[f->read % f->capacity], &f->batches[f->read % f->fit.window]);
        pthread_mutex_lock(&f->mutex);
        f->read++;
        /* cannot fail short of 2^64 batches unseen */
        if (write(f->event, &one, sizeof(one)) < 0)
            continue;
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

static int allocate(Feeder *f)
{
    size_t x = f->fit.batch * f->fit.sample_bytes, y = f->fit.batch * f->fit.label_bytes;
    size_t each = (x + y + 127) / 64 * 64; /* y aligned for its type, and batches apart */

    f->capacity = FEEDER_LEASES(f->fit.window);
    f->leases = calloc(f->capacity, sizeof(*f->leases));
    f->indices = calloc(f->capacity * f->fit.batch, sizeof(*f->indices));
    f->batches = calloc(f->fit.window, sizeof(*f->batches));
    f->buffers = calloc(f->fit.window, each);
    f->classes = calloc(f->fit.batch, sizeof(*f->classes));
    if (!f->leases || !f->indices || !f->batches || !f->buffers || !f->classes)
        return -ENOMEM;
    for (size_t i = 0; i < f->capacity; i++)
        f->leases[i].indices = f->indices + i * f->fit.batch;
    for (size_t i = 0; i < f->fit.window; i++) {
        f->batches[i].x = f->buffers + i * each;
        f->batches[i].y = f->buffers + i * each + (x + 7) / 8 * 8;
    }
    return 0;
}

/* Signals are the main thread's. */
static int start(Feeder *f)
{
    sigset_t all, before;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&f->thread, NULL, run, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->started = r == 0;
    return -r;
}

int feeder_new(Dataset *dataset, const Fit *fit, Feeder **ret)
{
    Feeder *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return -ENOMEM;
    f->dataset = dataset;
    f->fit = *fit;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->work, NULL);
    f->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r = f->event < 0 ? -errno : allocate(f);
    if (r == 0)
        r = start(f);
    if (r < 0) {
        feeder_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

Feeder *feeder_free(Feeder *f)
{
    if (!f)
        return NULL;
    if (f->started) {
        pthread_mutex_lock(&f->mutex);
        f->stop = true;
        pthread_cond_signal(&f->work);
        pthread_mutex_unlock(&f->mutex);
        pthread_join(f->thread, NULL);
    }
    if (f->event >= 0)
        close(f->event);
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->mutex);
    free(f->leases);
    free(f->indices);
    free(f->batches);
    free(f->buffers);
    free(f->classes);
    free(f);
    return NULL;
}

int feeder_fd(const Feeder *f)
{
    return f->event;
}

void feeder_clear(Feeder *f)
{
    uint64_t count;

    while (read(f->event, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
}

int feeder_push(Feeder *f, uint64_t step, uint64_t epoch, const uint64_t *indices, size_t n)
{
    FeederLease *lease;
    int r = 0;

    if (n == 0 || n > f->fit.batch)
        return -EMSGSIZE;
    pthread_mutex_lock(&f->mutex);
    if (f->pushed - f->read < f->capacity) {
        lease = &f->leases[f->pushed++ % f->capacity];
        lease->step = step;
        lease->epoch = epoch;
        lease->n = n;
        memcpy(lease->indices, indices, n * sizeof(*indices));
        if (may_read(f))
            pthread_cond_signal(&f->work);
    } else {
        r = -ENOBUFS;
    }
    pthread_mutex_unlock(&f->mutex);
    return r;
}

const FeederBatch *feeder_front(Feeder *f)
{
    bool ready;

    pthread_mutex_lock(&f->mutex);
    ready = f->popped < f->read;
    pthread_mutex_unlock(&f->mutex);
    return ready ? &f->batches[f->popped % f->fit.window] : NULL;
}

/* Both counters are changed by this thread only. */
bool feeder_has_next(const Feeder *f)
{
    return f->pushed - f->popped > 1;
}

void feeder_pop(Feeder *f)
{
    pthread_mutex_lock(&f->mutex);
    f->popped++;
    if (may_read(f))
        pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->mutex);
}
