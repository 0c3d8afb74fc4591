/* What the client's files share; nobody else includes it. The session is entered only through
 * client.c, which also is the only one that reads and writes the socket. */
#pragma once

#include <event2/event.h>
#include <nghttp2/nghttp2.h>

#include "ctl/cleanup.h"
#include "ctl/client.h"
#include "proto/grpc_frame.h"

enum {
    /* Whole frames are gathered up to here before a write. */
    CLIENT_OUT_SIZE = 128 * 1024,
    CLIENT_IN_SIZE = 64 * 1024,
    /* Windows that we grant: enough for a page of metrics or a chunk of parameters to be under way
     * while another is being read. */
    CLIENT_STREAM_WINDOW = 2 * 1024 * 1024,
    CLIENT_CONNECTION_WINDOW = 4 * 1024 * 1024,
};

typedef struct ClientWatch {
    Client *client;
    struct event *event;
    int fd; /* -1: free */
    void (*on_readable)(int fd, void *user);
    void *user;
} ClientWatch;

struct Client {
    char *address;
    char *authority; /* for the :authority header */
    struct event_base *base;
    struct event *read_event, *write_event, *wake_event, *wait_timer;
    int fd, wake_fd;
    nghttp2_session *session;
    bool connected;
    bool greeted;    /* the server's SETTINGS have come */
    bool going_away; /* the server takes no new calls */
    bool happened;   /* something that client_run_once returns for */
    char problem[CLIENT_MESSAGE_SIZE];
    ClientStream *streams; /* open ones */
    ClientWatch watches[CLIENT_MAX_WATCHES];
    size_t out_start, out_end;
    const uint8_t *chunk; /* a frame of nghttp2's that did not fit into `out` yet */
    size_t chunk_size;
    uint8_t out[CLIENT_OUT_SIZE];
    uint8_t in[CLIENT_IN_SIZE];
};

/* One packed message with its gRPC header, on its way out. */
typedef struct ClientBlock {
    struct ClientBlock *next;
    size_t size, used;
    uint8_t data[];
} ClientBlock;

struct ClientStream {
    Client *client;
    ClientStream *next;
    int32_t id;
    const ProtobufCMethodDescriptor *method;
    const ClientStreamHandler *handler;
    void *user;
    struct event *deadline;
    int timeout_ms;

    ClientBlock *head, **tail;
    size_t queued;
    bool send_closed, send_done; /* no more from us; END_STREAM has been handed to nghttp2 */
    bool wants_room;             /* client_stream_send said -EAGAIN */

    GrpcFrameParser parser;
    int http_status;
    bool is_grpc;         /* the content type says so */
    bool has_grpc_status; /* status.code and message are the server's */
    bool ended;
    ClientStatus status;
    uint64_t bytes_in, bytes_out;

    unsigned busy; /* callbacks of this stream that are running */
    bool freed;    /* client_stream_free was called in one of them */
};

/* client_connect.c: a connected non-blocking socket. *authority is the caller's. On failure
 * `problem` has the sentence. */
int client_connect(const char *address, int timeout_ms, int *ret_fd, char **ret_authority,
                   char *problem, size_t size);

/* client_receive.c: what the session's callbacks call. */
void client_stream_on_header(ClientStream *stream, const char *name, size_t name_size,
                             const char *value, size_t value_size);
void client_stream_on_data(ClientStream *stream, const uint8_t *data, size_t size);
/* The server has sent END_STREAM. */
void client_stream_on_finished(ClientStream *stream);
/* The stream was reset, or nghttp2 closed it; error_code is HTTP/2's. */
void client_stream_on_closed(ClientStream *stream, uint32_t error_code);

/* client_stream.c */
ClientStream *client_find_stream(Client *client, int32_t id);
/* The status is known: resets what is left of the stream at the server and tells the user, who may
 * free it: it is not to be touched after this. */
void client_stream_end(ClientStream *stream, bool reset, uint32_t error_code);
/* The client itself gives the call up. The same holds. */
void client_stream_fail(ClientStream *stream, GrpcStatus code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* After a callback, before which `busy` was raised: true if the stream was freed in it. */
bool client_stream_leave(ClientStream *stream);
/* Gives on_writable where there is room again. */
void client_streams_continue(Client *client);
/* Ends all with `lost`. */
void client_streams_lose(Client *client);
void client_streams_destroy(Client *client);

/* client_call.c: what client_call returns for a status. */
int client_status_errno(const ClientStatus *status);
