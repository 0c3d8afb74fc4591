/* grpc.reflection (v1 and v1alpha): lets grpcurl and its like work without the .proto. Serves the
 * files of a FileDescriptorSet as protoc makes it. Loop thread only. */
#pragma once

#include "rpc/call.h"

typedef struct Reflection Reflection;

/* The set must outlive the Reflection. -EBADMSG: it is none; -ENOMEM */
int reflection_new(const uint8_t *descriptors, size_t size, Reflection **ret);
/* After the server that serves it is gone. */
Reflection *reflection_free(Reflection *reflection);

/* For server_new; valid while the Reflection is. */
MethodTable reflection_methods(Reflection *reflection);
