/* oneDNN's statuses as negative errnos. Any thread. */
#pragma once

#include <errno.h>
#include <oneapi/dnnl/dnnl_types.h>

static inline int status_to_errno(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return 0;
    case dnnl_out_of_memory:
        return -ENOMEM;
    case dnnl_runtime_error:
        return -EIO;
    default: /* unimplemented, or arguments that no implementation takes */
        return -EOPNOTSUPP;
    }
}
