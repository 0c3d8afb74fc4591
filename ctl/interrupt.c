#include <signal.h>
#include <stdlib.h>

#include "ctl/interrupt.h"

static volatile sig_atomic_t pending_signal;
static volatile sig_atomic_t resized;
static Client *volatile attached;

static void on_signal(int number)
{
    Client *client = attached;

    if (number == SIGWINCH)
        resized = 1;
    else
        pending_signal = number;
    if (client)
        client_wake(client);
}

void interrupt_begin(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

void interrupt_attach(Client *client)
{
    attached = client;
}

bool interrupt_pending(void)
{
    return pending_signal != 0;
}

bool interrupt_resized(void)
{
    bool was = resized != 0;

    resized = 0;
    return was;
}

void interrupt_die(void)
{
    if (!pending_signal)
        return;
    signal(pending_signal, SIG_DFL);
    raise(pending_signal);
}
