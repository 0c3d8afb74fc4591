/* The formulas of torch.optim.SGD, Adam and AdamW on flat arrays. Everything that is the same for
 * all elements is computed once, before the loop, so that the loops have no branches. */
#include "backend/cpu_math.h"

#include <math.h>

static void sgd(float lr, float decay, float *restrict p, const float *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] -= lr * (g[i] + decay * p[i]);
}

/* What momentum does to its buffer: buffer = keep · buffer + take · gradient. */
typedef struct Momentum {
    float lr, decay, keep, take, momentum;
} Momentum;

static void sgd_momentum(Momentum m, float *restrict p, const float *restrict g,
                         float *restrict buffer, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + m.decay * p[i];
        buffer[i] = m.keep * buffer[i] + m.take * d;
        p[i] -= m.lr * buffer[i];
    }
}

static void sgd_nesterov(Momentum m, float *restrict p, const float *restrict g,
                         float *restrict buffer, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + m.decay * p[i];
        buffer[i] = m.keep * buffer[i] + m.take * d;
        p[i] -= m.lr * (d + m.momentum * buffer[i]);
    }
}

static void step_sgd(const Optimizer *o, uint64_t t, float *params, const float *gradients,
                     float *const *states, size_t n)
{
    if (o->momentum == 0) {
        sgd(o->lr, o->weight_decay, params, gradients, n);
        return;
    }
    /* The first step puts the gradient itself into the buffer, dampening or not. */
    Momentum m = {.lr = o->lr,
                  .decay = o->weight_decay,
                  .keep = t == 1 ? 0 : o->momentum,
                  .take = t == 1 ? 1 : 1 - o->dampening,
                  .momentum = o->momentum};
    if (o->nesterov)
        sgd_nesterov(m, params, gradients, states[0], n);
    else
        sgd_momentum(m, params, gradients, states[0], n);
}

/* shrink: what decoupled weight decay leaves of a parameter (1 for Adam).
 * step = lr / (1 − β1^t); root = √(1 − β2^t). */
typedef struct Adam {
    float decay, shrink, beta1, beta2, rest1, rest2, step, root, eps;
} Adam;

static void adam(Adam a, float *restrict p, const float *restrict g, float *restrict mean,
                 float *restrict square, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = g[i] + a.decay * p[i];
        mean[i] = a.beta1 * mean[i] + a.rest1 * d;
        square[i] = a.beta2 * square[i] + a.rest2 * d * d;
        p[i] = a.shrink * p[i] - a.step * mean[i] / (sqrtf(square[i]) / a.root + a.eps);
    }
}

static void step_adam(const Optimizer *o, uint64_t t, float *params, const float *gradients,
                      float *const *states, size_t n)
{
    bool decoupled = o->kind == OPTIMIZER_ADAMW;
    double beta1 = o->beta1, beta2 = o->beta2;
    Adam a = {.decay = decoupled ? 0 : o->weight_decay,
              .shrink = decoupled ? (float)(1 - (double)o->lr * o->weight_decay) : 1,
              .beta1 = o->beta1,
              .beta2 = o->beta2,
              .rest1 = (float)(1 - beta1),
              .rest2 = (float)(1 - beta2),
              .step = (float)(o->lr / (1 - pow(beta1, (double)t))),
              .root = (float)sqrt(1 - pow(beta2, (double)t)),
              .eps = o->eps};
    adam(a, params, gradients, states[0], states[1], n);
}

typedef void Step(const Optimizer *o, uint64_t t, float *params, const float *gradients,
                  float *const *states, size_t n);

static Step *const steps[] = {
    [OPTIMIZER_SGD] = step_sgd,
    [OPTIMIZER_ADAM] = step_adam,
    [OPTIMIZER_ADAMW] = step_adam,
};

void cpu_optimizer_step(const Optimizer *optimizer, uint64_t t, float *params,
                        const float *gradients, float *const *states, size_t n)
{
    steps[optimizer->kind](optimizer, t, params, gradients, states, n);
}
