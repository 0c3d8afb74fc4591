/* Losses over plain rows, mean reduction. Sums run in double: rows are few beside the rest of a
 * step. */
#include "backend/cpu_math.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int check_classes(const int64_t *classes, int64_t batch, int64_t width)
{
    for (int64_t b = 0; b < batch; b++)
        if (classes[b] < 0 || classes[b] >= width)
            return -EINVAL;
    return 0;
}

/* The first of the largest. */
static int64_t largest(const float *row, int64_t width)
{
    int64_t best = 0;
    for (int64_t k = 1; k < width; k++)
        if (row[k] > row[best])
            best = k;
    return best;
}

static int64_t count_correct(const float *output, const int64_t *classes, int64_t batch,
                             int64_t width)
{
    int64_t correct = 0;
    for (int64_t b = 0; b < batch; b++)
        correct += largest(output + b * width, width) == classes[b];
    return correct;
}

/* loss = −mean output[b][class]; its gradient is −1/B at the class and 0 elsewhere. */
static void nll(const float *output, const int64_t *classes, int64_t batch, int64_t width,
                float *loss, float *gradient)
{
    double sum = 0;
    for (int64_t b = 0; b < batch; b++)
        sum -= output[b * width + classes[b]];
    *loss = (float)(sum / (double)batch);
    if (!gradient)
        return;
    memset(gradient, 0, (size_t)(batch * width) * sizeof *gradient);
    for (int64_t b = 0; b < batch; b++)
        gradient[b * width + classes[b]] = -1.0F / (float)batch;
}

/* log Σ exp row[k], with the largest taken out so that nothing overflows. */
static double log_sum_exp(const float *row, int64_t width)
{
    double top = row[largest(row, width)], sum = 0;
    for (int64_t k = 0; k < width; k++)
        sum += exp(row[k] - top);
    return top + log(sum);
}

/* loss = mean (log Σ exp row − row[class]); its gradient is (softmax − onehot) / B. */
static void cross_entropy(const float *output, const int64_t *classes, int64_t batch, int64_t width,
                          float *loss, float *gradient)
{
    double sum = 0;
    for (int64_t b = 0; b < batch; b++) {
        const float *row = output + b * width;
        double norm = log_sum_exp(row, width);
        sum += norm - row[classes[b]];
        if (!gradient)
            continue;
        for (int64_t k = 0; k < width; k++)
            gradient[b * width + k] =
                (float)((exp(row[k] - norm) - (k == classes[b])) / (double)batch);
    }
    *loss = (float)(sum / (double)batch);
}

/* loss = mean (output − target)² over all elements; its gradient is 2 (output − target) / n. */
static void mse(const float *output, const float *target, int64_t n, float *loss, float *gradient)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = (double)output[i] - target[i];
        sum += difference * difference;
        if (gradient)
            gradient[i] = (float)(2 * difference / (double)n);
    }
    *loss = (float)(sum / (double)n);
}

int cpu_loss(LossKind kind, const float *output, const void *target, int64_t batch, int64_t width,
             float *loss, float *gradient, int64_t *correct)
{
    if (kind == LOSS_MSE) {
        mse(output, target, batch * width, loss, gradient);
        if (correct)
            *correct = 0;
        return 0;
    }
    int r = check_classes(target, batch, width);
    if (r < 0)
        return r;
    if (kind == LOSS_NLL)
        nll(output, target, batch, width, loss, gradient);
    else
        cross_entropy(output, target, batch, width, loss, gradient);
    if (correct)
        *correct = count_correct(output, target, batch, width);
    return 0;
}
