/* A graph compiled for one device and batch size: kernels in order, where each value lies in an
 * activation arena, and the workspace that gradients and scratch share.
 *
 * A plan holds no weights and no activations, so all replicas of a job on a lane share it. The
 * arena (Activations) belongs to whoever runs a forward and wants to run its backward later. Lane
 * thread. */
#pragma once

#include "replica/weights.h"

typedef struct Plan Plan;
typedef struct Activations Activations;

/* training false: a forward-only plan, as for evaluation. -ENOMEM, -EOPNOTSUPP */
int plan_new(const Accelerator *accelerator, const Graph *graph, int64_t batch, bool training,
             Plan **ret, Error *err);
Plan *plan_free(Plan *plan);
int64_t plan_batch(const Plan *plan);
size_t plan_bytes(const Plan *plan);

/* An arena for one forward of this plan. -ENOMEM */
int activations_new(Plan *plan, Activations **ret);
Activations *activations_free(Activations *activations);
size_t activations_bytes(const Activations *activations);
/* Where the input (batch, …, plain float32) is to be written, and the plain output after forward.
 */
float *activations_input(Activations *activations);
float *activations_output(Activations *activations);

int plan_forward(Plan *plan, Activations *activations, Weights *weights, const RngKey *rng);
/* output_gradient: plain, as the output. gradients: flat, graph_params_length, overwritten. Uses
 * `weights`, which must be as they were at the forward. Only of a training plan. */
int plan_backward(Plan *plan, Activations *activations, Weights *weights, const RngKey *rng,
                  const float *output_gradient, float *gradients);
/* Where a loss may leave its gradient before plan_backward: in the plan's workspace, output-sized.
 */
float *plan_output_gradient(Plan *plan);
/* A flat gradient array for steps that go straight on (graph_params_length). */
float *plan_gradients(Plan *plan);
/* Room on the device for what comes from the host beside float input: U8 input before forward, or
 * the targets of a loss (classes, or numbers like the output) between forward and backward. */
void *plan_staging(Plan *plan);
