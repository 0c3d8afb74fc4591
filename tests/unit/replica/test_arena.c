/* Placing blocks: never two at one place at one time, and no more room than must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
