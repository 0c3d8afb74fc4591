/* Addresses and sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "ctl/client_internal.h"

#define DEFAULT_ADDRESS "unix:/run/dpsd/dpsd.sock"

const char *client_default_address(void)
{
    const char *address = getenv("DPS_ADDRESS");

    return address && *address ? address : DEFAULT_ADDRESS;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for a connect that is under way. */
static int wait_connected(int fd, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline - now_ms();
        struct pollfd item = {.fd = fd, .events = POLLOUT};
        int ready, problem = 0;
        socklen_t size = sizeof problem;

        if (left <= 0)
            return -ETIMEDOUT;
        ready = poll(&item, 1, (int)left);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready <= 0)
            continue;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
            return -errno;
        return -problem;
    }
}

static int connect_socket(int family, const struct sockaddr *address, socklen_t size,
                          int64_t deadline, int *ret)
{
    _cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    while (connect(fd, address, size) < 0) {
        /* A Unix socket whose backlog is full says EAGAIN and cannot be polled. */
        if (errno == EAGAIN && now_ms() < deadline) {
            poll(NULL, 0, 10);
            continue;
        }
        if (errno == EINPROGRESS) {
            int r = wait_connected(fd, deadline);
            if (r < 0)
                return r;
            break;
        }
        if (errno != EINTR)
            return -errno;
    }
    *ret = fd;
    fd = -1;
    return 0;
}

static int connect_unix(const char *path, int64_t deadline, int *ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect_socket(AF_UNIX, (const struct sockaddr *)&address, sizeof address, deadline,
                          ret);
}

/* A peer whose machine is gone is noticed after about 20 s without a byte. */
static void set_tcp_options(int fd)
{
    const int on = 1, idle_s = 10, interval_s = 5, count = 2;
    const unsigned unanswered_ms = 20000;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

/* Splits "HOST:PORT" or "[HOST]:PORT"; *ret_host is the caller's, *ret_port points into text. */
static int split_host_port(const char *text, char **ret_host, const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t length;
    char *host;

    if (!colon || colon == text || !colon[1])
        return -EINVAL;
    length = (size_t)(colon - text);
    if (*text == '[') {
        if (length < 3 || colon[-1] != ']')
            return -EINVAL;
        text++;
        length -= 2;
    } else if (memchr(text, ':', length)) {
        return -EINVAL; /* an IPv6 address needs brackets */
    }
    host = strndup(text, length);
    if (!host)
        return -ENOMEM;
    *ret_host = host;
    *ret_port = colon + 1;
    return 0;
}

static int connect_tcp(const char *text, int64_t deadline, int *ret, const char **ret_problem)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    _cleanup_free_ char *host = NULL;
    const char *port;
    struct addrinfo *found;
    int fd = -1, r = split_host_port(text, &host, &port);

    if (r < 0)
        return r;
    r = getaddrinfo(host, port, &hints, &found);
    if (r != 0) {
        *ret_problem = gai_strerror(r);
        return r == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
    }
    r = -EHOSTUNREACH;
    for (const struct addrinfo *one = found; one; one = one->ai_next) {
        r = connect_socket(one->ai_family, one->ai_addr, one->ai_addrlen, deadline, &fd);
        if (r == 0)
            break;
    }
    freeaddrinfo(found);
    if (r < 0)
        return r;
    set_tcp_options(fd);
    *ret = fd;
    return 0;
}

static const char *remedy(int error)
{
    switch (error) {
    case ENOENT:
    case ECONNREFUSED:
        return "; is dpsd running? --address or DPS_ADDRESS names another place";
    case EACCES:
        return "; this user may not use the socket";
    default:
        return "";
    }
}

int client_connect(const char *address, int timeout_ms, int *ret_fd, char **ret_authority,
                   char *problem, size_t size)
{
    int64_t deadline = now_ms() + (timeout_ms < 0 ? INT32_MAX : timeout_ms);
    const char *text = NULL;
    char *authority;
    int fd = -1, r = -EINVAL;

    if (strncmp(address, "unix:", 5) == 0 && address[5])
        r = connect_unix(address + 5, deadline, &fd);
    else if (strncmp(address, "tcp:", 4) == 0)
        r = connect_tcp(address + 4, deadline, &fd, &text);
    if (r == -EINVAL) {
        snprintf(problem, size, "the address '%s' is neither unix:PATH nor tcp:HOST:PORT", address);
        return r;
    }
    if (r < 0) {
        snprintf(problem, size, "cannot reach dpsd at %s: %s%s", address,
                 text ? text : strerror(-r), remedy(-r));
        return r;
    }
    authority = strdup(*address == 't' ? address + 4 : "localhost");
    if (!authority) {
        close(fd);
        snprintf(problem, size, "out of memory");
        return -ENOMEM;
    }
    *ret_fd = fd;
    *ret_authority = authority;
    return 0;
}
