/* Where the layout that a kernel computes in differs from the one outside: a copy in the kernel's
 * scratch and the reorder between them. Costs nothing where the layouts agree. Embedded in the
 * kernel that runs it, zero before init; lane thread. */
#pragma once

#include "backend/onednn/kernel.h"

typedef struct Reorder {
    Primitive primitive;
    bool needed;
    size_t offset; /* of the copy in scratch */
} Reorder;

/* Values that come in as `outside` and are computed on as `inside`. */
int reorder_init_in(Reorder *reorder, const Device *device, const Layout *outside,
                    const Layout *inside, Kernel *kernel);
/* Values that are computed as `inside` and leave as `outside`. */
int reorder_init_out(Reorder *reorder, const Device *device, const Layout *inside,
                     const Layout *outside, Kernel *kernel);
void reorder_done(Reorder *reorder);

/* Brings a value in: *ret is where the kernel reads it. */
int reorder_in(Reorder *reorder, const Device *device, const Kernel *kernel, const KernelArgs *args,
               const void *outside, const void **ret);
/* Where the kernel is to write a value that leaves to `outside` by reorder_out. */
void *reorder_target(const Reorder *reorder, const KernelArgs *args, void *outside);
int reorder_out(Reorder *reorder, const Device *device, const Kernel *kernel,
                const KernelArgs *args, void *outside);
/* From one place to another, without the copy. Nothing where the layouts agree. */
int reorder_straight(Reorder *reorder, const Device *device, const Kernel *kernel,
                     const KernelArgs *args, const void *from, void *to);
