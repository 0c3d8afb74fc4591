/* A oneDNN primitive with the memory objects of its arguments, all made once: to run it is to set
 * pointers and execute. Embedded in the kernel that runs it, zero before init; lane thread. */
#pragma once

#include "backend/onednn/adapter.h"
#include "backend/onednn/device.h"

enum { PRIMITIVE_MAX_ARGS = 9 };

typedef struct Primitive {
    dnnl_primitive_t handle;
    int n_args; /* those of the caller; the scratchpad, if any, comes behind them */
    dnnl_exec_arg_t args[PRIMITIVE_MAX_ARGS + 1];
    size_t scratchpad_bytes;
} Primitive;

/* names: DNNL_ARG_*, in the order in which primitive_run takes pointers. -ENOMEM, -EOPNOTSUPP */
int primitive_init(Primitive *primitive, const Device *device, const_dnnl_primitive_desc_t pd,
                   const int *names, int n_names);
void primitive_done(Primitive *primitive);
/* -EIO, -ENOMEM */
int primitive_run(Primitive *primitive, const Device *device, const void *const *pointers,
                  void *scratchpad);

/* Context for making descriptors: scratchpads are the caller's; relu: a Relu follows. Ended by
 * primitive_context_done. */
int primitive_context_init(PrimitiveContext *context, const Device *device,
                           dnnl_prop_kind_t propagation, bool relu);
void primitive_context_done(PrimitiveContext *context);

static inline void primitive_desc_cleanup(dnnl_primitive_desc_t *pd)
{
    if (*pd)
        dnnl_primitive_desc_destroy(*pd);
}
#define _cleanup_pd_      _cleanup_(primitive_desc_cleanup)
#define _cleanup_context_ _cleanup_(primitive_context_done)
