/* The inside of a plan, shared by plan_compile.c, which makes it, and plan.c, which runs it. */
#pragma once

#include "replica/plan.h"

/* A node as this plan computes it. Offsets count bytes in the activation arena or the workspace. */
typedef struct PlanNode {
    const Node *node;
    Kernel *kernel; /* NULL for a Relu that its producer computes */
    KernelInfo info;
    bool alias;    /* nothing to run: the output is the input's memory */
    bool backward; /* somebody needs what its backward computes */
    bool need_input_gradient[NODE_MAX_INPUTS];
    size_t saved_offset; /* arena */
    /* Where backward leaves the gradient of input k (workspace). The first node to come writes the
     * value's gradient itself; a later one writes aside, and it is added. */
    size_t input_gradient_offset[NODE_MAX_INPUTS];
    bool accumulate[NODE_MAX_INPUTS];
} PlanNode;

/* Values that are the same memory share a root, the one of them that a kernel wrote (or the graph's
 * input); offsets are the root's. */
typedef struct PlanValue {
    ValueId root;
    int producer; /* node, -1 for the input */
    const Layout *layout;
    size_t bytes;
    size_t offset;          /* arena */
    size_t gradient_offset; /* workspace */
} PlanValue;

struct Plan {
    const Accelerator *accelerator;
    const Graph *graph;
    int64_t batch;
    bool training;
    PlanNode *nodes;
    PlanValue *values;
    int n_nodes, n_values;
    Layout *input_layout;
    size_t arena_bytes;
    size_t workspace_bytes;
    size_t scratch_offset, staging_offset; /* workspace */
    char *workspace;
    float *gradients; /* NULL unless training */
};
