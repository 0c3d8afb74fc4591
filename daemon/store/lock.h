/* One dpsd a state directory: a lock on state_dir/dpsd.lock, which the kernel drops when the
 * process ends, however it ends. The database itself stays open to readers such as sqlite3. */
#pragma once

#include "base/error.h"

/* -EBUSY names the process that has it, where known; -ENOENT, -EACCES, -EROFS, … */
int lock_take(const char *state_dir, int *ret_fd, Error *err);
void lock_release(int fd);
