/* Watching a job until it ends: a block that is redrawn on a terminal, lines in a pipe, one JSON
 * object a line with --json. A daemon that goes away is waited for. */
#pragma once

#include "ctl/request.h"

/* Takes over request->client, which changes when it reconnects. 0 when the job COMPLETED, 1 when it
 * FAILED or was CANCELLED; 4, 5 as usual. Ctrl-C ends the process by SIGINT; the job goes on. */
int watch_job(Request *request);
