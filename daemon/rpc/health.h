/* grpc.health.v1.Health: what stock probes ask. Loop thread only. */
#pragma once

#include "rpc/call.h"

typedef struct Health Health;

/* Knows the server as a whole (service ""), not serving. -ENOMEM */
int health_new(Health **ret);
/* After the server that serves it is gone. */
Health *health_free(Health *health);

/* Sets (and makes known) the state of a service ("dps.v1.Control"); "" is the server as a whole.
 * Tells those who watch it. -ENOMEM */
int health_set(Health *health, const char *service, bool serving);

/* For server_new; valid while the Health is. */
MethodTable health_methods(Health *health);
