/* A share of the CPU's cores as a oneDNN engine and stream. Used by the thread that is bound to it
 * (its lane's); owned by whoever opened it. */
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "backend/backend.h"

struct Device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
};

int onednn_device_open(int index, int threads, Device **ret, Error *err);
void onednn_device_close(Device *device);
/* oneDNN takes its number of threads from OpenMP, which keeps it for each thread apart. */
void onednn_device_bind(Device *device);

int onednn_alloc(Device *device, size_t bytes, void **ret);
void onednn_release(Device *device, void *memory);
int onednn_read(Device *device, const void *from, void *host, size_t bytes);
int onednn_write(Device *device, const void *host, void *to, size_t bytes);
int onednn_zero(Device *device, void *memory, size_t bytes);
