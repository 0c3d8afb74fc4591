/* The gRPC server: listeners, connections, HTTP/2 streams; hands each stream to rpc/ as a Call.
 *
 * Loop thread only. Everything a client controls has a limit in ServerLimits. */
#pragma once

#include "net/loop.h"
#include "rpc/call.h"

typedef struct Server Server;

typedef struct ServerLimits {
    unsigned connections;    /* at once; further ones are accepted and closed at once */
    unsigned streams;        /* at once on a connection (SETTINGS_MAX_CONCURRENT_STREAMS) */
    size_t message_bytes;    /* of one request message */
    size_t request_bytes;    /* of all requests that are still coming in, together */
    size_t send_queue_bytes; /* of a stream: call_send says stop above it */
    size_t header_bytes;     /* of a stream's header list */
    unsigned resets;         /* of streams, by a connection; as many again in 10 s (rapid reset) */
    unsigned control_frames; /* PING, SETTINGS, PRIORITY, empty DATA; likewise */
    uint64_t handshake_us;   /* from accept to the client's SETTINGS */
    uint64_t message_us;     /* from a message's first byte to its last */
    uint64_t write_stall_us; /* data is waiting and the peer takes none */
    uint64_t keepalive_us;   /* idle time after which the peer is asked with a PING */
} ServerLimits;

extern const ServerLimits server_default_limits;

typedef struct ServerEvents {
    /* A connection has ended; sessions tied to it end with it. */
    void (*on_disconnect)(uint64_t connection, void *data);
    void *data;
} ServerEvents;

/* The tables must outlive the server. */
int server_new(Loop *loop, const ServerLimits *limits, const MethodTable *tables, size_t n_tables,
               const ServerEvents *events, Server **ret);
/* Closes listeners and connections; calls still open are cancelled. */
Server *server_free(Server *server);

/* "unix:PATH" (mode 0660; a stale socket file is replaced, a live one is -EADDRINUSE) or
 * "tcp:HOST:PORT" (port 0: any; server_listener tells which). */
int server_listen(Server *server, const char *address, Error *err);
/* Takes over a listening socket from systemd; closes it in failure. */
int server_listen_fd(Server *server, int fd, Error *err);
/* Text of listener number i ("unix:/run/dpsd/dpsd.sock"), or NULL past the last. */
const char *server_listener(const Server *server, unsigned i);
/* Takes no new connections and sends GOAWAY on the old ones; calls under way go on. */
void server_drain(Server *server);

unsigned server_connections(const Server *server);
/* Microseconds since anything (a PING's answer included) came in on the connection; UINT64_MAX:
 * gone. */
uint64_t server_silence_us(const Server *server, uint64_t connection);
/* Closes a connection, as after its trainer was found dead. */
void server_close_connection(Server *server, uint64_t connection);
