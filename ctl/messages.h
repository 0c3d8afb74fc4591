/* Scope-bound cleanup for messages: `_cleanup_(message_freep) Dps__V1__JobStatus *status = NULL;`
 */
#pragma once

#include "ctl/cleanup.h"
#include "dps.pb-c.h"

static inline void message_freep(void *pointer)
{
    ProtobufCMessage **message = pointer;

    if (*message)
        protobuf_c_message_free_unpacked(*message, NULL);
}

/* "RUNNING"; "UNKNOWN" for a state of a newer server. */
const char *job_state_name(Dps__V1__JobState state);
/* COMPLETED, FAILED or CANCELLED. */
int job_state_is_final(Dps__V1__JobState state);
