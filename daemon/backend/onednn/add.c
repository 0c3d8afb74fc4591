/* Add of two values of one shape. The result lies as the first input does, or as the second where
 * only that is blocked; an input that lies otherwise is reordered. */
#include "backend/cpu_math.h"
#include "backend/onednn/reorder.h"

#include <string.h>

typedef struct AddKernel {
    Kernel base;
    Reorder sources[2], input_gradients[2];
} AddKernel;

static int choose_layout(const KernelSpec *spec, Layout **ret)
{
    Shape shape = kernel_shape(spec, spec->node->output);
    if (spec->plain_output)
        return layout_of_shape(&shape, ret);
    return layout_clone(spec->inputs[spec->inputs[0]->plain ? 1 : 0], ret);
}

static int add_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    AddKernel *add = (AddKernel *)kernel;
    (void)info; /* the backward reads neither input nor output */
    int r = choose_layout(spec, &kernel->output);
    for (int i = 0; i < 2 && r == 0; i++) {
        r = reorder_init_in(&add->sources[i], device, spec->inputs[i], kernel->output, kernel);
        if (r == 0 && spec->training && spec->need_input_gradient[i])
            r = reorder_init_out(&add->input_gradients[i], device, kernel->output, spec->inputs[i],
                                 kernel);
    }
    return r;
}

/* out = a + b; the padding of a blocked layout is zero and stays so. */
static int add_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    AddKernel *add = (AddKernel *)kernel;
    const void *in[2] = {NULL, NULL};
    float *out = args->output;
    for (int i = 0; i < 2; i++) {
        int r = reorder_in(&add->sources[i], device, kernel, args, args->inputs[i], &in[i]);
        if (r < 0)
            return r;
    }
    const float *a = in[0], *b = in[1];
    int64_t n = layout_elements(kernel->output);
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
    return 0;
}

static int add_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    AddKernel *add = (AddKernel *)kernel;
    int r = 0;
    for (int i = 0; i < 2 && r == 0; i++) {
        Reorder *reorder = &add->input_gradients[i];
        void *to = args->input_gradients[i];
        if (!to)
            continue;
        if (reorder->needed)
            r = reorder_straight(reorder, device, kernel, args, args->output_gradient, to);
        else
            memcpy(to, args->output_gradient, kernel->output->bytes);
    }
    return r;
}

static void add_done(Kernel *kernel)
{
    AddKernel *add = (AddKernel *)kernel;
    for (int i = 0; i < 2; i++) {
        reorder_done(&add->sources[i]);
        reorder_done(&add->input_gradients[i]);
    }
}

const KernelClass kernel_add = {add_compile, add_forward, add_backward, add_done,
                                sizeof(AddKernel)};
