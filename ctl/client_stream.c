/* Streams: the request's headers, queues of messages out, frames in, and how a call ends. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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

/* After a callback: true if the stream was freed in it (and is gone now). */
static bool stream_leave(ClientStream *stream)
{
    stream->busy--;
    if (!stream->freed || stream->busy > 0)
        return stream->freed;
    stream_destroy(stream);
    return true;
}

/* ---- ends ---------------------------------------------------------------------------------------
 */

/* The status is known: resets what is left of the stream at the server and tells the user, who may
 * free it. */
static void stream_end(ClientStream *stream, bool reset, uint32_t error_code)
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
        stream_leave(stream);
    }
}

/* The client itself gives the call up. */
__attribute__((format(printf, 3, 4))) static void stream_fail(ClientStream *stream, GrpcStatus code,
                                                              const char *format, ...)
{
    va_list arguments;

    stream->status.code = code;
    va_start(arguments, format);
    vsnprintf(stream->status.message, sizeof stream->status.message, format, arguments);
    va_end(arguments);
    stream_end(stream, true, NGHTTP2_CANCEL);
}

static GrpcStatus status_of_http(int http_status)
{
    switch (http_status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static GrpcStatus status_of_reset(uint32_t error_code)
{
    switch (error_code) {
    case NGHTTP2_REFUSED_STREAM:
        return GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_INTERNAL;
    }
}

/* The server ended without a grpc-status: says what can be said. */
static void judge_missing_status(ClientStream *stream)
{
    ClientStatus *status = &stream->status;

    if (stream->http_status != 0 && stream->http_status != 200) {
        status->code = status_of_http(stream->http_status);
        snprintf(status->message, sizeof status->message, "the server answered HTTP %d, not gRPC",
                 stream->http_status);
    } else if (stream->http_status == 200 && !stream->is_grpc) {
        status->code = GRPC_UNKNOWN;
        snprintf(status->message, sizeof status->message, "the server's answer is not gRPC");
    } else {
        status->code = GRPC_INTERNAL;
        snprintf(status->message, sizeof status->message, "the server ended %s without a status",
                 stream->method->name);
    }
}

void client_stream_on_finished(ClientStream *stream)
{
    if (!stream->has_grpc_status)
        judge_missing_status(stream);
    else if (stream->status.code == GRPC_OK && grpc_frame_is_partial(&stream->parser)) {
        stream_fail(stream, GRPC_INTERNAL, "the last message of %s was cut off",
                    stream->method->name);
        return;
    }
    /* Ended before we were done: what is still queued would only be thrown away. */
    stream_end(stream, !stream->send_done, NGHTTP2_NO_ERROR);
}

void client_stream_on_closed(ClientStream *stream, uint32_t error_code)
{
    if (stream->has_grpc_status) {
        stream_end(stream, false, 0);
        return;
    }
    stream->status.code = status_of_reset(error_code);
    /* Not processed at all: as good as not reached. */
    stream->status.lost = error_code == NGHTTP2_REFUSED_STREAM;
    snprintf(stream->status.message, sizeof stream->status.message,
             stream->status.lost ? "dpsd is stopping and did not take the call %s (%s)"
                                 : "the server reset the call %s (%s)",
             stream->method->name, nghttp2_http2_strerror(error_code));
    stream_end(stream, false, 0);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
    ClientStream *stream = user;

    (void)fd;
    (void)what;
    stream_fail(stream, GRPC_DEADLINE_EXCEEDED, "%s was not answered within %g s",
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
        stream_end(stream, false, 0);
    }
}

void client_streams_destroy(Client *client)
{
    while (client->streams)
        client_stream_free(client->streams);
}

/* ---- what comes in ------------------------------------------------------------------------------
 */

static bool is_name(const char *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(name, wanted, size) == 0;
}

static int small_number(const char *text, size_t size)
{
    int number = 0;

    if (size == 0 || size > 3)
        return -1;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return -1;
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

void client_stream_on_header(ClientStream *stream, const char *name, size_t name_size,
                             const char *value, size_t value_size)
{
    static const char grpc[] = "application/grpc";

    if (is_name(name, name_size, ":status")) {
        stream->http_status = small_number(value, value_size);
    } else if (is_name(name, name_size, "content-type")) {
        stream->is_grpc =
            value_size >= sizeof grpc - 1 && strncasecmp(value, grpc, sizeof grpc - 1) == 0;
    } else if (is_name(name, name_size, "grpc-status")) {
        int code = small_number(value, value_size);
        stream->has_grpc_status = true;
        stream->status.code =
            code >= 0 && code <= GRPC_UNAUTHENTICATED ? (GrpcStatus)code : GRPC_UNKNOWN;
    } else if (is_name(name, name_size, "grpc-message")) {
        char encoded[3 * CLIENT_MESSAGE_SIZE];
        size_t size = value_size < sizeof encoded - 1 ? value_size : sizeof encoded - 1;
        memcpy(encoded, value, size);
        encoded[size] = '\0';
        grpc_message_decode(encoded, stream->status.message, sizeof stream->status.message);
    }
}

/* Unpacks the message that is whole and hands it over; false if the stream is over or freed. */
static bool deliver(ClientStream *stream)
{
    ProtobufCMessage *message = protobuf_c_message_unpack(
        stream->method->output, NULL, stream->parser.length, stream->parser.body);

    grpc_frame_next(&stream->parser);
    if (!message) {
        stream_fail(stream, GRPC_INTERNAL, "an answer of %s is not a %s", stream->method->name,
                    stream->method->output->short_name);
        return false;
    }
    stream->client->happened = true;
    stream->busy++;
    stream->handler->on_message(stream, message, stream->user);
    protobuf_c_message_free_unpacked(message, NULL);
    /* Ended in the callback: on_end has been called, or it was freed. */
    bool ended = stream->ended;
    return !stream_leave(stream) && !ended;
}

void client_stream_on_data(ClientStream *stream, const uint8_t *data, size_t size)
{
    stream->bytes_in += size;
    if (!stream->is_grpc)
        return; /* an error page; the end will say so */
    while (size > 0) {
        size_t taken = 0;
        GrpcFrameResult result = grpc_frame_parse(&stream->parser, data, size, &taken);
        data += taken;
        size -= taken;
        switch (result) {
        case GRPC_FRAME_MORE:
            break;
        case GRPC_FRAME_MESSAGE:
            if (!deliver(stream))
                return;
            break;
        case GRPC_FRAME_COMPRESSED:
            stream_fail(stream, GRPC_UNIMPLEMENTED,
                        "%s was answered compressed, which dpsctl did "
                        "not ask for",
                        stream->method->name);
            return;
        case GRPC_FRAME_TOO_LARGE:
            stream_fail(stream, GRPC_RESOURCE_EXHAUSTED,
                        "%s was answered by a message of %zu bytes, more than %d",
                        stream->method->name, stream->parser.length, CLIENT_MAX_RECEIVE);
            return;
        case GRPC_FRAME_NO_MEMORY:
            stream_fail(stream, GRPC_RESOURCE_EXHAUSTED, "out of memory for an answer of %s",
                        stream->method->name);
            return;
        }
    }
}

/* ---- what goes out ------------------------------------------------------------------------------
 */

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
        stream_leave(stream);
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

/* ---- open and free ------------------------------------------------------------------------------
 */

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
