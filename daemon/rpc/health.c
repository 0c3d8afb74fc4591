#include "rpc/health.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus Status;

#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING

typedef struct HealthService {
    char *name;
    bool serving;
} HealthService;

/* One Watch stream; lives until its call is cancelled. */
typedef struct Watcher {
    Health *health;
    Call *call;
    char *service;
    Status sent;
    bool any_sent, held; /* held: the client takes nothing at the moment */
    struct Watcher *prev, *next;
} Watcher;

struct Health {
    HealthService *services;
    size_t n;
    Watcher *watchers;
};

static const HealthService *find(const Health *health, const char *service)
{
    for (size_t i = 0; i < health->n; i++)
        if (strcmp(health->services[i].name, service) == 0)
            return &health->services[i];
    return NULL;
}

static Status status_of(const Health *health, const char *service)
{
    const HealthService *found = find(health, service);
    if (!found)
        return SERVICE_UNKNOWN;
    return found->serving ? SERVING : NOT_SERVING;
}

int health_new(Health **ret)
{
    Health *health = calloc(1, sizeof *health);
    if (!health)
        return -ENOMEM;
    int r = health_set(health, "", false);
    if (r < 0) {
        health_free(health);
        return r;
    }
    *ret = health;
    return 0;
}

Health *health_free(Health *health)
{
    if (!health)
        return NULL;
    for (size_t i = 0; i < health->n; i++)
        free(health->services[i].name);
    free(health->services);
    free(health);
    return NULL;
}

static void check(Call *call, const ProtobufCMessage *message, void *server)
{
    const Request *request = (const Request *)message;
    const HealthService *service = find(server, request->service);
    if (!service) {
        call_fail(call, GRPC_NOT_FOUND, "there is no service %s", request->service);
        return;
    }
    Response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = service->serving ? SERVING : NOT_SERVING;
    call_reply(call, &response.base);
}

/* ---- Watch ----------------------------------------------------------------------------------- */

static void watcher_tell(Watcher *watcher)
{
    Status status = status_of(watcher->health, watcher->service);
    if (watcher->held || (watcher->any_sent && watcher->sent == status))
        return;
    Response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = status;
    watcher->any_sent = true;
    watcher->sent = status;
    watcher->held = !call_send(watcher->call, &response.base);
}

static void on_writable(Call *call, void *data)
{
    (void)call;
    Watcher *watcher = data;
    watcher->held = false;
    watcher_tell(watcher);
}

static void on_cancel(void *data)
{
    Watcher *watcher = data;
    if (watcher->prev)
        watcher->prev->next = watcher->next;
    else
        watcher->health->watchers = watcher->next;
    if (watcher->next)
        watcher->next->prev = watcher->prev;
    free(watcher->service);
    free(watcher);
}

static void watch(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_writable = on_writable, .on_cancel = on_cancel};
    Health *health = server;
    const Request *request = (const Request *)message;
    _cleanup_free_ char *service = strdup(request->service);
    Watcher *watcher = service ? calloc(1, sizeof *watcher) : NULL;
    if (!watcher) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *watcher = (Watcher){
        .health = health, .call = call, .service = MOVE(service), .next = health->watchers};
    if (health->watchers)
        health->watchers->prev = watcher;
    health->watchers = watcher;
    call_set_events(call, &events, watcher);
    watcher_tell(watcher);
}

static int add(Health *health, const char *service)
{
    HealthService *services = realloc(health->services, (health->n + 1) * sizeof *health->services);
    if (!services)
        return -ENOMEM;
    health->services = services;
    char *name = strdup(service);
    if (!name)
        return -ENOMEM;
    services[health->n++] = (HealthService){.name = name};
    return 0;
}

int health_set(Health *health, const char *service, bool serving)
{
    if (!find(health, service)) {
        int r = add(health, service);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < health->n; i++)
        if (strcmp(health->services[i].name, service) == 0)
            health->services[i].serving = serving;
    for (Watcher *watcher = health->watchers; watcher; watcher = watcher->next)
        watcher_tell(watcher);
    return 0;
}

MethodTable health_methods(Health *health)
{
    static const Method methods[] = {
        {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor, false,
         false, check},
        {"/grpc.health.v1.Health/Watch", &grpc__health__v1__health_check_request__descriptor, false,
         true, watch},
    };
    return (MethodTable){methods, sizeof methods / sizeof *methods, health};
}
