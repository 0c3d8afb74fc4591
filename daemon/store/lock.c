#include "store/lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The process number that the holder wrote, 0 where it could not. */
static long read_holder(int fd)
{
    char text[24] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

/* For people and for the message above; a full disk must not keep dpsd from starting. */
static void write_holder(int fd)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) < 0)
        return;
}

static int refuse(const char *state_dir, int fd, int code, Error *err)
{
    if (code != EWOULDBLOCK)
        return error_set(err, -code, "cannot lock %s/dpsd.lock: %s", state_dir, strerror(code));
    char who[40] = "another dpsd";
    long pid = read_holder(fd);
    if (pid > 0)
        snprintf(who, sizeof who, "another dpsd (pid %ld)", pid);
    return error_set(err, -EBUSY, "%s uses %s; stop it or choose another state directory", who,
                     state_dir);
}

int lock_take(const char *state_dir, int *ret_fd, Error *err)
{
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/dpsd.lock", state_dir) < 0) {
        path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        int code = errno;
        return error_set(err, -code, "cannot open %s: %s; dpsd needs a state directory to write to",
                         path, strerror(code));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return refuse(state_dir, fd, errno, err);
    write_holder(fd);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

void lock_release(int fd)
{
    if (fd >= 0)
        close(fd);
}
