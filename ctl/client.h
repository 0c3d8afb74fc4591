/* A gRPC client on one HTTP/2 connection, for dpsctl and the trainer.
 *
 * Everything belongs to the thread that calls client_open: the client runs only inside
 * client_run_once and the calls that wait (client_call, client_call_stream,
 * client_stream_send_wait, client_stream_wait), and callbacks run only there. HTTP/2 PINGs,
 * SETTINGS and window updates are answered there too, so a program that computes for seconds
 * without running the client looks silent to the server. client_wake alone may be called from any
 * thread.
 *
 * A client whose connection is gone stays gone: every open call ends with a status whose `lost` is
 * set, every later one fails with -ENOTCONN; free it and open a new one to reconnect.
 *
 * Methods are named by their service descriptor and name, as in
 *     client_call(client, &dps__v1__control__descriptor, "Get", &request.base, 5000, &reply,
 * &status) and messages are packed and unpacked by what the descriptor says. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/grpc_status.h"

typedef struct Client Client;
typedef struct ClientStream ClientStream;

enum {
    CLIENT_MESSAGE_SIZE = 512,
    /* gRPC's own default; dpsd sends at most 1 MiB, other servers may send more. */
    CLIENT_MAX_RECEIVE = 4 * 1024 * 1024,
    /* What a stream queues before client_stream_send says -EAGAIN. One message always fits, so this
     * bounds memory and not the size of a message. */
    CLIENT_SEND_QUEUE = 4 * 1024 * 1024,
};

/* How a call ended. */
typedef struct ClientStatus {
    GrpcStatus code;
    bool lost; /* no answer: the daemon could not be reached, or the connection broke; code is
                * GRPC_UNAVAILABLE. A server that answers UNAVAILABLE itself leaves this unset. */
    char message[CLIENT_MESSAGE_SIZE]; /* a sentence, without control characters */
} ClientStatus;

/* `address` is unix:PATH or tcp:HOST:PORT (IPv6 as tcp:[::1]:50051). NULL: the environment's
 * DPS_ADDRESS, else unix:/run/dpsd/dpsd.sock. Waits up to timeout_ms for the connection.
 * -EINVAL: no such form of address; otherwise the connection's errno. On failure `status` has the
 * sentence. */
int client_open(const char *address, int timeout_ms, Client **ret, ClientStatus *status);
/* Ends open streams without calling them back; frees them too. NULL is fine; returns NULL. */
Client *client_free(Client *client);
/* The address as given or found. */
const char *client_address(const Client *client);
/* The address that client_open(NULL) would use. */
const char *client_default_address(void);
bool client_is_connected(const Client *client);
/* Why it is not; NULL while connected. */
const char *client_problem(const Client *client);

/* Moves bytes and runs callbacks. Returns once something has happened (a message, an end, room to
 * write, a watched descriptor, client_wake), or after timeout_ms (0: do not wait, -1: no limit).
 * 0; -ENOTCONN: the connection is gone (all streams have had their on_end); -errno of the loop. */
int client_run_once(Client *client, int timeout_ms);
/* Makes client_run_once return, now or next time. Any thread; async-signal-safe. */
void client_wake(Client *client);

/* Calls on_readable inside client_run_once whenever fd can be read (an eventfd of a reader thread).
 * One callback a descriptor; the descriptor stays the caller's and must be unwatched before it is
 * closed. At most CLIENT_MAX_WATCHES. -ENOSPC, -EEXIST, -ENOMEM. */
enum { CLIENT_MAX_WATCHES = 8 };
int client_watch_fd(Client *client, int fd, void (*on_readable)(int fd, void *user), void *user);
void client_unwatch_fd(Client *client, int fd);

/* ---- calls that wait ---------------------------------------------------------------------------
 * timeout_ms is the deadline, sent to the server and kept here too; -1: none. They return 0 when
 * the status is OK; otherwise -ENOTCONN (lost), -ETIMEDOUT (deadline), -ECANCELED, -ENOENT
 * (NOT_FOUND), -ENOMEM, or -EREMOTEIO for any other status; `status` is filled in always. Other
 * streams of the client go on while they wait. Not to be called from a callback. */

/* One request, one reply. The reply is the caller's: protobuf_c_message_free_unpacked. */
int client_call(Client *client, const ProtobufCServiceDescriptor *service, const char *method,
                const ProtobufCMessage *request, int timeout_ms, ProtobufCMessage **ret,
                ClientStatus *status);

/* One request, a stream of replies. A message belongs to the client and ends with the callback. A
 * callback that returns false cancels the call (-ECANCELED). */
typedef bool (*ClientOnReply)(const ProtobufCMessage *reply, void *user);
int client_call_stream(Client *client, const ProtobufCServiceDescriptor *service,
                       const char *method, const ProtobufCMessage *request, int timeout_ms,
                       ClientOnReply on_reply, void *user, ClientStatus *status);

/* ---- streams -----------------------------------------------------------------------------------
 * For client streams and bidirectional ones; any number at once (the server's limit holds: more
 * wait in line). None of these functions waits but the two that say so. */

typedef struct ClientStreamHandler {
    /* The message belongs to the client and ends with the callback. */
    void (*on_message)(ClientStream *stream, const ProtobufCMessage *message, void *user);
    /* After client_stream_send said -EAGAIN: there is room again. May be NULL. */
    void (*on_writable)(ClientStream *stream, void *user);
    /* Once, last: the stream moves nothing any more and may be freed in here. May be NULL. */
    void (*on_end)(ClientStream *stream, const ClientStatus *status, void *user);
} ClientStreamHandler;

/* `handler` must outlive the stream. -EINVAL: no such method; -ENOTCONN, -ENOMEM. */
int client_stream_open(Client *client, const ProtobufCServiceDescriptor *service,
                       const char *method, int timeout_ms, const ClientStreamHandler *handler,
                       void *user, ClientStream **ret);
/* Cancels it at the server if it has not ended; on_end is not called. NULL is fine; returns NULL.
 * Allowed in any callback, of this stream too. */
ClientStream *client_stream_free(ClientStream *stream);

/* Packs the message and queues it; it leaves when the server's window allows. Messages go out in
 * order and may be sent before earlier ones are answered. 0; -EAGAIN: the queue is full, nothing
 * was taken, on_writable will tell; -EPIPE: ended, or the sending side is closed; -ENOMEM. */
int client_stream_send(ClientStream *stream, const ProtobufCMessage *message);
/* The same, but runs the client while the queue is full. 0, -EPIPE, -ENOMEM. Not in a callback. */
int client_stream_send_wait(ClientStream *stream, const ProtobufCMessage *message);
/* No more messages from this side; what is queued is still sent. */
void client_stream_close_send(ClientStream *stream);
/* Runs the client until the stream has ended. Returns as client_call does. Not in a callback. */
int client_stream_wait(ClientStream *stream, ClientStatus *status);

bool client_stream_is_ended(const ClientStream *stream);
/* How it ended; NULL while it has not. */
const ClientStatus *client_stream_status(const ClientStream *stream);
/* Bytes that are queued and have not left for the socket. */
size_t client_stream_queued(const ClientStream *stream);
/* Bytes of messages, with their framing, that went out and came in on this stream. */
uint64_t client_stream_bytes_out(const ClientStream *stream);
uint64_t client_stream_bytes_in(const ClientStream *stream);
