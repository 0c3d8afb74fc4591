#include "ctl/trainer/fit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ctl/data/problem.h"
#include "proto/tensor.h"

/* "(1, 28, 28)" */
static const char *format_dims(const int64_t *dims, size_t n, char text[static 200])
{
    int used = snprintf(text, 200, "(");

    for (size_t i = 0; i < n && used < 170; i++)
        used += snprintf(text + used, 200 - (size_t)used, "%s%" PRId64, i ? ", " : "", dims[i]);
    snprintf(text + used, 200 - (size_t)used, ")");
    return text;
}

/* Alike but for dims of 1: grey pictures of (28, 28) fit a model of (1, 28, 28). */
static bool dims_fit(const int64_t *a, size_t na, const int64_t *b, size_t nb)
{
    size_t i = 0, k = 0;

    for (;;) {
        while (i < na && a[i] == 1)
            i++;
        while (k < nb && b[k] == 1)
            k++;
        if (i == na || k == nb)
            return i == na && k == nb;
        if (a[i++] != b[k++])
            return false;
    }
}

static int fit_samples(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data,
                       char *problem, size_t size)
{
    if (reply->samples == 0)
        return problem_set(problem, size, -EINVAL,
                           "the job deals out no samples, its trainers bring their own batches; "
                           "give it a number of samples when it is submitted");
    if (info->samples < reply->samples)
        return problem_set(problem, size, -EINVAL,
                           "%s has %" PRIu64 " samples, but the job deals out %" PRIu64, data,
                           info->samples, reply->samples);
    return 0;
}

static int fit_x(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data,
                 Fit *fit, char *problem, size_t size)
{
    char ours[200], theirs[200];

    if (reply->n_input_dims > FIT_MAX_DIMS ||
        !dims_fit(info->dims, (size_t)info->ndim, reply->input_dims, reply->n_input_dims))
        return problem_set(
            problem, size, -EINVAL, "a sample of %s is %s %s, but the job's model takes %s", data,
            dtype_name(info->dtype), format_dims(info->dims, (size_t)info->ndim, ours),
            format_dims(reply->input_dims, reply->n_input_dims, theirs));
    fit->ndim = (int)reply->n_input_dims;
    memcpy(fit->dims, reply->input_dims, reply->n_input_dims * sizeof(int64_t));
    fit->x_dtype = info->dtype;
    fit->sample_bytes = info->sample_bytes;
    return 0;
}

static int fit_targets(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data,
                       Fit *fit, char *problem, size_t size)
{
    char ours[200], theirs[200];

    if (info->label != DATASET_TARGETS)
        return problem_set(problem, size, -EINVAL,
                           "%s has classes as labels, but the job's loss is mse and needs targets "
                           "of %s: floats",
                           data, format_dims(reply->output_dims, reply->n_output_dims, theirs));
    if (reply->n_output_dims > FIT_MAX_DIMS ||
        !dims_fit(info->target_dims, (size_t)info->target_ndim, reply->output_dims,
                  reply->n_output_dims))
        return problem_set(problem, size, -EINVAL,
                           "a target of %s is %s, but the job's model gives %s", data,
                           format_dims(info->target_dims, (size_t)info->target_ndim, ours),
                           format_dims(reply->output_dims, reply->n_output_dims, theirs));
    fit->target_ndim = (int)reply->n_output_dims;
    memcpy(fit->target_dims, reply->output_dims, reply->n_output_dims * sizeof(int64_t));
    fit->y_dtype = DPS__V1__DTYPE__F32;
    fit->label_bytes = info->target_elements * sizeof(float);
    return 0;
}

static int fit_y(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data,
                 Fit *fit, char *problem, size_t size)
{
    if (strcmp(reply->loss, "mse") == 0)
        return fit_targets(reply, info, data, fit, problem, size);
    if (info->label != DATASET_CLASSES)
        return problem_set(problem, size, -EINVAL,
                           "%s has floats as labels, but the job's loss is %.40s and needs classes",
                           data, reply->loss);
    if (reply->n_output_dims < 1 || reply->output_dims[0] < 1)
        return problem_set(problem, size, -EINVAL, "the job's model has no classes as its output");
    fit->classes = reply->output_dims[0];
    fit->y_dtype = info->label_dtype;
    fit->label_bytes = dtype_size(fit->y_dtype);
    return 0;
}

static int fit_sizes(const Dps__V1__JoinReply *reply, const char *data, Fit *fit, char *problem,
                     size_t size)
{
    if (reply->batch == 0 || reply->window == 0)
        return problem_set(problem, size, -EINVAL,
                           "the server wants batches of %" PRIu32 " samples and %" PRIu32
                           " of them under way",
                           reply->batch, reply->window);
    if (reply->batch > FIT_MAX_BATCH_BYTES / (fit->sample_bytes + fit->label_bytes))
        return problem_set(problem, size, -EINVAL,
                           "a batch of %" PRIu32 " samples of %s is larger than the %zu bytes "
                           "that a batch may have",
                           reply->batch, data, FIT_MAX_BATCH_BYTES);
    fit->batch = reply->batch;
    fit->window = reply->window < FIT_MAX_WINDOW ? reply->window : FIT_MAX_WINDOW;
    return 0;
}

int fit_check(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data, Fit *ret,
              char *problem, size_t size)
{
    Fit fit = {0};
    int r = fit_samples(reply, info, data, problem, size);

    if (r == 0)
        r = fit_x(reply, info, data, &fit, problem, size);
    if (r == 0)
        r = fit_y(reply, info, data, &fit, problem, size);
    if (r == 0)
        r = fit_sizes(reply, data, &fit, problem, size);
    if (r == 0)
        *ret = fit;
    return r;
}
