/* The HTTP/2 side of one connection: bytes in, bytes out, calls begun and fed. Does no I/O itself,
 * so that tests and fuzzers can drive it with bytes. Loop thread only. */
#pragma once

#include <sys/types.h>

#include "net/server.h"
#include "rpc/transport.h"

typedef struct Http2 Http2;

typedef struct Http2Config {
    const ServerLimits *limits; /* outlives the connection */
    CallHost host;              /* its transport is filled in by http2_new */
    /* There is something to send that was not there when http2_receive or http2_send returned. Must
     * not call back into the Http2. */
    void (*wake)(void *data);
    void *data;
} Http2Config;

/* Queues our SETTINGS. -ENOMEM */
int http2_new(const Http2Config *config, Http2 **ret);
/* Cancels all calls. */
Http2 *http2_free(Http2 *http2);

/* Bytes from the peer. -EPROTO: not HTTP/2, or a flood; -ENOMEM. After an error the connection is
 * to be closed once what http2_send still has (a GOAWAY) was tried. */
int http2_receive(Http2 *http2, const uint8_t *data, size_t size);
/* The next bytes for the peer, valid until the next call; 0: none now. -ENOMEM, -EPROTO */
ssize_t http2_send(Http2 *http2, const uint8_t **ret);
/* Tells handlers whose queue has room again; after a round of http2_send. */
void http2_tell_writable(Http2 *http2);

/* Neither side has anything more to say: the connection can be closed. */
bool http2_is_over(const Http2 *http2);
/* Whether the client's SETTINGS have come. */
bool http2_is_greeted(const Http2 *http2);
/* Frames received whole so far. */
uint64_t http2_frames(const Http2 *http2);
/* Streams that are open. */
unsigned http2_streams(const Http2 *http2);

/* Ends streams that the client starves or stalls. To be called now and then. */
void http2_check(Http2 *http2, uint64_t now_us);
void http2_ping(Http2 *http2);
/* GOAWAY: streams under way go on, no new ones. */
void http2_drain(Http2 *http2);
