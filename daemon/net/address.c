/* From "unix:PATH" and "tcp:HOST:PORT" to listening sockets. */
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "net/listener.h"

enum {
    BACKLOG = 512,
    SOCKET_MODE = 0660, /* user and group of dpsd */
};

/* ---- unix ------------------------------------------------------------------------------------ */

/* Removes the socket file of a daemon that is gone. */
static int clear_path(const struct sockaddr_un *address, Error *err)
{
    struct stat status;
    if (lstat(address->sun_path, &status) < 0)
        return 0; /* not there, or bind will say what is wrong */
    if (!S_ISSOCK(status.st_mode))
        return error_set(err, -EADDRINUSE, "%s exists and is not a socket", address->sun_path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot open a socket: %m");
    /* EAGAIN: somebody listens and has a full queue */
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN)
        return error_set(err, -EADDRINUSE, "another daemon listens on %s", address->sun_path);
    if (errno == ECONNREFUSED && unlink(address->sun_path) < 0)
        return error_set(err, -errno, "cannot remove the stale socket %s: %m", address->sun_path);
    return 0;
}

static int listen_unix(const char *path, int *ret_fd, Error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (*path == '\0' || strlen(path) >= sizeof address.sun_path)
        return error_set(err, -EINVAL, "the path of a Unix socket has 1 to %zu bytes: \"%s\"",
                         sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int r = clear_path(&address, err);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot open a socket: %m");
    /* Before bind, so that the file never has more rights; after it, since the umask may have taken
     * the group's. */
    if (fchmod(fd, SOCKET_MODE) < 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(path, SOCKET_MODE) < 0 || listen(fd, BACKLOG) < 0)
        return error_set(err, -errno, "cannot listen on unix:%s: %m", path);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* ---- tcp ------------------------------------------------------------------------------------- */

/* Splits "host:port" or "[v6]:port" in place. */
static int split_host_port(char *text, char **ret_host, char **ret_port)
{
    char *colon = strrchr(text, ':');
    if (!colon || colon[1] == '\0' || colon == text)
        return -EINVAL;
    *colon = '\0';
    size_t length = strlen(text);
    if (text[0] == '[' && text[length - 1] == ']') {
        text[length - 1] = '\0';
        text++;
    } else if (strchr(text, ':')) {
        return -EINVAL; /* an IPv6 address without brackets */
    }
    *ret_host = text;
    *ret_port = colon + 1;
    return 0;
}

/* The port stands at the same place in both kinds of address. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "ports of IPv4 and IPv6 addresses");

static void set_port(struct sockaddr *address, in_port_t port)
{
    memcpy((char *)address + offsetof(struct sockaddr_in, sin_port), &port, sizeof port);
}

static in_port_t bound_port(int fd)
{
    struct sockaddr_in6 address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return 0;
    return address.sin6_port;
}

/* A socket, or a negative errno. */
static int open_tcp(const struct addrinfo *info)
{
    _cleanup_close_ int fd =
        socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
    if (fd < 0)
        return -errno;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    int opened = fd;
    fd = -1;
    return opened;
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* One socket for each address of the host; with port 0 all take the port that the first one got.
 * An address family that this machine lacks is left out, if another is there. */
static int open_all(const struct addrinfo *list, int fds[ADDRESS_MAX_SOCKETS], size_t *ret_n)
{
    size_t n = 0;
    int problem = -EADDRNOTAVAIL;
    for (const struct addrinfo *info = list; info && n < ADDRESS_MAX_SOCKETS;
         info = info->ai_next) {
        if (info->ai_family != AF_INET && info->ai_family != AF_INET6)
            continue;
        if (n > 0)
            set_port(info->ai_addr, bound_port(fds[0]));
        int fd = open_tcp(info);
        if (fd >= 0) {
            fds[n++] = fd;
        } else if (fd == -EADDRNOTAVAIL || fd == -EAFNOSUPPORT) {
            problem = fd;
        } else {
            close_all(fds, n);
            return fd;
        }
    }
    *ret_n = n;
    return n > 0 ? 0 : problem;
}

static int listen_tcp(const char *host_port, int fds[ADDRESS_MAX_SOCKETS], size_t *ret_n,
                      Error *err)
{
    _cleanup_free_ char *text = strdup(host_port);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    char *host, *port;
    if (split_host_port(text, &host, &port) < 0)
        return error_set(err, -EINVAL,
                         "\"tcp:%s\" is not tcp:HOST:PORT, such as tcp:127.0.0.1:5555 or "
                         "tcp:[::1]:5555",
                         host_port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list;
    int r = getaddrinfo(host, port, &hints, &list);
    if (r != 0)
        return error_set(err, -EINVAL, "tcp:%s: %s", host_port, gai_strerror(r));
    r = open_all(list, fds, ret_n);
    freeaddrinfo(list);
    if (r < 0)
        return error_set(err, r, "cannot listen on tcp:%s: %s", host_port, strerror(-r));
    return 0;
}

int address_listen(const char *address, int fds[ADDRESS_MAX_SOCKETS], size_t *ret_n,
                   const char **ret_path, Error *err)
{
    *ret_path = NULL;
    if (strncmp(address, "tcp:", 4) == 0)
        return listen_tcp(address + 4, fds, ret_n, err);
    if (strncmp(address, "unix:", 5) != 0)
        return error_set(err, -EINVAL, "\"%s\" is neither unix:PATH nor tcp:HOST:PORT", address);
    int r = listen_unix(address + 5, &fds[0], err);
    if (r < 0)
        return r;
    *ret_n = 1;
    *ret_path = address + 5;
    return 0;
}
