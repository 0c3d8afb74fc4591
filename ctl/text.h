/* Small text helpers. Pure functions. */
#pragma once

#include <stddef.h>

/* Replaces by '?' what could steer a terminal or is not UTF-8: C0 and C1 control characters, DEL,
 * bidirectional overrides, stray bytes. NULL is fine; returns text. */
char *ctl_sanitise(char *text);
/* The same into a buffer, cut at a whole character; returns buffer. NULL text gives "". */
const char *ctl_sanitise_to(const char *text, char *buffer, size_t size);

/* The candidate that `word` was most likely meant to be, or NULL when none is near. */
const char *ctl_nearest(const char *word, const char *const *candidates, size_t count);
