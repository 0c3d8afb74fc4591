#include "rpc/status_map.h"

#include <errno.h>
#include <stddef.h>

static const struct {
    int error;
    GrpcStatus status;
} map[] = {
    {EINVAL, GRPC_INVALID_ARGUMENT},
    {ERANGE, GRPC_INVALID_ARGUMENT},
    {ENOENT, GRPC_NOT_FOUND},
    {ESTALE, GRPC_FAILED_PRECONDITION},
    {EALREADY, GRPC_FAILED_PRECONDITION},
    {ENODATA, GRPC_FAILED_PRECONDITION},
    {EBUSY, GRPC_FAILED_PRECONDITION},
    {EROFS, GRPC_FAILED_PRECONDITION},
    {EEXIST, GRPC_ALREADY_EXISTS},
    {ENOMEM, GRPC_RESOURCE_EXHAUSTED},
    {ENOBUFS, GRPC_RESOURCE_EXHAUSTED},
    {ENOSPC, GRPC_RESOURCE_EXHAUSTED},
    {EDQUOT, GRPC_RESOURCE_EXHAUSTED},
    {EPERM, GRPC_PERMISSION_DENIED},
    {EACCES, GRPC_PERMISSION_DENIED},
    {ETIMEDOUT, GRPC_DEADLINE_EXCEEDED},
    {ECANCELED, GRPC_CANCELLED},
    {EAGAIN, GRPC_UNAVAILABLE},
    {ENOTCONN, GRPC_UNAVAILABLE},
    {EBADMSG, GRPC_DATA_LOSS},
    {EOPNOTSUPP, GRPC_UNIMPLEMENTED},
};

GrpcStatus grpc_status_of_errno(int r)
{
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (r == -map[i].error)
            return map[i].status;
    return GRPC_INTERNAL;
}
