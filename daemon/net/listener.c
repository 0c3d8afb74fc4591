#include "net/listener.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/peer.h"

enum {
    ACCEPT_TURN = 64, /* accepted before the other sockets have their turn */
    /* Without descriptors the socket stays readable; ask again after this time. */
    ACCEPT_PAUSE_US = 200 * 1000,
};

struct Listener {
    ListenerHost host;
    int fd;
    struct event *event;
    Timer pause;
    char *path; /* NULL: no file of ours */
    dev_t device;
    ino_t inode;
    char address[160];
};

static void pause_accepting(Listener *listener, int error)
{
    log_warning("%s: cannot accept a connection: %s", listener->address, strerror(error));
    event_del(listener->event);
    timer_arm(listener->host.timers, &listener->pause, ACCEPT_PAUSE_US);
}

static void on_pause_over(void *data)
{
    Listener *listener = data;
    event_add(listener->event, NULL);
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
    (void)what;
    Listener *listener = data;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted >= 0) {
            listener->host.on_accept(accepted, listener->host.data);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pause_accepting(listener, errno);
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static int remember_path(Listener *listener, const char *path)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return -errno;
    listener->path = strdup(path);
    if (!listener->path)
        return -ENOMEM;
    listener->device = status.st_dev;
    listener->inode = status.st_ino;
    return 0;
}

static int set_up(Listener *listener, const char *path, Error *err)
{
    int listening = 0;
    socklen_t length = sizeof listening;
    if (getsockopt(listener->fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0 || !listening)
        return error_set(err, -EINVAL, "descriptor %d is not a listening socket", listener->fd);
    int flags = fcntl(listener->fd, F_GETFL);
    if (flags < 0 || fcntl(listener->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return error_set(err, -errno, "descriptor %d: %m", listener->fd);
    int r = peer_local_address(listener->fd, listener->address, sizeof listener->address);
    if (r == 0 && path)
        r = remember_path(listener, path);
    if (r < 0)
        return error_set(err, r, "descriptor %d: %s", listener->fd, strerror(-r));
    listener->event =
        event_new(listener->host.base, listener->fd, EV_READ | EV_PERSIST, on_readable, listener);
    if (!listener->event || event_add(listener->event, NULL) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

int listener_new(const ListenerHost *host, int fd, const char *path, Listener **ret, Error *err)
{
    Listener *listener = calloc(1, sizeof *listener);
    if (!listener) {
        close(fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *listener = (Listener){.host = *host, .fd = fd};
    listener->pause = (Timer){.fire = on_pause_over, .data = listener};
    int r = set_up(listener, path, err);
    if (r < 0) {
        listener_free(listener);
        return r;
    }
    *ret = listener;
    return 0;
}

Listener *listener_free(Listener *listener)
{
    if (!listener)
        return NULL;
    timer_cancel(listener->host.timers, &listener->pause);
    if (listener->event)
        event_free(listener->event);
    close(listener->fd);
    struct stat status;
    if (listener->path && stat(listener->path, &status) == 0 && status.st_dev == listener->device &&
        status.st_ino == listener->inode)
        unlink(listener->path);
    free(listener->path);
    free(listener);
    return NULL;
}

const char *listener_address(const Listener *listener)
{
    return listener->address;
}
