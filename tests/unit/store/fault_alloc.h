/* Allocations that fail: those of the store's own code (the linker's --wrap, see CMakeLists.txt)
 * and those of SQLite, counted together. */
#pragma once

#include <stdbool.h>

/* Before SQLite is used. 0, or -1 where SQLite does not take it. */
int fault_alloc_install(void);
/* Allocation number n from now on fails, and with `always` all after it; n = 0 ends it. */
void fault_alloc_set(int n, bool always);
/* How many have failed since. */
int fault_alloc_failed(void);
