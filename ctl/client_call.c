/* Calls that wait: one request, and one reply or a stream of them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl/client_internal.h"

int client_status_errno(const ClientStatus *status)
{
    if (status->lost)
        return -ENOTCONN;
    switch (status->code) {
    case GRPC_OK:
        return 0;
    case GRPC_DEADLINE_EXCEEDED:
        return -ETIMEDOUT;
    case GRPC_CANCELLED:
        return -ECANCELED;
    case GRPC_NOT_FOUND:
        return -ENOENT;
    default:
        return -EREMOTEIO;
    }
}

int client_stream_wait(ClientStream *stream, ClientStatus *status)
{
    while (!stream->ended) {
        int r = client_run_once(stream->client, -1);
        if (r < 0 && !stream->ended) {
            *status = (ClientStatus){.code = GRPC_INTERNAL};
            snprintf(status->message, sizeof status->message, "the event loop failed: %s",
                     strerror(-r));
            return r;
        }
    }
    *status = stream->status;
    return client_status_errno(status);
}

/* Opens a stream for one request and sends it. On failure `status` says why. */
static int send_request(Client *client, const ProtobufCServiceDescriptor *service,
                        const char *method, const ProtobufCMessage *request, int timeout_ms,
                        const ClientStreamHandler *handler, void *user, ClientStream **ret,
                        ClientStatus *status)
{
    ClientStream *stream = NULL;
    int r = client_stream_open(client, service, method, timeout_ms, handler, user, &stream);

    if (r == 0)
        r = client_stream_send(stream, request);
    if (r == 0) {
        client_stream_close_send(stream);
        *ret = stream;
        return 0;
    }
    client_stream_free(stream);
    *status = (ClientStatus){.code = r == -ENOTCONN ? GRPC_UNAVAILABLE : GRPC_INTERNAL,
                             .lost = r == -ENOTCONN};
    snprintf(status->message, sizeof status->message, "%s",
             r == -ENOTCONN ? client_problem(client) : strerror(-r));
    return r;
}

typedef struct Call {
    ProtobufCMessage *reply; /* of client_call */
    size_t replies;
    ClientOnReply on_reply;
    void *user;
    bool stopped;
} Call;

/* ---- one reply ------------------------------------------------------------------------------- */

/* The message ends with the callback, so the one reply is kept as a copy. Replies are small. */
static ProtobufCMessage *copy_message(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    _cleanup_free_ uint8_t *packed = malloc(size + 1);

    if (!packed)
        return NULL;
    protobuf_c_message_pack(message, packed);
    return protobuf_c_message_unpack(message->descriptor, NULL, size, packed);
}

static void keep_reply(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    Call *call = user;

    (void)stream;
    if (call->replies++ == 0)
        call->reply = copy_message(message);
}

int client_call(Client *client, const ProtobufCServiceDescriptor *service, const char *method,
                const ProtobufCMessage *request, int timeout_ms, ProtobufCMessage **ret,
                ClientStatus *status)
{
    static const ClientStreamHandler handler = {.on_message = keep_reply};
    Call call = {.reply = NULL};
    ClientStream *stream;
    int r = send_request(client, service, method, request, timeout_ms, &handler, &call, &stream,
                         status);

    if (r != 0)
        return r;
    r = client_stream_wait(stream, status);
    client_stream_free(stream);
    if (r == 0 && call.replies == 1 && !call.reply) {
        *status = (ClientStatus){.code = GRPC_RESOURCE_EXHAUSTED, .message = "out of memory"};
        r = -ENOMEM;
    } else if (r == 0 && call.replies != 1) {
        *status = (ClientStatus){.code = GRPC_INTERNAL};
        snprintf(status->message, sizeof status->message,
                 "the server answered %s with %zu messages instead of one", method, call.replies);
        r = -EREMOTEIO;
    }
    if (r == 0) {
        *ret = call.reply;
        return 0;
    }
    if (call.reply)
        protobuf_c_message_free_unpacked(call.reply, NULL);
    return r;
}

/* ---- a stream of replies --------------------------------------------------------------------- */

static void pass_reply(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    Call *call = user;

    (void)stream;
    if (!call->stopped && !call->on_reply(message, call->user))
        call->stopped = true;
}

int client_call_stream(Client *client, const ProtobufCServiceDescriptor *service,
                       const char *method, const ProtobufCMessage *request, int timeout_ms,
                       ClientOnReply on_reply, void *user, ClientStatus *status)
{
    static const ClientStreamHandler handler = {.on_message = pass_reply};
    Call call = {.on_reply = on_reply, .user = user};
    ClientStream *stream;
    int r = send_request(client, service, method, request, timeout_ms, &handler, &call, &stream,
                         status);

    if (r != 0)
        return r;
    while (!stream->ended && !call.stopped)
        client_run_once(client, -1);
    if (call.stopped) {
        *status = (ClientStatus){.code = GRPC_CANCELLED, .message = "stopped by the caller"};
        r = -ECANCELED;
    } else {
        *status = stream->status;
        r = client_status_errno(status);
    }
    client_stream_free(stream);
    return r;
}
