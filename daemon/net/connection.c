#include "net/connection.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "net/peer.h"

enum {
    OUT_BYTES = 64 * 1024,    /* gathered for one write */
    OUT_SLACK = 32 * 1024,    /* the chunk of nghttp2 that passes OUT_BYTES still fits */
    TURN_BYTES = 1024 * 1024, /* moved before the other connections have their turn */
    TICK_MIN_US = 20 * 1000,
    TICK_MAX_US = 1000 * 1000,
};

struct Connection {
    const ConnectionHost *host;
    int fd;
    uint64_t id;
    Http2 *http2;
    struct event *readable, *writable;
    uint8_t *out; /* bytes start … end are still to be written */
    size_t start, end;
    Timer tick;
    uint64_t accepted_us;
    uint64_t received_us; /* anything came in */
    uint64_t pinged_us;   /* 0: no PING is waiting for its answer */
    uint64_t partial_us;  /* no frame has become whole since; 0: none is under way */
    uint64_t stalled_us;  /* data is waiting and the socket takes none since; 0: it does */
    bool doomed;          /* to be closed by its own callback */
    int64_t peer_uid;
    char peer[128];
    ConnectionLink link;
};

/* ---- writing --------------------------------------------------------------------------------- */

/* Gathers what there is to send. 0 or a negative errno. */
static int fill(Connection *connection)
{
    connection->start = connection->end = 0;
    while (connection->end < OUT_BYTES) {
        const uint8_t *data;
        ssize_t n = http2_send(connection->http2, &data);
        if (n <= 0)
            return (int)n;
        if ((size_t)n > OUT_BYTES + OUT_SLACK - connection->end)
            return -EPROTO; /* cannot be: we send frames of 16 KiB, and headers are shorter */
        memcpy(connection->out + connection->end, data, (size_t)n);
        connection->end += (size_t)n;
    }
    return 0;
}

/* 0: all written; 1: the socket takes no more; otherwise a negative errno. */
static int drain_out(Connection *connection)
{
    while (connection->start < connection->end) {
        ssize_t n = send(connection->fd, connection->out + connection->start,
                         connection->end - connection->start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (connection->stalled_us == 0)
                connection->stalled_us = timers_now_us(connection->host->timers);
            return 1;
        }
        if (n < 0)
            return -errno;
        connection->start += (size_t)n;
        connection->stalled_us = 0;
    }
    return 0;
}

/* Writes what there is. 0, or a negative errno when the connection is to be closed. */
static int flush(Connection *connection)
{
    size_t moved = 0;
    for (;;) {
        int r = drain_out(connection);
        if (r < 0)
            return r;
        if (r > 0 || moved > TURN_BYTES) {
            event_add(connection->writable, NULL); /* more when the socket is asked again */
            return 0;
        }
        r = fill(connection);
        if (r < 0)
            return r;
        http2_tell_writable(connection->http2);
        if (connection->end == 0)
            return http2_is_over(connection->http2) ? -ESHUTDOWN : 0;
        moved += connection->end;
    }
}

/* ---- loop callbacks -------------------------------------------------------------------------- */

static void on_writable(evutil_socket_t fd, short what, void *data)
{
    (void)fd;
    (void)what;
    Connection *connection = data;
    if (connection->doomed || flush(connection) < 0)
        connection_free(connection);
}

/* Notes whether a frame is on its way in: a peer that sends a byte now and then is noticed. */
static void note_progress(Connection *connection, uint64_t frames_before)
{
    connection->received_us = timers_now_us(connection->host->timers);
    connection->pinged_us = 0;
    if (http2_frames(connection->http2) != frames_before)
        connection->partial_us = 0;
    else if (connection->partial_us == 0)
        connection->partial_us = connection->received_us;
}

/* Reads what there is. 0, or a negative errno when the connection is to be closed. */
static int receive(Connection *connection)
{
    const ConnectionHost *host = connection->host;
    for (size_t moved = 0; moved < TURN_BYTES;) {
        ssize_t n = recv(connection->fd, host->buffer, host->buffer_bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        if (n == 0)
            return -ESHUTDOWN;
        uint64_t frames = http2_frames(connection->http2);
        int r = http2_receive(connection->http2, host->buffer, (size_t)n);
        if (r < 0)
            return r;
        note_progress(connection, frames);
        moved += (size_t)n;
        if ((size_t)n < host->buffer_bytes)
            return 0;
    }
    return 0;
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
    (void)fd;
    (void)what;
    Connection *connection = data;
    int r = receive(connection);
    int w = flush(connection); /* in failure too: it may have a GOAWAY that says why */
    if (r < 0 || w < 0)
        connection_free(connection);
}

static uint64_t tick_us(const ServerLimits *limits)
{
    uint64_t shortest = limits->handshake_us;
    if (limits->message_us < shortest)
        shortest = limits->message_us;
    if (limits->write_stall_us < shortest)
        shortest = limits->write_stall_us;
    if (limits->keepalive_us < shortest)
        shortest = limits->keepalive_us;
    shortest /= 4;
    if (shortest < TICK_MIN_US)
        return TICK_MIN_US;
    return shortest > TICK_MAX_US ? TICK_MAX_US : shortest;
}

static bool passed(uint64_t since_us, uint64_t now_us, uint64_t limit_us)
{
    return since_us != 0 && now_us - since_us >= limit_us;
}

/* Why the connection is to be closed; NULL: it is not. */
static const char *overdue(const Connection *connection, uint64_t now)
{
    const ServerLimits *limits = connection->host->limits;
    if (!http2_is_greeted(connection->http2) &&
        passed(connection->accepted_us, now, limits->handshake_us))
        return "no HTTP/2 greeting came in time";
    /* A request that is slow has an answer at message_us; twice that is for what is no request. */
    if (passed(connection->partial_us, now, 2 * limits->message_us))
        return "a frame did not come in whole in time";
    if (passed(connection->stalled_us, now, limits->write_stall_us))
        return "the peer takes no data";
    if (passed(connection->pinged_us, now, limits->write_stall_us))
        return "the peer answers no PING";
    return NULL;
}

static void on_tick(void *data)
{
    Connection *connection = data;
    const ConnectionHost *host = connection->host;
    uint64_t now = timers_now_us(host->timers);
    const char *why = overdue(connection, now);
    if (why) {
        log_info("%s: closing the connection: %s", connection->peer, why);
        connection_free(connection);
        return;
    }
    http2_check(connection->http2, now);
    if (connection->pinged_us == 0 && http2_is_greeted(connection->http2) &&
        now - connection->received_us >= host->limits->keepalive_us) {
        connection->pinged_us = now;
        http2_ping(connection->http2);
    }
    timer_arm(host->timers, &connection->tick, tick_us(host->limits));
}

static void wake(void *data)
{
    Connection *connection = data;
    event_active(connection->writable, EV_WRITE, 1);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int set_up(Connection *connection)
{
    const ConnectionHost *host = connection->host;
    int one = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* Unix: refused */
    peer_describe(connection->fd, connection->peer, sizeof connection->peer, &connection->peer_uid);
    connection->out = malloc(OUT_BYTES + OUT_SLACK);
    connection->readable =
        event_new(host->base, connection->fd, EV_READ | EV_PERSIST, on_readable, connection);
    connection->writable = event_new(host->base, connection->fd, EV_WRITE, on_writable, connection);
    if (!connection->out || !connection->readable || !connection->writable)
        return -ENOMEM;
    Http2Config config = {
        .limits = host->limits,
        .host = {.timers = host->timers,
                 .tables = host->tables,
                 .n_tables = host->n_tables,
                 .budget = host->budget,
                 .message_bytes = host->limits->message_bytes,
                 .message_us = host->limits->message_us,
                 .peer = connection->peer,
                 .peer_uid = connection->peer_uid,
                 .connection = connection->id},
        .wake = wake,
        .data = connection,
    };
    int r = http2_new(&config, &connection->http2);
    if (r < 0)
        return r;
    return event_add(connection->readable, NULL) < 0 ? -ENOMEM : 0;
}

static void release(Connection *connection)
{
    timer_cancel(connection->host->timers, &connection->tick);
    http2_free(connection->http2);
    if (connection->readable)
        event_free(connection->readable);
    if (connection->writable)
        event_free(connection->writable);
    free(connection->out);
    close(connection->fd);
    free(connection);
}

int connection_new(const ConnectionHost *host, int fd, uint64_t id, Connection **ret)
{
    Connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        close(fd);
        return -ENOMEM;
    }
    *connection = (Connection){.host = host, .fd = fd, .id = id};
    connection->accepted_us = connection->received_us = timers_now_us(host->timers);
    connection->tick = (Timer){.fire = on_tick, .data = connection};
    int r = set_up(connection);
    if (r < 0) {
        release(connection);
        return r;
    }
    timer_arm(host->timers, &connection->tick, tick_us(host->limits));
    wake(connection);
    *ret = connection;
    return 0;
}

Connection *connection_free(Connection *connection)
{
    if (!connection)
        return NULL;
    const ConnectionHost *host = connection->host;
    connection->http2 = http2_free(connection->http2);
    host->on_end(connection, host->data);
    release(connection);
    return NULL;
}

void connection_close_later(Connection *connection)
{
    connection->doomed = true;
    wake(connection);
}

void connection_drain(Connection *connection)
{
    http2_drain(connection->http2);
}

uint64_t connection_id(const Connection *connection)
{
    return connection->id;
}

uint64_t connection_received_us(const Connection *connection)
{
    return connection->received_us;
}

ConnectionLink *connection_link(Connection *connection)
{
    return &connection->link;
}
