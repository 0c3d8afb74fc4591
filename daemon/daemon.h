/* A dpsd put together: loop, store, lanes, jobs, sessions, server. One in a process; loop thread.
 */
#pragma once

#include "config.h"

/* Runs until SIGTERM or SIGINT, or until it cannot start. 0, or a negative errno with a sentence.
 */
int daemon_run(const Config *config, Error *err);
