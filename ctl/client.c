/* The connection: socket, event loop and HTTP/2 session. Streams are in client_stream.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include "ctl/client_internal.h"
#include "ctl/text.h"

DEFINE_CLEANUP(Client, client_free);

/* ---- the session's callbacks ----------------------------------------------------------------- */

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user)
{
    ClientStream *stream = client_find_stream(user, frame->hd.stream_id);

    (void)session;
    (void)flags;
    if (stream)
        client_stream_on_header(stream, (const char *)name, name_size, (const char *)value,
                                value_size);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    ClientStream *stream = client_find_stream(user, id);

    (void)session;
    (void)flags;
    if (stream)
        client_stream_on_data(stream, data, size);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    Client *client = user;
    ClientStream *stream;

    (void)session;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        client->greeted = true;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        client->going_away = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    stream = client_find_stream(client, frame->hd.stream_id);
    if (stream && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        client_stream_on_finished(stream);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
    ClientStream *stream = client_find_stream(user, id);

    (void)session;
    if (stream)
        client_stream_on_closed(stream, error_code);
    return 0;
}

/* A request that could not be sent any more, because the server is going away. */
static int on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *user)
{
    ClientStream *stream = client_find_stream(user, frame->hd.stream_id);

    (void)session;
    (void)error;
    if (stream && frame->hd.type == NGHTTP2_HEADERS)
        client_stream_on_closed(stream, NGHTTP2_REFUSED_STREAM);
    return 0;
}

static int session_new(Client *client)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, CLIENT_STREAM_WINDOW},
    };
    nghttp2_session_callbacks *callbacks;
    int r = nghttp2_session_callbacks_new(&callbacks);

    if (r != 0)
        return -ENOMEM;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_not_sent);
    r = nghttp2_session_client_new(&client->session, callbacks, client);
    nghttp2_session_callbacks_del(callbacks);
    if (r == 0)
        r = nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, settings, 2);
    if (r == 0)
        r = nghttp2_session_set_local_window_size(client->session, NGHTTP2_FLAG_NONE, 0,
                                                  CLIENT_CONNECTION_WINDOW);
    return r == 0 ? 0 : -ENOMEM;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The end of the connection: every open stream hears of it. */
static void lose(Client *client, const char *why)
{
    if (!client->connected)
        return;
    client->connected = false;
    client->happened = true;
    snprintf(client->problem, sizeof client->problem, "the connection to dpsd at %s is lost: %s",
             client->address, why);
    event_del(client->read_event);
    event_del(client->write_event);
    client_streams_lose(client);
}

/* Gathers frames into `out` until it is full or nghttp2 has none. */
static int gather(Client *client)
{
    for (;;) {
        if (client->chunk_size == 0) {
            ssize_t size = nghttp2_session_mem_send(client->session, &client->chunk);
            if (size < 0)
                return (int)size;
            if (size == 0)
                return 0;
            client->chunk_size = (size_t)size;
        }
        if (client->out_end == sizeof client->out)
            return 0;
        size_t room = sizeof client->out - client->out_end;
        size_t take = client->chunk_size < room ? client->chunk_size : room;
        memcpy(client->out + client->out_end, client->chunk, take);
        client->out_end += take;
        client->chunk += take;
        client->chunk_size -= take;
    }
}

/* Writes until nothing is left or the socket is full. */
static void flush_out(Client *client)
{
    while (client->connected) {
        int r = gather(client);
        if (r < 0) {
            lose(client, nghttp2_strerror(r));
            return;
        }
        if (client->out_start == client->out_end)
            return;
        ssize_t sent = send(client->fd, client->out + client->out_start,
                            client->out_end - client->out_start, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            event_add(client->write_event, NULL);
            return;
        }
        if (sent < 0) {
            lose(client, strerror(errno));
            return;
        }
        client->out_start += (size_t)sent;
        if (client->out_start == client->out_end)
            client->out_start = client->out_end = 0;
    }
}

static void check_over(Client *client)
{
    if (client->connected && !nghttp2_session_want_read(client->session) &&
        !nghttp2_session_want_write(client->session))
        lose(client, client->greeted ? "the server ended it" : "no HTTP/2 is spoken there");
}

static void on_socket_writable(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    flush_out(user);
}

static void on_socket_readable(evutil_socket_t fd, short what, void *user)
{
    Client *client = user;
    ssize_t size = recv(fd, client->in, sizeof client->in, 0), taken;

    (void)what;
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size < 0) {
        lose(client, strerror(errno));
        return;
    }
    if (size == 0) {
        lose(client, "the server closed it");
        return;
    }
    taken = nghttp2_session_mem_recv(client->session, client->in, (size_t)size);
    if (taken < 0) {
        lose(client, nghttp2_strerror((int)taken));
        return;
    }
    flush_out(client);
    check_over(client);
}

static void on_wake(evutil_socket_t fd, short what, void *user)
{
    Client *client = user;
    uint64_t count;

    (void)what;
    if (read(fd, &count, sizeof count) == sizeof count)
        client->happened = true;
}

static void on_wait_over(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int events_new(Client *client)
{
    client->base = event_base_new();
    if (!client->base)
        return -ENOMEM;
    client->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (client->wake_fd < 0)
        return -errno;
    client->read_event =
        event_new(client->base, client->fd, EV_READ | EV_PERSIST, on_socket_readable, client);
    client->write_event = event_new(client->base, client->fd, EV_WRITE, on_socket_writable, client);
    client->wake_event =
        event_new(client->base, client->wake_fd, EV_READ | EV_PERSIST, on_wake, client);
    client->wait_timer = evtimer_new(client->base, on_wait_over, client);
    if (!client->read_event || !client->write_event || !client->wake_event || !client->wait_timer)
        return -ENOMEM;
    if (event_add(client->read_event, NULL) < 0 || event_add(client->wake_event, NULL) < 0)
        return -ENOMEM;
    return 0;
}

static int open_failed(ClientStatus *status, int r)
{
    status->code = GRPC_UNAVAILABLE;
    status->lost = true;
    if (!status->message[0])
        snprintf(status->message, sizeof status->message, "%s", strerror(-r));
    ctl_sanitise(status->message);
    return r;
}

int client_open(const char *address, int timeout_ms, Client **ret, ClientStatus *status)
{
    _cleanup_(client_freep) Client *client = calloc(1, sizeof *client);
    int r;

    *status = (ClientStatus){.code = GRPC_OK};
    if (!client)
        return open_failed(status, -ENOMEM);
    client->fd = client->wake_fd = -1;
    for (int i = 0; i < CLIENT_MAX_WATCHES; i++)
        client->watches[i].fd = -1;
    client->address = strdup(address ? address : client_default_address());
    if (!client->address)
        return open_failed(status, -ENOMEM);
    r = client_connect(client->address, timeout_ms, &client->fd, &client->authority,
                       status->message, sizeof status->message);
    if (r == 0)
        r = events_new(client);
    if (r == 0)
        r = session_new(client);
    if (r < 0)
        return open_failed(status, r);
    client->connected = true;
    *ret = MOVE(client);
    return 0;
}

static void free_event(struct event *event)
{
    if (event)
        event_free(event);
}

Client *client_free(Client *client)
{
    if (!client)
        return NULL;
    client_streams_destroy(client);
    if (client->connected) {
        nghttp2_session_terminate_session(client->session, NGHTTP2_NO_ERROR);
        flush_out(client);
    }
    nghttp2_session_del(client->session);
    for (int i = 0; i < CLIENT_MAX_WATCHES; i++)
        free_event(client->watches[i].event);
    free_event(client->read_event);
    free_event(client->write_event);
    free_event(client->wake_event);
    free_event(client->wait_timer);
    if (client->base)
        event_base_free(client->base);
    if (client->fd >= 0)
        close(client->fd);
    if (client->wake_fd >= 0)
        close(client->wake_fd);
    free(client->address);
    free(client->authority);
    free(client);
    return NULL;
}

const char *client_address(const Client *client)
{
    return client->address;
}

bool client_is_connected(const Client *client)
{
    return client->connected && !client->going_away;
}

const char *client_problem(const Client *client)
{
    if (client_is_connected(client))
        return NULL;
    return client->connected ? "dpsd is stopping and takes no new calls" : client->problem;
}

/* ---- running --------------------------------------------------------------------------------- */

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int loop_once(Client *client, int64_t left_us)
{
    const struct timeval left = {.tv_sec = left_us / 1000000, .tv_usec = left_us % 1000000};
    int r;

    if (left_us > 0)
        evtimer_add(client->wait_timer, &left);
    r = event_base_loop(client->base, left_us == 0 ? EVLOOP_NONBLOCK : EVLOOP_ONCE);
    evtimer_del(client->wait_timer);
    return r < 0 ? -EIO : 0;
}

int client_run_once(Client *client, int timeout_ms)
{
    int64_t deadline = timeout_ms > 0 ? now_us() + (int64_t)timeout_ms * 1000 : timeout_ms;
    int64_t left = timeout_ms > 0 ? (int64_t)timeout_ms * 1000 : timeout_ms;

    if (!client->connected)
        return -ENOTCONN;
    client->happened = false;
    flush_out(client);
    client_streams_continue(client);
    while (client->connected) {
        int r = loop_once(client, client->happened ? 0 : left);
        if (r < 0)
            return r;
        flush_out(client);
        client_streams_continue(client);
        if (client->happened || left == 0)
            break;
        if (timeout_ms > 0) {
            left = deadline - now_us();
            if (left <= 0)
                break;
        }
    }
    return client->connected ? 0 : -ENOTCONN;
}

void client_wake(Client *client)
{
    const uint64_t one = 1;
    int saved = errno;

    /* A full counter means that it is awake already. */
    if (write(client->wake_fd, &one, sizeof one) < 0)
        errno = saved;
}

static void on_watch(evutil_socket_t fd, short what, void *user)
{
    ClientWatch *watch = user;

    (void)what;
    watch->client->happened = true;
    watch->on_readable(fd, watch->user);
}

int client_watch_fd(Client *client, int fd, void (*on_readable)(int fd, void *user), void *user)
{
    ClientWatch *room = NULL;

    for (int i = 0; i < CLIENT_MAX_WATCHES; i++) {
        if (client->watches[i].fd == fd)
            return -EEXIST;
        if (client->watches[i].fd < 0 && !room)
            room = &client->watches[i];
    }
    if (!room)
        return -ENOSPC;
    *room = (ClientWatch){.client = client, .fd = -1, .on_readable = on_readable, .user = user};
    room->event = event_new(client->base, fd, EV_READ | EV_PERSIST, on_watch, room);
    if (!room->event)
        return -ENOMEM;
    if (event_add(room->event, NULL) < 0) {
        event_free(MOVE(room->event));
        return -ENOMEM;
    }
    room->fd = fd;
    return 0;
}

void client_unwatch_fd(Client *client, int fd)
{
    for (int i = 0; i < CLIENT_MAX_WATCHES; i++) {
        ClientWatch *watch = &client->watches[i];
        if (watch->fd == fd && fd >= 0) {
            event_free(MOVE(watch->event));
            watch->fd = -1;
        }
    }
}
