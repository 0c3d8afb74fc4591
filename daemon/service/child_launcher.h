/* Managed trainers and evaluators as child processes: `dpsctl trainer` with the job's data, `dpsctl
 * eval` with its held-out data. Loop thread only.
 *
 * A child asks the kernel to be ended when its parent dies, so that none is left behind by a kill
 * -9. */
#pragma once

#include "base/timer.h"
#include "job/launcher.h"

typedef struct ChildLauncher ChildLauncher;

/* command: the dpsctl to run. -ENOMEM */
int child_launcher_new(Timers *timers, const char *command, ChildLauncher **ret);
/* Where trainers find this dpsd: known once it listens, before the first job is loaded. -ENOMEM */
int child_launcher_set_address(ChildLauncher *launcher, const char *address);
/* Ends all children and waits for them, a few seconds at most. */
ChildLauncher *child_launcher_free(ChildLauncher *launcher);

/* What the job layer uses. Valid while the ChildLauncher is. */
Launcher child_launcher_interface(ChildLauncher *launcher);
/* To be called on SIGCHLD. */
void child_launcher_reap(ChildLauncher *launcher);
