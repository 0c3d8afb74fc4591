#include "model/loss.h"

#include <string.h>

static const struct {
    const char *name;
    bool takes_classes;
} losses[LOSS_KIND_COUNT] = {
    [LOSS_NLL] = {"nll", true},
    [LOSS_CROSS_ENTROPY] = {"cross-entropy", true},
    [LOSS_MSE] = {"mse", false},
};

const char *loss_name(LossKind kind)
{
    return losses[kind].name;
}

int loss_from_name(const char *name, LossKind *ret, Error *err)
{
    for (int i = 0; i < LOSS_KIND_COUNT; i++) {
        if (strcmp(losses[i].name, name) == 0) {
            *ret = (LossKind)i;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "no loss is called \"%s\"; there are nll, cross-entropy and mse",
                     name);
}

bool loss_takes_classes(LossKind kind)
{
    return losses[kind].takes_classes;
}
