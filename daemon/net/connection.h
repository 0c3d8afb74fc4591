/* One accepted socket: moves bytes between it and its Http2, and keeps its clocks. Loop thread
 * only; only the connection's own loop callbacks, and server_free, free it. */
#pragma once

#include "net/http2.h"

typedef struct Connection Connection;
struct event_base;

/* What connections have of their server. */
typedef struct ConnectionHost {
    struct event_base *base;
    const ServerLimits *limits;
    Timers *timers;
    const MethodTable *tables;
    size_t n_tables;
    CallBudget *budget;
    uint8_t *buffer; /* what one read brings; shared, since one connection reads at a time */
    size_t buffer_bytes;
    /* The connection is about to be freed: the server forgets it. */
    void (*on_end)(Connection *connection, void *data);
    void *data;
} ConnectionHost;

/* Takes over fd, in failure too. -ENOMEM */
int connection_new(const ConnectionHost *host, int fd, uint64_t id, Connection **ret);
/* Calls that are open are cancelled. */
Connection *connection_free(Connection *connection);

/* Closes it from a loop callback of its own, soon. */
void connection_close_later(Connection *connection);
void connection_drain(Connection *connection);

uint64_t connection_id(const Connection *connection);
uint64_t connection_received_us(const Connection *connection);

/* The server's list. */
typedef struct ConnectionLink {
    Connection *prev, *next;
} ConnectionLink;
ConnectionLink *connection_link(Connection *connection);
