/* The two services of dps.v1 as method tables. One file a group of methods: unpack, call, pack. */
#pragma once

#include "rpc/call.h"
#include "session/session.h"

/* What only main() knows, for ServerInfo. Strings are valid until the next call. */
typedef struct ServerFacts {
    const char *version, *state_dir, *backend, *note;
    const char *(*listener)(void *data, unsigned i); /* NULL past the last */
    unsigned (*connections)(void *data);
    void *data;
    uint64_t started_us;
} ServerFacts;

typedef struct Services {
    JobManager *jobs;
    SessionTable *sessions;
    Store *store;
    Timers *timers;
    ServerFacts facts;
} Services;

/* Valid while `services` is. */
MethodTable control_methods(Services *services);
MethodTable training_methods(Services *services);
