/* What comes in on a stream: headers, frames, and the status at the end. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ctl/client_internal.h"

/* ---- headers and messages -------------------------------------------------------------------- */

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
        client_stream_fail(stream, GRPC_INTERNAL, "an answer of %s is not a %s",
                           stream->method->name, stream->method->output->short_name);
        return false;
    }
    stream->client->happened = true;
    stream->busy++;
    stream->handler->on_message(stream, message, stream->user);
    protobuf_c_message_free_unpacked(message, NULL);
    /* Ended in the callback: on_end has been called, or it was freed. */
    bool ended = stream->ended;
    return !client_stream_leave(stream) && !ended;
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
            client_stream_fail(stream, GRPC_UNIMPLEMENTED,
                               "%s was answered compressed, which dpsctl did "
                               "not ask for",
                               stream->method->name);
            return;
        case GRPC_FRAME_TOO_LARGE:
            client_stream_fail(stream, GRPC_RESOURCE_EXHAUSTED,
                               "%s was answered by a message of %zu bytes, more than %d",
                               stream->method->name, stream->parser.length, CLIENT_MAX_RECEIVE);
            return;
        case GRPC_FRAME_NO_MEMORY:
            client_stream_fail(stream, GRPC_RESOURCE_EXHAUSTED, "out of memory for an answer of %s",
                               stream->method->name);
            return;
        }
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

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
        client_stream_fail(stream, GRPC_INTERNAL, "the last message of %s was cut off",
                           stream->method->name);
        return;
    }
    /* Ended before we were done: what is still queued would only be thrown away. */
    client_stream_end(stream, !stream->send_done, NGHTTP2_NO_ERROR);
}

void client_stream_on_closed(ClientStream *stream, uint32_t error_code)
{
    if (stream->has_grpc_status) {
        client_stream_end(stream, false, 0);
        return;
    }
    stream->status.code = status_of_reset(error_code);
    /* Not processed at all: as good as not reached. */
    stream->status.lost = error_code == NGHTTP2_REFUSED_STREAM;
    snprintf(stream->status.message, sizeof stream->status.message,
             stream->status.lost ? "dpsd is stopping and did not take the call %s (%s)"
                                 : "the server reset the call %s (%s)",
             stream->method->name, nghttp2_http2_strerror(error_code));
    client_stream_end(stream, false, 0);
}
