/* Requests of the fake store: as those of the real one (daemon/store/request.h), on virtual time. A
 * request is asked for, done on the disk in the order of asking, and answered later; a kill may come
 * in between. */
#pragma once

#include "disk.h"
#include "sim.h"

typedef struct Asked Asked;

typedef struct AskedKind {
    const char *what; /* "save a checkpoint" */
    bool writes;      /* fails where the disk is full */
    /* On the disk. 0 or a negative errno. */
    int (*run)(Asked *asked);
    /* In its place, where a fault is injected; may be NULL. */
    void (*fails)(Asked *asked);
    void (*answer)(Asked *asked, const Error *err);
    void (*release)(Asked *asked); /* frees what the request owns, not itself; may be NULL */
} AskedKind;

/* Embedded first in each kind's struct. */
struct Asked {
    Store *store;
    const AskedKind *kind;
    StoreDone done; /* for kinds whose callback is one; may be NULL */
    void *data;
    uint64_t job;
    int r;
    Asked *next;
};

/* -ENOMEM, -ESHUTDOWN */
int asked_new(Store *store, const AskedKind *kind, size_t size, uint64_t job, void *data,
              Asked **ret);
void asked_post(Asked *asked);
void asked_answer_done(Asked *asked, const Error *err);
/* The job's rows; NULL: -ENOENT is set. */
DiskJob *asked_job(Asked *asked);
