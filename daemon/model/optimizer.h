/* Optimizers: their settings. The arithmetic on flat arrays is the backend's (backend.h).
 *
 * Formulas and defaults are those of torch.optim.SGD, Adam and AdamW. Plain values, any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef enum OptimizerKind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW } OptimizerKind;

enum { OPTIMIZER_MAX_STATES = 2, OPTIMIZER_TEXT_MAX = 160 };

typedef struct Optimizer {
    OptimizerKind kind;
    float lr;
    float weight_decay;
    float momentum, dampening; /* SGD */
    bool nesterov;             /* SGD */
    float beta1, beta2, eps;   /* Adam, AdamW */
} Optimizer;

/* "sgd,momentum=0.9,nesterov=true,weight_decay=5e-4" → settings. lr comes from the text if it is
 * there, else from default_lr. -EINVAL with a sentence that lists what the optimizer takes. */
int optimizer_parse(const char *text, float default_lr, Optimizer *ret, Error *err);
/* The text that parses to the same settings, without lr. */
const char *optimizer_format(const Optimizer *optimizer, char *text, size_t size);
/* Arrays of the parameters' length that it keeps: 0 for plain SGD, 1 with momentum, 2 for Adam. */
int optimizer_state_count(const Optimizer *optimizer);
