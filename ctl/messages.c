#include "ctl/messages.h"

const char *job_state_name(Dps__V1__JobState state)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&dps__v1__job_state__descriptor, (int)state);

    return value && state != DPS__V1__JOB_STATE__JOB_STATE_UNSPECIFIED ? value->name : "UNKNOWN";
}

int job_state_is_final(Dps__V1__JobState state)
{
    return state == DPS__V1__JOB_STATE__COMPLETED || state == DPS__V1__JOB_STATE__FAILED ||
           state == DPS__V1__JOB_STATE__CANCELLED;
}
