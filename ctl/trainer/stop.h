/* SIGTERM and SIGINT. A managed trainer ends at once, its daemon knows why; any other is told so
 * that it can leave its job, and ends at once on the second signal. Process-wide. */
#pragma once

#include <stdbool.h>

enum {
    STOP_EXIT_TERM = 0,
    STOP_EXIT_INT = 130, /* as a shell says it */
};

/* -errno of the system. */
int stop_init(bool managed);
/* Whether a signal came; stop_exit_status is then what to end with. */
bool stop_requested(void);
int stop_exit_status(void);
/* Becomes readable when a signal has come, and stays so. */
int stop_fd(void);
/* Waits; false when a signal came. */
bool stop_sleep(int milliseconds);

/* Asks for SIGTERM when the parent ends. False: `parent` is not our parent any more. */
bool stop_with_parent(int parent);
