/* Tensors of a request as a batch for a model: shapes and types checked against it before anything
 * is copied; the message's memory is taken over, not copied, where its alignment allows. */
#pragma once

#include "dps.pb-c.h"
#include "rpc/call.h"
#include "session/session.h"

/* Takes `message` (which x and y belong to) in any case. y NULL where the call has none. -EINVAL
 * with both shapes, -ENOMEM */
int batch_from_tensors(const JobPlan *plan, ProtobufCMessage *message, const Dps__V1__Tensor *x,
                       const Dps__V1__Tensor *y, OwnedBatch *ret, Error *err);
/* Samples in a full batch are the job's; a client's may have at most this many. */
enum { BATCH_MAX_SAMPLES = JOB_MAX_BATCH };
