#include "net/peer.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { PASSWD_BYTES = 4096 };

static void describe_uid(uid_t uid, char *text, size_t size)
{
    /* Trainers come in bunches of one user: the last name is remembered. Loop thread only. */
    static uid_t last = (uid_t)-1;
    static char last_name[64];
    if (uid != last) {
        char buffer[PASSWD_BYTES];
        struct passwd entry, *found = NULL;
        last_name[0] = '\0';
        if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
            snprintf(last_name, sizeof last_name, " (%s)", found->pw_name);
        last = uid;
    }
    snprintf(text, size, "uid=%u%s", (unsigned)uid, last_name);
}

static int format_inet(const struct sockaddr_storage *address, socklen_t length, const char *prefix,
                       char *text, size_t size)
{
    char host[64], port[16];
    if (getnameinfo((const struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EINVAL;
    if (address->ss_family == AF_INET6)
        snprintf(text, size, "%s[%s]:%s", prefix, host, port);
    else
        snprintf(text, size, "%s%s:%s", prefix, host, port);
    return 0;
}

void peer_describe(int fd, char *text, size_t size, int64_t *ret_uid)
{
    *ret_uid = -1;
    snprintf(text, size, "unknown");
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &length) < 0)
        return;
    if (address.ss_family != AF_UNIX) {
        format_inet(&address, length, "tcp ", text, size);
        return;
    }
    struct ucred credentials;
    length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return;
    *ret_uid = credentials.uid;
    describe_uid(credentials.uid, text, size);
}

int peer_local_address(int fd, char *text, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return -errno;
    if (address.ss_family != AF_UNIX)
        return format_inet(&address, length, "tcp:", text, size);
    const struct sockaddr_un *local = (const struct sockaddr_un *)&address;
    size_t used = length - offsetof(struct sockaddr_un, sun_path);
    snprintf(text, size, "unix:%.*s", (int)strnlen(local->sun_path, used), local->sun_path);
    return 0;
}
