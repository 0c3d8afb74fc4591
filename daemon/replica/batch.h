/* A batch on its way to the device: checked before anything changes, then written. Internal to
 * daemon/replica, lane thread. */
#pragma once

#include "replica/replica.h"

/* Checks the number of samples, that U8 input can be normalised, that each class is one of the
 * model's. need_y: the batch is for a loss. -EINVAL with a sentence */
int batch_check(const Engine *engine, const Batch *batch, bool need_y, Error *err);
/* x → the arena's input, normalised if it is U8. -EIO */
int batch_load_input(const Engine *engine, Plan *plan, Activations *activations,
                     const Batch *batch);
/* y → the plan's staging room. -EIO */
int batch_load_target(const Engine *engine, Plan *plan, const Batch *batch);

/* Elements of one sample of the model's input and output. */
int64_t engine_input_width(const Engine *engine);
int64_t engine_output_width(const Engine *engine);
