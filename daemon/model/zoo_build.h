/* What the builders of models share: reading options, making the graph. Internal to daemon/model's
 * zoo. */
#pragma once

#include "model/zoo.h"

/* -EINVAL if an option's key is not among `allowed` (words parted by a space). */
int zoo_check_options(const char *model, const char *allowed, const ModelOption *options,
                      int n_options, Error *err);
/* The integer that the options give for `key`, *ret unchanged if they do not. -EINVAL outside
 * min … max. */
int zoo_option(const char *model, const char *key, int64_t min, int64_t max,
               const ModelOption *options, int n_options, int64_t *ret, Error *err);

/* A new graph with the model's input. -ENOMEM */
int zoo_begin(const ModelEntry *model, Graph **ret, Error *err);
/* Finishes the graph, or frees it and returns the builder's error. */
int zoo_end(Graph *graph, ValueId output, Graph **ret, Error *err);

extern const ModelEntry zoo_mnist_cnn, zoo_mlp, zoo_resnet_small;
