/* A JobSpec message as the job layer's struct. */
#pragma once

#include "dps.pb-c.h"
#include "job/job_spec.h"

/* -EINVAL with the field that is too long */
int unpack_spec(const Dps__V1__JobSpec *message, JobSpec *ret, Error *err);
