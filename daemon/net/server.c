#include "net/server.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/connection.h"
#include "net/listener.h"

enum { BUFFER_BYTES = 128 * 1024 };

const ServerLimits server_default_limits = {
    .connections = 1024,
    .streams = 128,
    .message_bytes = (size_t)64 << 20, /* a batch of 100 images of 224 × 224 in float32 */
    .request_bytes = (size_t)512 << 20,
    .send_queue_bytes = (size_t)2 << 20, /* two of the largest messages that dpsd sends */
    .header_bytes = 16 * 1024,
    .resets = 500,           /* a client that cancels all its calls now and then stays below */
    .control_frames = 20000, /* some clients send a PING a message to measure the path */
    .handshake_us = 10 * USEC_PER_SEC,
    .message_us = 60 * USEC_PER_SEC, /* the largest message at 1 MiB/s */
    .write_stall_us = 30 * USEC_PER_SEC,
    .keepalive_us = 2500 * USEC_PER_MSEC, /* a live trainer is heard of well within its lease */
};

struct Server {
    Loop *loop;
    ServerLimits limits;
    ServerEvents events;
    CallBudget budget;
    ConnectionHost host;
    Listener **listeners;
    size_t n_listeners;
    Connection *connections;
    unsigned n_connections;
    uint64_t last_id;
    bool draining;
    uint64_t refused; /* connections over the limit, since the last one that was not */
};

/* ---- connections ----------------------------------------------------------------------------- */

static void on_end(Connection *connection, void *data)
{
    Server *server = data;
    const ConnectionLink *link = connection_link(connection);
    if (link->prev)
        connection_link(link->prev)->next = link->next;
    else
        server->connections = link->next;
    if (link->next)
        connection_link(link->next)->prev = link->prev;
    server->n_connections--;
    if (server->events.on_disconnect)
        server->events.on_disconnect(connection_id(connection), server->events.data);
}

static void on_accept(int fd, void *data)
{
    Server *server = data;
    if (server->n_connections >= server->limits.connections) {
        if (server->refused++ == 0) /* once, not once a refused connection */
            log_warning("refusing connections: there are %u, the limit", server->n_connections);
        close(fd);
        return;
    }
    server->refused = 0;
    Connection *connection;
    int r = connection_new(&server->host, fd, ++server->last_id, &connection);
    if (r < 0) {
        log_warning("a connection could not be served: out of memory");
        return;
    }
    connection_link(connection)->next = server->connections;
    if (server->connections)
        connection_link(server->connections)->prev = connection;
    server->connections = connection;
    server->n_connections++;
}

/* Some hundred at most: a walk is short beside what it is asked for. */
static Connection *find(const Server *server, uint64_t id)
{
    Connection *connection = server->connections;
    while (connection && connection_id(connection) != id)
        connection = connection_link(connection)->next;
    return connection;
}

unsigned server_connections(const Server *server)
{
    return server->n_connections;
}

uint64_t server_silence_us(const Server *server, uint64_t id)
{
    const Connection *connection = find(server, id);
    if (!connection)
        return UINT64_MAX;
    return timers_now_us(server->host.timers) - connection_received_us(connection);
}

void server_close_connection(Server *server, uint64_t id)
{
    Connection *connection = find(server, id);
    if (connection)
        connection_close_later(connection);
}

/* ---- listeners ------------------------------------------------------------------------------- */

static int add_listener(Server *server, int fd, const char *path, Error *err)
{
    Listener **listeners =
        realloc(server->listeners, (server->n_listeners + 1) * sizeof *server->listeners);
    if (!listeners) {
        close(fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    server->listeners = listeners;
    ListenerHost host = {.base = server->host.base,
                         .timers = server->host.timers,
                         .on_accept = on_accept,
                         .data = server};
    int r = listener_new(&host, fd, path, &listeners[server->n_listeners], err);
    if (r == 0)
        server->n_listeners++;
    return r;
}

int server_listen(Server *server, const char *address, Error *err)
{
    int fds[ADDRESS_MAX_SOCKETS];
    size_t n;
    const char *path;
    int r = address_listen(address, fds, &n, &path, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        if (r == 0)
            r = add_listener(server, fds[i], path, err);
        else
            close(fds[i]);
    }
    return r;
}

int server_listen_fd(Server *server, int fd, Error *err)
{
    return add_listener(server, fd, NULL, err);
}

const char *server_listener(const Server *server, unsigned i)
{
    return i < server->n_listeners ? listener_address(server->listeners[i]) : NULL;
}

static void close_listeners(Server *server)
{
    for (size_t i = 0; i < server->n_listeners; i++)
        listener_free(server->listeners[i]);
    free(server->listeners);
    server->listeners = NULL;
    server->n_listeners = 0;
}

void server_drain(Server *server)
{
    if (server->draining)
        return;
    server->draining = true;
    close_listeners(server);
    for (Connection *c = server->connections; c; c = connection_link(c)->next)
        connection_drain(c);
}

/* ---- life ------------------------------------------------------------------------------------ */

int server_new(Loop *loop, const ServerLimits *limits, const MethodTable *tables, size_t n_tables,
               const ServerEvents *events, Server **ret)
{
    Server *server = calloc(1, sizeof *server);
    uint8_t *buffer = malloc(BUFFER_BYTES);
    if (!server || !buffer) {
        free(server);
        free(buffer);
        return -ENOMEM;
    }
    server->loop = loop;
    server->limits = *limits;
    if (events)
        server->events = *events;
    server->budget.limit = limits->request_bytes;
    server->host = (ConnectionHost){
        .base = loop_event_base(loop),
        .limits = &server->limits,
        .timers = loop_timers(loop),
        .tables = tables,
        .n_tables = n_tables,
        .budget = &server->budget,
        .buffer = buffer,
        .buffer_bytes = BUFFER_BYTES,
        .on_end = on_end,
        .data = server,
    };
    *ret = server;
    return 0;
}

Server *server_free(Server *server)
{
    if (!server)
        return NULL;
    close_listeners(server);
    while (server->connections)
        connection_free(server->connections);
    free(server->host.buffer);
    free(server);
    return NULL;
}
