#include "job/evaluation_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/loss.h"

typedef struct Measure {
    const char *name;
    char direction; /* in which it gets better */
    double least, most;
} Measure;

static const Measure measures[] = {
    [STOP_ACCURACY] = {"accuracy", '>', 0, 1},
    [STOP_LOSS] = {"loss", '<', 0, HUGE_VAL},
};

enum { MEASURES = sizeof measures / sizeof *measures };

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " ");
}

static StopMeasure find_measure(const char **text)
{
    for (int i = STOP_ACCURACY; i < MEASURES; i++) {
        size_t length = strlen(measures[i].name);
        if (strncmp(*text, measures[i].name, length) != 0)
            continue;
        *text = skip_spaces(*text + length);
        return (StopMeasure)i;
    }
    return STOP_NEVER;
}

static int refuse(const char *text, Error *err)
{
    return error_set(
        err, -EINVAL,
        "stop_when=%.60s: it takes accuracy>=X, accuracy>X, loss<=X or loss<X, such as "
        "accuracy>=0.98",
        text);
}

/* Limits that nothing ever reaches, or that everything does, are slips. */
static int check_limit(const char *text, const StopWhen *when, Error *err)
{
    const Measure *measure = &measures[when->measure];
    bool out_of_reach =
        !when->or_equal &&
        (measure->direction == '>' ? when->limit >= measure->most : when->limit <= measure->least);
    if (!isfinite(when->limit) || when->limit < measure->least || when->limit > measure->most)
        return error_set(err, -EINVAL, "stop_when=%.60s: %s", text,
                         when->measure == STOP_ACCURACY
                             ? "accuracy is a share from 0 to 1; 98 % is 0.98"
                             : "a loss is a number of 0 or more");
    if (out_of_reach)
        return error_set(err, -EINVAL, "stop_when=%.60s: no %s is ever %s %g", text, measure->name,
                         measure->direction == '>' ? "above" : "below", when->limit);
    return 0;
}

int stop_when_parse(const char *text, StopWhen *ret, Error *err)
{
    const char *at = skip_spaces(text);
    StopWhen when = {0};
    char *end;
    if (!*at) {
        *ret = when;
        return 0;
    }
    when.measure = find_measure(&at);
    if (when.measure == STOP_NEVER || (*at != '<' && *at != '>'))
        return refuse(text, err);
    const Measure *measure = &measures[when.measure];
    if (*at != measure->direction)
        return error_set(err, -EINVAL, "stop_when=%.60s: %s; write %s%c=X", text,
                         when.measure == STOP_ACCURACY ? "accuracy grows as a model learns"
                                                       : "loss falls as a model learns",
                         measure->name, measure->direction);
    when.or_equal = *++at == '=';
    at = skip_spaces(at + when.or_equal);
    when.limit = strtod(at, &end);
    bool is_decimal = strspn(at, "0123456789.eE+-") == (size_t)(end - at); /* strtod takes more */
    if (end == at || !is_decimal || *at == '-' || *skip_spaces(end))
        return refuse(text, err);
    int r = check_limit(text, &when, err);
    if (r == 0)
        *ret = when;
    return r;
}

static double measured(const StopWhen *when, double accuracy, double loss)
{
    return when->measure == STOP_LOSS ? loss : accuracy;
}

bool stop_when_holds(const StopWhen *when, double accuracy, double loss)
{
    double value = measured(when, accuracy, loss);
    if (when->measure == STOP_NEVER || !isfinite(value))
        return false;
    if (when->or_equal && value == when->limit)
        return true;
    return measures[when->measure].direction == '>' ? value > when->limit : value < when->limit;
}

void stop_when_explain(const StopWhen *when, double accuracy, double loss, uint64_t round,
                       char *text, size_t size)
{
    const Measure *measure = &measures[when->measure];
    snprintf(text, size, "%s %.6g at round %llu: %c%s %.6g", measure->name,
             measured(when, accuracy, loss), (unsigned long long)round, measure->direction,
             when->or_equal ? "=" : "", when->limit);
}

/* ---- a job's -------------------------------------------------------------------------------- */

static bool has_accuracy(const JobSpec *spec)
{
    LossKind loss;
    return loss_from_name(spec->loss, &loss, NULL) == 0 && loss_takes_classes(loss);
}

bool evaluation_is_by_loss(const JobSpec *spec)
{
    StopWhen when = {0};
    (void)stop_when_parse(spec->stop_when, &when, NULL); /* checked when it was submitted */
    return when.measure == STOP_LOSS || !has_accuracy(spec);
}

int evaluation_check_settings(const JobSpec *spec, const JobSettings *settings, Error *err)
{
    if (settings->eval_every == 0 || *spec->eval_data)
        return 0;
    return error_set(
        err, -EINVAL,
        "eval.every=%u: there is nothing to evaluate on; submit the job with eval_data "
        "(--eval-data DIR)",
        settings->eval_every);
}

int evaluation_check_spec(const JobSpec *spec, const JobSettings *settings, Error *err)
{
    StopWhen when = {0};
    int r = stop_when_parse(spec->stop_when, &when, err);
    if (r == 0)
        r = evaluation_check_settings(spec, settings, err);
    if (r < 0 || when.measure == STOP_NEVER)
        return r;
    if (settings->eval_every == 0)
        return error_set(err, -EINVAL,
                         "stop_when=%.60s: no evaluation would decide it; give eval.every "
                         "(--eval-every R) and eval_data (--eval-data DIR) too",
                         spec->stop_when);
    if (when.measure == STOP_ACCURACY && !has_accuracy(spec))
        return error_set(err, -EINVAL,
                         "stop_when=%.60s: with the loss %s there is no accuracy; write loss<=X",
                         spec->stop_when, spec->loss);
    return 0;
}
