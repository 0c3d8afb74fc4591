/* A layer under SQLite that makes the n-th operation on the database's files fail, with an errno of
 * the test's choice. Installed once, before the first store is opened. */
#pragma once

typedef enum FaultOn {
    FAULT_NONE,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_TRUNCATE,
} FaultOn;

/* 0, or -1 where SQLite does not take it. */
int fault_vfs_install(void);

/* Operation number `n` of this kind from now on (1: the next) fails with `code`, and so do all
 * after it when `always`. FAULT_NONE ends it. */
void fault_vfs_set(FaultOn on, int n, int code, int always);
/* How many operations have failed since fault_vfs_set. */
int fault_vfs_failed(void);
