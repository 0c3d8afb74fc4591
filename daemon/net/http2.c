#include "net/http2.h"

#include <stdlib.h>

#include "base/log.h"
#include "net/http2_internal.h"

/* Flow control. A stream's window bounds what a client can send to a handler that is not ready. The
 * connection's window is refilled at once, whatever the streams do, so that a stream whose handler
 * is slow holds up no other; it is large, so that a fast sender does not wait for our updates. */
enum {
    STREAM_WINDOW = 1 << 20,
    CONNECTION_WINDOW = 16 << 20,
    FRAME_BYTES = 64 * 1024, /* that we take: what one read of the socket brings */
};

void http2_submitted(Http2 *http2, int r)
{
    if (r == NGHTTP2_ERR_NOMEM)
        http2->broken = true;
    if (!http2->inside)
        http2->wake(http2->data);
}

/* ---- floods ---------------------------------------------------------------------------------- */

/* Spends a token; where none is left the peer is told to calm down and the connection ends. */
static void spend(Http2 *http2, Bucket *bucket, const char *what)
{
    if (http2->flooded || bucket_take(bucket, timers_now_us(http2->host.timers)))
        return;
    http2->flooded = true;
    log_warning("%s sends %s in a flood; its connection is closed", http2->host.peer, what);
    nghttp2_session_terminate_session(http2->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void watch_for_floods(Http2 *http2, const nghttp2_frame *frame)
{
    bool ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    switch (frame->hd.type) {
    case NGHTTP2_RST_STREAM:
        spend(http2, &http2->resets, "stream resets");
        break;
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS:
        if (!ack)
            spend(http2, &http2->controls, "control frames");
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length == 0 && !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            spend(http2, &http2->controls, "empty frames");
        break;
    case NGHTTP2_PRIORITY:
        spend(http2, &http2->controls, "control frames");
        break;
    default:
        break;
    }
}

/* ---- what nghttp2 tells ---------------------------------------------------------------------- */

static Stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    Stream *stream = stream_new(user, frame->hd.stream_id);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
                     void *user)
{
    (void)flags;
    (void)user;
    Stream *stream = stream_of(session, frame->hd.stream_id);
    if (stream && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        stream_header(stream, (const char *)name, name_length, (const char *)value, value_length);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    (void)flags;
    (void)user;
    if (nghttp2_session_consume_connection(session, size) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    const Stream *stream = stream_of(session, id);
    if (stream && stream->call)
        call_receive(stream->call, data, size);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    Http2 *http2 = user;
    http2->frames++;
    watch_for_floods(http2, frame);
    if (frame->hd.type == NGHTTP2_SETTINGS)
        http2->greeted = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    Stream *stream = stream_of(session, frame->hd.stream_id);
    if (!stream)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        stream_begin(stream);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && stream->call)
        call_half_close(stream->call);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                            void *user)
{
    (void)session;
    Http2 *http2 = user;
    log_debug("%s: invalid frame of type %d: %s", http2->host.peer, frame->hd.type,
              nghttp2_strerror(error));
    http2->frames++;
    spend(http2, &http2->resets, "invalid frames"); /* each makes us reset a stream */
    return 0;
}

/* An answer that is complete while the request is not: the client need not send the rest. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    if (nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) != 0)
        return 0;
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                     NGHTTP2_NO_ERROR);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    (void)error;
    (void)user;
    Stream *stream = stream_of(session, id);
    if (stream)
        stream_free(stream);
    return 0;
}

/* ---- the session ----------------------------------------------------------------------------- */

static nghttp2_session_callbacks *new_callbacks(void)
{
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}

static int open_session(Http2 *http2)
{
    nghttp2_option *option;
    if (nghttp2_option_new(&option) != 0)
        return -ENOMEM;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_session_callbacks *callbacks = new_callbacks();
    int r = callbacks ? nghttp2_session_server_new2(&http2->session, callbacks, http2, option)
                      : NGHTTP2_ERR_NOMEM;
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return r == 0 ? 0 : -ENOMEM;
}

static int greet(Http2 *http2)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, http2->limits->streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)http2->limits->header_bytes},
    };
    if (nghttp2_submit_settings(http2->session, NGHTTP2_FLAG_NONE, settings,
                                sizeof settings / sizeof *settings) != 0 ||
        nghttp2_session_set_local_window_size(http2->session, NGHTTP2_FLAG_NONE, 0,
                                              CONNECTION_WINDOW) != 0)
        return -ENOMEM;
    return 0;
}

int http2_new(const Http2Config *config, Http2 **ret)
{
    Http2 *http2 = calloc(1, sizeof *http2);
    if (!http2)
        return -ENOMEM;
    http2->limits = config->limits;
    http2->host = config->host;
    http2->host.transport = &stream_transport;
    http2->wake = config->wake;
    http2->data = config->data;
    uint64_t now = timers_now_us(http2->host.timers);
    bucket_init(&http2->resets, http2->limits->resets, now);
    bucket_init(&http2->controls, http2->limits->control_frames, now);
    int r = open_session(http2);
    if (r == 0)
        r = greet(http2);
    if (r < 0) {
        http2_free(http2);
        return r;
    }
    *ret = http2;
    return 0;
}

Http2 *http2_free(Http2 *http2)
{
    if (!http2)
        return NULL;
    http2->inside++; /* whoever frees does not want to be woken */
    while (http2->streams) {
        Stream *stream = http2->streams;
        nghttp2_session_set_stream_user_data(http2->session, stream->id, NULL);
        stream_free(stream);
    }
    nghttp2_session_del(http2->session);
    free(http2);
    return NULL;
}

int http2_receive(Http2 *http2, const uint8_t *data, size_t size)
{
    http2->inside++;
    ssize_t n = nghttp2_session_mem_recv(http2->session, data, size);
    http2->inside--;
    if (n == NGHTTP2_ERR_NOMEM || http2->broken)
        return -ENOMEM;
    if (n < 0)
        log_info("%s: closing the connection: %s", http2->host.peer, nghttp2_strerror((int)n));
    return n < 0 || http2->flooded ? -EPROTO : 0;
}

ssize_t http2_send(Http2 *http2, const uint8_t **ret)
{
    http2->inside++;
    ssize_t n = nghttp2_session_mem_send(http2->session, ret);
    http2->inside--;
    if (n == NGHTTP2_ERR_NOMEM || http2->broken)
        return -ENOMEM;
    return n < 0 ? -EPROTO : n;
}

void http2_tell_writable(Http2 *http2)
{
    size_t mark = http2->limits->send_queue_bytes / 2;
    for (Stream *stream = http2->streams; stream; stream = stream->next)
        if (stream->full && stream->queued <= mark) {
            stream->full = false;
            if (stream->call)
                call_writable(stream->call);
        }
}

bool http2_is_over(const Http2 *http2)
{
    return !nghttp2_session_want_read(http2->session) &&
           !nghttp2_session_want_write(http2->session);
}

bool http2_is_greeted(const Http2 *http2)
{
    return http2->greeted;
}

uint64_t http2_frames(const Http2 *http2)
{
    return http2->frames;
}

unsigned http2_streams(const Http2 *http2)
{
    return http2->n_streams;
}

void http2_check(Http2 *http2, uint64_t now_us)
{
    for (Stream *stream = http2->streams; stream; stream = stream->next)
        stream_check(stream, now_us);
}

void http2_ping(Http2 *http2)
{
    http2_submitted(http2, nghttp2_submit_ping(http2->session, NGHTTP2_FLAG_NONE, NULL));
}

void http2_drain(Http2 *http2)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(http2->session);
    http2_submitted(http2, nghttp2_submit_goaway(http2->session, NGHTTP2_FLAG_NONE, last,
                                                 NGHTTP2_NO_ERROR, NULL, 0));
}
