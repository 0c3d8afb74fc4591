#include "backend/onednn/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/onednn/status.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

/* libgomp's, which oneDNN is built with; clang's <omp.h> belongs to another runtime. */
extern void omp_set_num_threads(int threads);

int onednn_device_open(int index, int threads, Device **ret, Error *err)
{
    if (index != 0)
        return error_set(err, -ENODEV, "onednn has one device, 0; there is no %d", index);
    Device *device = calloc(1, sizeof *device);
    if (!device)
        return error_set(err, -ENOMEM, "no memory for a onednn device");
    device->threads = threads;
    int r = status_to_errno(dnnl_engine_create(&device->engine, dnnl_cpu, 0));
    if (r == 0)
        r = status_to_errno(
            dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags));
    if (r < 0) {
        onednn_device_close(device);
        return error_set(err, r, "oneDNN cannot open the CPU: %s", strerror(-r));
    }
    *ret = device;
    return 0;
}

void onednn_device_close(Device *device)
{
    if (!device)
        return;
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
    free(device);
}

void onednn_device_bind(Device *device)
{
    omp_set_num_threads(device->threads);
}

/* Large arrays ask for huge pages: a step walks through tens of megabytes. */
int onednn_alloc(Device *device, size_t bytes, void **ret)
{
    (void)device;
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, rounded > 0 ? rounded : ALIGNMENT) != 0)
        return -ENOMEM;
    if (alignment == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* advice: without it all works, slower */
    memset(memory, 0, rounded);
    *ret = memory;
    return 0;
}

void onednn_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

int onednn_read(Device *device, const void *from, void *host, size_t bytes)
{
    (void)device;
    memcpy(host, from, bytes);
    return 0;
}

int onednn_write(Device *device, const void *host, void *to, size_t bytes)
{
    (void)device;
    memcpy(to, host, bytes);
    return 0;
}

int onednn_zero(Device *device, void *memory, size_t bytes)
{
    (void)device;
    memset(memory, 0, bytes);
    return 0;
}
