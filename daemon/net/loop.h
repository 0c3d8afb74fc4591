/* The event loop: libevent underneath, timers (base/timer.h), the mailbox that workers answer
 * through, and signals. One loop, one thread: whoever calls loop_run. */
#pragma once

#include "base/mailbox.h"
#include "base/timer.h"

typedef struct Loop Loop;

int loop_new(Loop **ret);
Loop *loop_free(Loop *loop);

Timers *loop_timers(Loop *loop);
/* Finished tasks posted here have their done() run on the loop. */
Mailbox *loop_mailbox(Loop *loop);
/* Calls back for each delivery of the signal, on the loop. -ENOMEM */
int loop_on_signal(Loop *loop, int signal, void (*callback)(int signal, void *data), void *data);

/* Runs until loop_stop. 0 or a negative errno. */
int loop_run(Loop *loop);
void loop_stop(Loop *loop);

/* The libevent base, for the other files of net/. */
struct event_base;
struct event_base *loop_event_base(Loop *loop);
