/* Listening sockets: "unix:PATH" and "tcp:HOST:PORT", or one that systemd opened. Loop thread only.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/timer.h"

typedef struct Listener Listener;
struct event_base;

typedef struct ListenerHost {
    struct event_base *base;
    Timers *timers;
    /* A connection came in; takes over fd. */
    void (*on_accept)(int fd, void *data);
    void *data;
} ListenerHost;

/* Takes over a listening socket; path: the socket file to remove in the end, or NULL. -EINVAL: it
 * is none; -ENOMEM */
int listener_new(const ListenerHost *host, int fd, const char *path, Listener **ret, Error *err);
/* Closes the socket and removes its file, if it is still the one that it made. */
Listener *listener_free(Listener *listener);
/* "unix:/run/dpsd/dpsd.sock", "tcp:127.0.0.1:5555" */
const char *listener_address(const Listener *listener);

/* ---- opening (address.c) --------------------------------------------------------------------- */

enum { ADDRESS_MAX_SOCKETS = 8 };

/* Opens the sockets of an address: one for unix, one for each address of the host for tcp.
 * *ret_path: the part after "unix:", or NULL. Negative errno: -EINVAL malformed, -EADDRINUSE, … */
int address_listen(const char *address, int fds[ADDRESS_MAX_SOCKETS], size_t *ret_n,
                   const char **ret_path, Error *err);
