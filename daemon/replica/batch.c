#include "replica/batch.h"

#include <inttypes.h>
#include <string.h>

int64_t engine_input_width(const Engine *engine)
{
    return shape_elements(graph_value_shape(engine_spec(engine)->graph, 0), 1);
}

int64_t engine_output_width(const Engine *engine)
{
    const Graph *graph = engine_spec(engine)->graph;
    return shape_elements(graph_value_shape(graph, graph_output(graph)), 1);
}

/* The second dimension of the input is its channels, unless there is just one for everything. */
static int check_channels(const EngineSpec *spec, Error *err)
{
    const Shape *input = graph_value_shape(spec->graph, 0);
    if (spec->channels == 1 || (input->ndim >= 2 && input->dims[1] == spec->channels))
        return 0;
    char text[128];
    return error_set(err, -EINVAL,
                     "U8 input cannot be normalised: the job knows mean and deviation of %d "
                     "channels, the model's input is %s; send F32",
                     spec->channels, shape_format(input, text, sizeof text));
}

/* y may come straight from a message, at any address. */
static int check_classes(const Engine *engine, const Batch *batch, Error *err)
{
    int64_t classes = engine_output_width(engine);
    const char *y = batch->y;
    for (int64_t i = 0; i < batch->samples; i++) {
        int64_t class;
        memcpy(&class, y + (size_t)i * sizeof class, sizeof class);
        if (class < 0 || class >= classes)
            return error_set(err, -EINVAL,
                             "the label of sample %" PRId64 " is %" PRId64
                             ", but the model has classes 0 to %" PRId64,
                             i, class, classes - 1);
    }
    return 0;
}

int batch_check(const Engine *engine, const Batch *batch, bool need_y, Error *err)
{
    const EngineSpec *spec = engine_spec(engine);
    if (batch->samples < 1 || batch->samples > ENGINE_MAX_BATCH)
        return error_set(err, -EINVAL, "a batch must have 1 to %d samples, not %" PRId64,
                         ENGINE_MAX_BATCH, batch->samples);
    if (!batch->x)
        return error_set(err, -EINVAL, "the batch has no input");
    if (need_y && !batch->y)
        return error_set(err, -EINVAL, "the batch has no %s",
                         loss_takes_classes(spec->loss) ? "labels" : "targets");
    int r = batch->x_is_u8 ? check_channels(spec, err) : 0;
    if (r == 0 && need_y && loss_takes_classes(spec->loss))
        r = check_classes(engine, batch, err);
    return r;
}

int batch_load_input(const Engine *engine, Plan *plan, Activations *activations, const Batch *batch)
{
    const EngineSpec *spec = engine_spec(engine);
    const Accelerator *accelerator = engine_accelerator(engine);
    int64_t width = engine_input_width(engine);
    size_t elements = (size_t)batch->samples * (size_t)width;
    float *input = activations_input(activations);
    if (!batch->x_is_u8)
        return accelerator_write(accelerator, batch->x, input, elements * sizeof(float));
    uint8_t *pixels = plan_staging(plan);
    int r = accelerator_write(accelerator, batch->x, pixels, elements);
    if (r < 0)
        return r;
    return accelerator_normalise(accelerator, pixels, input, batch->samples, spec->channels,
                                 width / spec->channels, spec->scale, spec->mean, spec->deviation);
}

int batch_load_target(const Engine *engine, Plan *plan, const Batch *batch)
{
    size_t samples = (size_t)batch->samples;
    size_t bytes = loss_takes_classes(engine_spec(engine)->loss)
                       ? samples * sizeof(int64_t)
                       : samples * (size_t)engine_output_width(engine) * sizeof(float);
    return accelerator_write(engine_accelerator(engine), batch->y, plan_staging(plan), bytes);
}
