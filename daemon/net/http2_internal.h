/* What the files of the HTTP/2 side share: http2.c has the session, http2_stream.c a stream. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "net/bucket.h"
#include "net/http2.h"

typedef struct Stream Stream;

/* What of a request's headers matters to gRPC. */
typedef struct Request {
    char *path; /* NULL: none yet */
    size_t header_bytes;
    int64_t timeout_us; /* -1: none */
    char bad_timeout[16];
    bool post, grpc, too_large, no_memory;
} Request;

/* One response message, framed. */
typedef struct Frame {
    struct Frame *next;
    uint8_t *data;
    size_t size, sent;
} Frame;

struct Stream {
    Http2 *http2;
    int32_t id;
    Request request;
    Call *call; /* NULL: not begun, or ended */

    Frame *head, *tail;
    size_t queued;     /* bytes in the queue */
    uint64_t moved_us; /* when the queue was filled or the peer last took something of it */
    bool responded;    /* response headers are submitted */
    bool idle;         /* nghttp2 waits for nghttp2_session_resume_data */
    bool finished;     /* the trailers below end the response when the queue is empty */
    bool full;         /* call_send said stop */
    GrpcStatus status;
    char *message; /* percent-encoded; NULL: none */

    Stream *prev, *next;
};

struct Http2 {
    nghttp2_session *session;
    const ServerLimits *limits;
    CallHost host;
    void (*wake)(void *data);
    void *data;
    Stream *streams;
    unsigned n_streams;
    unsigned inside; /* of nghttp2 or of a check: wake is not needed */
    uint64_t frames;
    Bucket resets, controls;
    bool greeted, flooded, broken;
};

extern const CallTransport stream_transport;

Stream *stream_new(Http2 *http2, int32_t id);
/* Tells the call, if there is one still. */
void stream_free(Stream *stream);
/* One header of the request. */
void stream_header(Stream *stream, const char *name, size_t name_length, const char *value,
                   size_t value_length);
/* All headers are in: answers what is no gRPC request, begins the call otherwise. */
void stream_begin(Stream *stream);
/* Resets the stream if the peer takes none of its data. */
void stream_check(Stream *stream, uint64_t now_us);

/* Something was submitted. r: what nghttp2 returned; out of memory breaks the connection. */
void http2_submitted(Http2 *http2, int r);
