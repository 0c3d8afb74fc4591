#include "ctl/trainer/stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t received;
static volatile sig_atomic_t ends_at_once;
static int event = -1;

static int status_of(int signal_number)
{
    return signal_number == SIGINT ? STOP_EXIT_INT : STOP_EXIT_TERM;
}

static void on_signal(int signal_number)
{
    const uint64_t one = 1;
    int saved = errno;

    if (ends_at_once || received)
        _exit(status_of(signal_number));
    received = signal_number;
    if (write(event, &one, sizeof(one)) < 0)
        _exit(status_of(signal_number));
    errno = saved;
}

int stop_init(bool managed)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event < 0)
        return -errno;
    ends_at_once = managed;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGTERM, &action, NULL) < 0 || sigaction(SIGINT, &action, NULL) < 0)
        return -errno;
    return 0;
}

bool stop_requested(void)
{
    return received != 0;
}

int stop_exit_status(void)
{
    return status_of(received);
}

int stop_fd(void)
{
    return event;
}

bool stop_sleep(int milliseconds)
{
    struct pollfd item = {.fd = event, .events = POLLIN};

    if (!stop_requested())
        poll(&item, 1, milliseconds);
    return !stop_requested();
}

bool stop_with_parent(int parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
        return false;
    /* it may have ended before we asked */
    return getppid() == parent;
}
