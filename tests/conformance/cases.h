/* The single-operator cases that every backend runs and that the reference's gradients are checked
 * on: every operator with plain and with awkward shapes. */
#pragma once

#include "model/graph.h"

typedef struct OpCase {
    const char *name;
    OpKind kind;
    int64_t batch;
    int64_t c, h, w; /* input (batch, c, h, w), or (batch, c) where h is 0 */
    union {
        ConvAttrs conv;
        PoolAttrs pool;
        BatchNormAttrs norm;
        float dropout;
        struct {
            int64_t outputs;
            bool bias;
        } linear;
    } attrs;
    bool relu_after; /* Conv2d and Linear: a Relu that may be fused */
    bool same_value; /* Add: x + x instead of branch + x */
} OpCase;

extern const OpCase op_cases[];
extern const int n_op_cases;

/* Where the operator stands: alone its input and output are plain, between two others it takes and
 * gives whatever layout suits its neighbours. */
typedef enum Surroundings { ALONE, BETWEEN, SURROUNDINGS_COUNT } Surroundings;

/* A finished graph, or fails the running test with the builder's sentence. */
Graph *op_case_graph(const OpCase *c, Surroundings surroundings);
