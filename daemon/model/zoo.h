/* The models that dpsd knows by name, each in a zoo_*.c of its own, in a table. Any thread. */
#pragma once

#include <stdint.h>

#include "model/graph.h"
#include "model/loss.h"

typedef struct ModelOption {
    const char *key;
    const char *value;
} ModelOption;

enum { MODEL_MAX_CHANNELS = 4 };

/* What a model expects and how it is trained unless the job says otherwise. */
typedef struct ModelDefaults {
    Shape input; /* DIM_BATCH first */
    LossKind loss;
    float lr;
    float scale; /* U8 input becomes (x · scale − mean[c]) / deviation[c] */
    float mean[MODEL_MAX_CHANNELS], deviation[MODEL_MAX_CHANNELS];
    int channels;
} ModelDefaults;

typedef struct ModelEntry {
    const char *name;        /* "mnist-cnn" */
    const char *description; /* one line */
    const char *options;     /* keys that build() takes, for help and errors: "dropout" */
    ModelDefaults defaults;
    /* Adds the nodes to a new graph and finishes it. -EINVAL for a wrong option, with a sentence.
     */
    int (*build)(const ModelOption *options, int n_options, Graph **ret, Error *err);
} ModelEntry;

int zoo_count(void);
const ModelEntry *zoo_entry(int index);
/* -ENOENT with the list of names */
int zoo_find(const char *name, const ModelEntry **ret, Error *err);
