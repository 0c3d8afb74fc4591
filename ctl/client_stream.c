/* Streams: how a call begins, its queue of messages out, and how it ends. What comes in is in
 * client_receive.c. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl/client_internal.h"
#include "ctl/text.h"

static void stream_destroy(ClientStream *stream)
{
    if (stream->deadline)
        event_free(stream->deadline);
    for (ClientBlock *block = stream->head, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    grpc_frame_free(&stream->parser);
    free(stream);
}

/* Off the client's list: no callback of the session finds it any more. */
static void stream_unlink(ClientStream *stream)
{
    for (ClientStream **at = &stream->client->streams; *at; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            stream->next = NULL;
            return;
        }
    }
}

ClientStream *client_find_stream(Client *client, int32_t id)
{
    for (ClientStream *stream = client->streams; stream; stream = stream->next)
        if (stream->id == id)
            return stream;
    return NULL;
}

bool client_stream_leave(ClientStream *stream)
{
    stream->busy--;
    if (!stream->freed || stream->busy > 0)
        return stream->freed;
    stream_destroy(stream);
    return true;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void client_stream_end(ClientStream *stream, bool reset, uint32_t error_code)
{
    Client *client = stream->client;

    if (stream->ended)
        return;
    stream->ended = true;
    client->happened = true;
    if (stream->deadline)
        event_del(stream->deadline);
    if (reset && client->connected)
        nghttp2_submit_rst_stream(client->session, NGHTTP2_FLAG_NONE, stream->id, error_code);
    stream_unlink(stream);
    ctl_sanitise(stream->status.message);
    if (stream->handler->on_end) {
        stream->busy++;
        stream->handler->on_end(stream, &stream->status, stream->user);
        client_stream_leave(stream);
    }
}

void client_stream_fail(ClientStream *stream, GrpcStatus code, const char *format, ...)
{
    va_list arguments;

    stream->status.code = code;
    va_start(arguments, format);
    vsnprintf(stream->status.message, sizeof stream->status.message, format, arguments);
    va_end(arguments);
    client_stream_end(stream, true, NGHTTP2_CANCEL);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
    ClientStream *stream = user;

    (void)fd;
    (void)what;
    client_stream_fail(stream, GRPC_DEADLINE_EXCEEDED, "%s was not answered within %g s",
                       stream->method->name, stream->timeout_ms / 1000.0);
}

void client_streams_lose(Client *client)
{
    while (client->streams) {
        ClientStream *stream = client->streams;
        /* A status that is there already stands. */
        if (!stream->has_grpc_status) {
            stream->status.code = GRPC_UNAVAILABLE;
            stream->status.lost = true;
            memcpy(stream->status.message, client->problem, sizeof client->problem);
        }
        client_stream_end(stream, false, 0);
    }
}

void client_streams_destroy(Client *client)
{
    while (client->streams)
        client_stream_free(client->streams);
}

/* ---- what goes out --------------------------------------------------------------------------- */

/* Fills one DATA frame from the queue. */
static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *user)
{
    ClientStream *stream = client_find_stream(user, id);
    size_t filled = 0;

    (void)session;
    (void)source;
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    while (filled < size && stream->head) {
        ClientBlock *block = stream->head;
        size_t left = block->size - block->used;
        size_t take = left < size - filled ? left : size - filled;
        memcpy(buffer + filled, block->data + block->used, take);
        filled += take;
        block->used += take;
        if (block->used < block->size)
            continue;
        stream->head = block->next;
        if (!stream->head)
            stream->tail = &stream->head;
        free(block);
    }
    stream->queued -= filled;
    stream->bytes_out += filled;
    if (!stream->head && stream->send_closed) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        stream->send_done = true;
        return (ssize_t)filled;
    }
    return filled > 0 ? (ssize_t)filled : NGHTTP2_ERR_DEFERRED;
}

void client_streams_continue(Client *client)
{
    ClientStream *stream = client->streams;

    while (stream) {
        if (!stream->wants_room || stream->queued > CLIENT_SEND_QUEUE / 2) {
            stream = stream->next;
            continue;
        }
        stream->wants_room = false;
        client->happened = true;
        if (!stream->handler->on_writable)
            continue;
        stream->busy++;
        stream->handler->on_writable(stream, stream->user);
        client_stream_leave(stream);
        stream = client->streams; /* the callback may have freed any of them */
    }
}

int client_stream_send(ClientStream *stream, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    ClientBlock *block;

    if (stream->ended || stream->send_closed)
        return -EPIPE;
    if (size > UINT32_MAX)
        return -EMSGSIZE;
    if (stream->queued > 0 && stream->queued + size > CLIENT_SEND_QUEUE) {
        stream->wants_room = true;
        return -EAGAIN;
    }
    block = malloc(sizeof *block + GRPC_FRAME_HEADER + size);
    if (!block)
        return -ENOMEM;
    block->next = NULL;
    block->size = GRPC_FRAME_HEADER + size;
    block->used = 0;
    grpc_frame_header(block->data, (uint32_t)size);
    protobuf_c_message_pack(message, block->data + GRPC_FRAME_HEADER);
    *stream->tail = block;
    stream->tail = &block->next;
    stream->queued += block->size;
    nghttp2_session_resume_data(stream->client->session, stream->id);
    return 0;
}

int client_stream_send_wait(ClientStream *stream, const ProtobufCMessage *message)
{
    for (;;) {
        int r = client_stream_send(stream, message);
        if (r != -EAGAIN)
            return r;
        r = client_run_once(stream->client, -1);
        if (r < 0 && !stream->ended)
            return r;
    }
}

void client_stream_close_send(ClientStream *stream)
{
    if (stream->ended || stream->send_closed)
        return;
    stream->send_closed = true;
    nghttp2_session_resume_data(stream->client->session, stream->id);
}

/* ---- open and free --------------------------------------------------------------------------- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static int submit(ClientStream *stream, const ProtobufCServiceDescriptor *service)
{
    const nghttp2_data_provider provider = {.read_callback = read_queue};
    char path[128], timeout[32];
    nghttp2_nv headers[9];
    size_t count = 0;
    int32_t id;

    snprintf(path, sizeof path, "/%s/%s", service->name, stream->method->name);
    headers[count++] = header(":method", "POST");
    headers[count++] = header(":scheme", "http");
    headers[count++] = header(":path", path);
    headers[count++] = header(":authority", stream->client->authority);
    if (stream->timeout_ms >= 0)
        headers[count++] =
            header("grpc-timeout", grpc_timeout_format((int64_t)stream->timeout_ms * 1000, timeout,
                                                       sizeof timeout));
    headers[count++] = header("te", "trailers");
    headers[count++] = header("content-type", "application/grpc");
    headers[count++] = header("user-agent", "dpsctl/" DPS_VERSION);
    headers[count++] = header("grpc-accept-encoding", "identity");
    id = nghttp2_submit_request(stream->client->session, NULL, headers, count, &provider, NULL);
    if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE)
        return -ENOTCONN;
    if (id < 0)
        return -ENOMEM;
    stream->id = id;
    return 0;
}

static int start_deadline(ClientStream *stream)
{
    const struct timeval after = {.tv_sec = stream->timeout_ms / 1000,
                                  .tv_usec = stream->timeout_ms % 1000 * 1000L};

    if (stream->timeout_ms < 0)
        return 0;
    stream->deadline = evtimer_new(stream->client->base, on_deadline, stream);
    if (!stream->deadline || evtimer_add(stream->deadline, &after) < 0)
        return -ENOMEM;
    return 0;
}

int client_stream_open(Client *client, const ProtobufCServiceDescriptor *service,
                       const char *method, int timeout_ms, const ClientStreamHandler *handler,
                       void *user, ClientStream **ret)
{
    const ProtobufCMethodDescriptor *found =
        protobuf_c_service_descriptor_get_method_by_name(service, method);
    ClientStream *stream;
    int r;

    if (!found)
        return -EINVAL;
    if (!client_is_connected(client))
        return -ENOTCONN;
    stream = calloc(1, sizeof *stream);
    if (!stream)
        return -ENOMEM;
    stream->client = client;
    stream->method = found;
    stream->handler = handler;
    stream->user = user;
    stream->timeout_ms = timeout_ms;
    stream->tail = &stream->head;
    grpc_frame_init(&stream->parser, CLIENT_MAX_RECEIVE);
    r = start_deadline(stream);
    if (r == 0)
        r = submit(stream, service);
    if (r < 0) {
        stream_destroy(stream);
        return r;
    }
    stream->next = client->streams;
    client->streams = stream;
    *ret = stream;
    return 0;
}

ClientStream *client_stream_free(ClientStream *stream)
{
    if (!stream || stream->freed)
        return NULL;
    stream->freed = true;
    if (!stream->ended) {
        stream->ended = true;
        if (stream->client->connected)
            nghttp2_submit_rst_stream(stream->client->session, NGHTTP2_FLAG_NONE, stream->id,
                                      NGHTTP2_CANCEL);
        stream_unlink(stream);
    }
    if (stream->busy == 0)
        stream_destroy(stream);
    return NULL;
}

bool client_stream_is_ended(const ClientStream *stream)
{
    return stream->ended;
}

const ClientStatus *client_stream_status(const ClientStream *stream)
{
    return stream->ended ? &stream->status : NULL;
}

size_t client_stream_queued(const ClientStream *stream)
{
    return stream->queued;
}

uint64_t client_stream_bytes_out(const ClientStream *stream)
{
    return stream->bytes_out;
}

uint64_t client_stream_bytes_in(const ClientStream *stream)
{
    return stream->bytes_in;
}
