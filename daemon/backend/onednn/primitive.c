#include "backend/onednn/primitive.h"

#include "backend/onednn/status.h"

static int add_argument(Primitive *primitive, const Device *device, const_dnnl_primitive_desc_t pd,
                        int name, size_t *bytes)
{
    dnnl_exec_arg_t *arg = &primitive->args[primitive->n_args];
    int r = adapter_memory_of_argument(pd, name, device->engine, &arg->memory, bytes);
    if (r < 0)
        return r;
    arg->arg = name;
    primitive->n_args++;
    return 0;
}

int primitive_init(Primitive *primitive, const Device *device, const_dnnl_primitive_desc_t pd,
                   const int *names, int n_names)
{
    size_t bytes = 0;
    int r = status_to_errno(dnnl_primitive_create(&primitive->handle, pd));
    if (r < 0)
        return r;
    for (int i = 0; i < n_names; i++) {
        r = add_argument(primitive, device, pd, names[i], &bytes);
        if (r < 0)
            return r;
    }
    r = add_argument(primitive, device, pd, DNNL_ARG_SCRATCHPAD, &primitive->scratchpad_bytes);
    if (r == 0)
        primitive->n_args--; /* counted apart */
    return r;
}

void primitive_done(Primitive *primitive)
{
    for (int i = 0; i <= PRIMITIVE_MAX_ARGS; i++)
        if (primitive->args[i].memory)
            dnnl_memory_destroy(primitive->args[i].memory);
    if (primitive->handle)
        dnnl_primitive_destroy(primitive->handle);
    *primitive = (Primitive){0};
}

int primitive_run(Primitive *primitive, const Device *device, const void *const *pointers,
                  void *scratchpad)
{
    int n = primitive->n_args;
    for (int i = 0; i < n; i++) {
        /* oneDNN takes inputs as non-const pointers, too, and does not write them. */
        dnnl_status_t status =
            dnnl_memory_set_data_handle(primitive->args[i].memory, (void *)(uintptr_t)pointers[i]);
        if (status != dnnl_success)
            return status_to_errno(status);
    }
    if (primitive->scratchpad_bytes > 0)
        dnnl_memory_set_data_handle(primitive->args[n++].memory, scratchpad);
    dnnl_status_t status =
        dnnl_primitive_execute(primitive->handle, device->stream, n, primitive->args);
    return status == dnnl_success || status == dnnl_out_of_memory ? status_to_errno(status) : -EIO;
}

static int append_relu(dnnl_primitive_attr_t attributes)
{
    dnnl_post_ops_t post_ops;
    int r = status_to_errno(dnnl_post_ops_create(&post_ops));
    if (r < 0)
        return r;
    r = adapter_append_relu(post_ops);
    if (r == 0)
        r = status_to_errno(dnnl_primitive_attr_set_post_ops(attributes, post_ops));
    dnnl_post_ops_destroy(post_ops);
    return r;
}

int primitive_context_init(PrimitiveContext *context, const Device *device,
                           dnnl_prop_kind_t propagation, bool relu)
{
    *context = (PrimitiveContext){.engine = device->engine, .propagation = propagation};
    int r = status_to_errno(dnnl_primitive_attr_create(&context->attributes));
    if (r == 0)
        r = status_to_errno(dnnl_primitive_attr_set_scratchpad_mode(context->attributes,
                                                                    dnnl_scratchpad_mode_user));
    if (r == 0 && relu)
        r = append_relu(context->attributes);
    return r;
}

void primitive_context_done(PrimitiveContext *context)
{
    if (context->attributes)
        dnnl_primitive_attr_destroy(context->attributes);
    context->attributes = NULL;
}
