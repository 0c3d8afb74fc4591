/* What status says of a job's policy and settings: those that are not as usual. Text of the
 * server's comes as it is: the caller sanitises. Functions that fill
 * `text` return it. */
#pragma once

#include <stddef.h>

#include "dps.pb-c.h"

/* "average every 25", "barrier, rounds of 25": shared parameters are stepped on all the time. */
char *settings_policy(const Dps__V1__JobStatus *job, char *text, size_t size);
/* The settings of a group that differ from dpsd's defaults, without the group's name: ", alpha
 * 0.25, timeout 30" of "sync."; "" if there are none. */
char *settings_unusual(const Dps__V1__JobStatus *job, const char *group, char *text, size_t size);
/* The value in force; NULL: dpsd did not say. */
const char *settings_value(const Dps__V1__JobStatus *job, const char *key);
/* Settings in groups that this dpsctl does not know, of a newer dpsd: ", x.y 3". */
char *settings_unknown(const Dps__V1__JobStatus *job, char *text, size_t size);
