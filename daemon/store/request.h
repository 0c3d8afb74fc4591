/* One call of the store on its way: made on the loop's thread, run on the store thread, answered
 * and freed on the loop's thread again.
 *
 * A request embeds Request as its first member. It owns copies of what it was given. */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"
#include "store/db.h"
#include "store/store.h"

typedef struct Request Request;

typedef struct RequestKind {
    const char *what; /* completes "cannot …" */
    bool transaction; /* run() goes between BEGIN and COMMIT */
    /* Store thread. */
    int (*run)(Request *request, Db *db, Error *err);
    /* Loop's thread: calls the callback, if there is one. */
    void (*answer)(Request *request);
    /* Frees what the request owns, not itself. May be NULL. */
    void (*release)(Request *request);
} RequestKind;

struct Request {
    Task task;
    const RequestKind *kind;
    Store *store;
    void *data;     /* the callback's */
    StoreDone done; /* for kinds whose callback is a StoreDone; may be NULL */
    int result;
    Error err;
};

/* A zeroed request of `size` bytes. -ENOMEM, -EAGAIN (too many wait), -ESHUTDOWN (store closed) */
int request_new(Store *store, const RequestKind *kind, size_t size, void *data, Request **ret);
Request *request_free(Request *request);
DEFINE_CLEANUP(Request, request_free);

/* Hands the request over to the store thread. */
void request_post(Request *request);

/* The error for a callback: NULL where all went well. */
const Error *request_error(const Request *request);
/* An answer() for kinds whose callback is a StoreDone. */
void request_answer_done(Request *request);
