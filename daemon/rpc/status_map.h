/* Which gRPC status an errno of the layers below becomes. */
#pragma once

#include "proto/grpc_status.h"

/* r: a negative errno. */
GrpcStatus grpc_status_of_errno(int r);
