/* A job's status as a message. */
#pragma once

#include "dps.pb-c.h"
#include "job/job.h"

typedef struct PackedStatus PackedStatus;

/* With the trainers or without. -ENOMEM. Points into the job: valid until the loop goes on. */
int pack_status(Job *job, bool trainers, PackedStatus **ret);
PackedStatus *packed_status_free(PackedStatus *packed);
const Dps__V1__JobStatus *packed_status_message(const PackedStatus *packed);
