/* One stream: a request, its Call, and the queue of its response. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/http2_internal.h"

enum {
    MESSAGE_BYTES = 2048, /* grpc-message, encoded: clients limit headers to 8 KiB in all */
};

#define NV(header, text)                                                                           \
    {                                                                                              \
        .name = (uint8_t *)(header), .namelen = sizeof(header) - 1, .value = (uint8_t *)(text),    \
        .valuelen = sizeof(text) - 1, .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME                        \
    }

static nghttp2_nv nv_text(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)value,
                        .valuelen = strlen(value)};
}

Stream *stream_new(Http2 *http2, int32_t id)
{
    Stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    *stream =
        (Stream){.http2 = http2, .id = id, .next = http2->streams, .request = {.timeout_us = -1}};
    if (http2->streams)
        http2->streams->prev = stream;
    http2->streams = stream;
    http2->n_streams++;
    return stream;
}

static void drop_frame(Stream *stream)
{
    Frame *frame = stream->head;
    stream->head = frame->next;
    if (!stream->head)
        stream->tail = NULL;
    free(frame->data);
    free(frame);
}

void stream_free(Stream *stream)
{
    Http2 *http2 = stream->http2;
    if (stream->call) {
        Call *call = stream->call;
        stream->call = NULL;
        call_cancel(call);
    }
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        http2->streams = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
    http2->n_streams--;
    while (stream->head)
        drop_frame(stream);
    free(stream->request.path);
    free(stream->message);
    free(stream);
}

/* ---- response -------------------------------------------------------------------------------- */

/* grpc-status and grpc-message behind the n headers that are there; returns how many there are. */
static size_t add_trailers(const Stream *stream, char code[4], nghttp2_nv *headers, size_t n)
{
    snprintf(code, 4, "%d", (int)stream->status);
    headers[n++] = nv_text("grpc-status", code);
    if (stream->message)
        headers[n++] = nv_text("grpc-message", stream->message);
    return n;
}

static void submit_trailers_only(Stream *stream)
{
    char code[4];
    nghttp2_nv headers[5] = {NV(":status", "200"), NV("content-type", "application/grpc"),
                             NV("grpc-accept-encoding", "identity")};
    size_t n = add_trailers(stream, code, headers, 3);
    stream->responded = true;
    http2_submitted(stream->http2,
                    nghttp2_submit_response(stream->http2->session, stream->id, headers, n, NULL));
}

/* What is no gRPC request gets an HTTP error. */
static void submit_http_error(Stream *stream, const char *status)
{
    nghttp2_nv headers[] = {nv_text(":status", status), NV("allow", "POST"),
                            NV("accept", "application/grpc")};
    stream->responded = stream->finished = true;
    http2_submitted(stream->http2,
                    nghttp2_submit_response(stream->http2->session, stream->id, headers,
                                            sizeof headers / sizeof *headers, NULL));
}

/* Moves up to `size` bytes of the queue into data. */
static size_t take_queue(Stream *stream, uint8_t *data, size_t size)
{
    size_t used = 0;
    while (used < size && stream->head) {
        Frame *frame = stream->head;
        size_t n = frame->size - frame->sent;
        if (n > size - used)
            n = size - used;
        memcpy(data + used, frame->data + frame->sent, n);
        frame->sent += n;
        used += n;
        if (frame->sent == frame->size)
            drop_frame(stream);
    }
    stream->queued -= used;
    return used;
}

/* nghttp2 asks for the payload of the next DATA frame. */
static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *data, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)user;
    Stream *stream = source->ptr;
    size_t used = take_queue(stream, data, size);
    if (used > 0)
        stream->moved_us = timers_now_us(stream->http2->host.timers);
    if (stream->head || !stream->finished) {
        stream->idle = used == 0;
        return used > 0 ? (ssize_t)used : NGHTTP2_ERR_DEFERRED;
    }
    char code[4];
    nghttp2_nv trailers[2];
    size_t n = add_trailers(stream, code, trailers, 0);
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (nghttp2_submit_trailer(session, id, trailers, n) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return (ssize_t)used;
}

static void submit_response(Stream *stream)
{
    static const nghttp2_nv headers[] = {NV(":status", "200"),
                                         NV("content-type", "application/grpc"),
                                         NV("grpc-accept-encoding", "identity")};
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_queue};
    stream->responded = true;
    http2_submitted(stream->http2,
                    nghttp2_submit_response(stream->http2->session, stream->id, headers,
                                            sizeof headers / sizeof *headers, &provider));
}

/* Has nghttp2 look at the queue again. */
static void resume(Stream *stream)
{
    if (!stream->idle)
        return;
    stream->idle = false;
    http2_submitted(stream->http2, nghttp2_session_resume_data(stream->http2->session, stream->id));
}

/* ---- what the Call asks for ------------------------------------------------------------------ */

static bool transport_send(void *data, uint8_t *bytes, size_t size)
{
    Stream *stream = data;
    Frame *frame = malloc(sizeof *frame);
    if (!frame) {
        free(bytes);
        http2_submitted(stream->http2, NGHTTP2_ERR_NOMEM);
        return true;
    }
    *frame = (Frame){.data = bytes, .size = size};
    if (stream->tail)
        stream->tail->next = frame;
    else
        stream->head = frame;
    stream->tail = frame;
    if (stream->queued == 0)
        stream->moved_us = timers_now_us(stream->http2->host.timers);
    stream->queued += size;
    if (!stream->responded)
        submit_response(stream);
    else
        resume(stream);
    stream->full = stream->queued > stream->http2->limits->send_queue_bytes;
    return !stream->full;
}

static void transport_finish(void *data, GrpcStatus status, const char *message)
{
    Stream *stream = data;
    char encoded[MESSAGE_BYTES];
    stream->call = NULL;
    stream->finished = true;
    stream->status = status;
    /* Without memory for the sentence the status has to do. */
    stream->message =
        grpc_message_encode(message, encoded, sizeof encoded) ? strdup(encoded) : NULL;
    if (!stream->responded)
        submit_trailers_only(stream);
    else
        resume(stream);
}

static void transport_consume(void *data, size_t bytes)
{
    const Stream *stream = data;
    http2_submitted(stream->http2,
                    nghttp2_session_consume_stream(stream->http2->session, stream->id, bytes));
}

const CallTransport stream_transport = {
    .send = transport_send,
    .finish = transport_finish,
    .consume = transport_consume,
};

/* ---- request --------------------------------------------------------------------------------- */

void stream_begin(Stream *stream)
{
    const Request *request = &stream->request;
    const ServerLimits *limits = stream->http2->limits;
    char sentence[160];
    if (request->too_large) {
        snprintf(sentence, sizeof sentence, "the request's headers exceed the limit of %zu bytes",
                 limits->header_bytes);
        transport_finish(stream, GRPC_RESOURCE_EXHAUSTED, sentence);
    } else if (request->no_memory || !request->path) {
        transport_finish(stream, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    } else if (!request->post) {
        submit_http_error(stream, "405");
    } else if (!request->grpc) {
        submit_http_error(stream, "415");
    } else if (request->bad_timeout[0]) {
        snprintf(sentence, sizeof sentence,
                 "grpc-timeout %s is not a number of up to 8 digits and one of H, M, S, m, u, n",
                 request->bad_timeout);
        transport_finish(stream, GRPC_INVALID_ARGUMENT, sentence);
    } else {
        stream->call = call_begin(&stream->http2->host, stream, request->path, request->timeout_us);
    }
}

void stream_check(Stream *stream, uint64_t now_us)
{
    const Http2 *http2 = stream->http2;
    if (stream->call)
        call_check(stream->call, now_us);
    if (stream->queued == 0 || now_us - stream->moved_us < http2->limits->write_stall_us)
        return;
    /* The trailers would have to wait behind the data, so the stream can only be reset. */
    log_info("%s: %s takes no data for %.1f s; its stream is reset", stream->request.path,
             http2->host.peer, (double)(now_us - stream->moved_us) / 1e6);
    stream->moved_us = now_us;
    http2_submitted(stream->http2,
                    nghttp2_submit_rst_stream(http2->session, NGHTTP2_FLAG_NONE, stream->id,
                                              NGHTTP2_ENHANCE_YOUR_CALM));
}
