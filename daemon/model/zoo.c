#include "model/zoo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/zoo_build.h"

static const ModelEntry *const models[] = {&zoo_mnist_cnn, &zoo_mlp, &zoo_resnet_small};
enum { N_MODELS = sizeof models / sizeof models[0] };

int zoo_count(void)
{
    return N_MODELS;
}

const ModelEntry *zoo_entry(int index)
{
    return models[index];
}

int zoo_find(const char *name, const ModelEntry **ret, Error *err)
{
    char list[128] = "";
    for (int i = 0; i < N_MODELS; i++) {
        if (strcmp(models[i]->name, name) == 0) {
            *ret = models[i];
            return 0;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", models[i]->name);
    }
    return error_set(err, -ENOENT, "no model is called \"%s\"; there are %s", name, list);
}

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; length > 0 && (at = strstr(at, word)); at += length) {
        bool begins = at == words || at[-1] == ' ';
        if (begins && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

int zoo_check_options(const char *model, const char *allowed, const ModelOption *options,
                      int n_options, Error *err)
{
    for (int i = 0; i < n_options; i++) {
        if (!has_word(allowed, options[i].key))
            return error_set(err, -EINVAL, "no option is called \"%s\"; %s has %s", options[i].key,
                             model, *allowed ? allowed : "none");
    }
    return 0;
}

int zoo_option(const char *model, const char *key, int64_t min, int64_t max,
               const ModelOption *options, int n_options, int64_t *ret, Error *err)
{
    for (int i = 0; i < n_options; i++) {
        if (strcmp(options[i].key, key) != 0)
            continue;
        char *end;
        errno = 0;
        long long value = strtoll(options[i].value, &end, 10);
        if (errno || end == options[i].value || *end || value < min || value > max)
            return error_set(err, -EINVAL,
                             "option %s of %s must be a whole number from %" PRId64 " to %" PRId64
                             ", not \"%s\"",
                             key, model, min, max, options[i].value);
        *ret = value;
    }
    return 0;
}

int zoo_begin(const ModelEntry *model, Graph **ret, Error *err)
{
    int r = graph_new(&model->defaults.input, ret);
    return r < 0 ? error_set(err, r, "out of memory for the graph of %s", model->name) : 0;
}

int zoo_end(Graph *graph, ValueId output, Graph **ret, Error *err)
{
    int r = graph_finish(graph, output, err);
    if (r < 0) {
        graph_free(graph);
        return r;
    }
    *ret = graph;
    return 0;
}
