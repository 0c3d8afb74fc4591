/* Ctrl-C, SIGTERM and window changes while something is watched: noted here, and the client that is
 * running is woken, so that the terminal can be left in order. */
#pragma once

#include <stdbool.h>

#include "ctl/client.h"

/* Catches SIGINT, SIGTERM, SIGHUP and SIGWINCH from now on. */
void interrupt_begin(void);
/* The client to wake, or NULL; to be taken away before it is freed. */
void interrupt_attach(Client *client);
bool interrupt_pending(void);
/* Whether the window has changed since it was asked last. */
bool interrupt_resized(void);
/* Ends the process by the signal that came, as if it had not been caught. Returns if none did. */
void interrupt_die(void);
