/* Losses, mean reduction over the batch, as PyTorch defines them. Table entries, any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum LossKind {
    LOSS_NLL,           /* input: log-probabilities (B,C); target: class indices (B) */
    LOSS_CROSS_ENTROPY, /* input: logits (B,C); target: class indices (B) */
    LOSS_MSE,           /* input and target of the same shape; mean over all elements */
    LOSS_KIND_COUNT,
} LossKind;

const char *loss_name(LossKind kind); /* "nll", "cross-entropy", "mse" */
/* -EINVAL with the list of names */
int loss_from_name(const char *name, LossKind *ret, Error *err);
bool loss_takes_classes(LossKind kind);
