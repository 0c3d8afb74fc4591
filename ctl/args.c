#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/args.h"
#include "ctl/report.h"

/* Every verb has these; their values are those of `common`. */
static const ArgOption common_options[] = {
    {"address", 'a', ARG_STRING, 0, "ADDRESS", "unix:PATH or tcp:HOST:PORT of dpsd"},
    {"json", 'j', ARG_FLAG, 0, NULL, "print results and errors as JSON"},
    {"help", 'h', ARG_FLAG, 0, NULL, "show this help"},
};
enum { COMMON = sizeof common_options / sizeof *common_options };

/* getopt's values for long options: beyond any letter. */
enum { FIRST_OPTION = 256 };

static const ArgOption *option_at(const ArgSpec *spec, size_t index)
{
    return index < spec->count ? &spec->options[index] : &common_options[index - spec->count];
}

/* ---- help ------------------------------------------------------------------------------------ */

static void print_option(const ArgOption *option)
{
    char left[64];

    snprintf(left, sizeof left, "%c%c%s --%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
             option->metavar ? " " : "", option->metavar ? option->metavar : "");
    printf("  %-28s  %s\n", left, option->help);
}

void args_help(const ArgSpec *spec)
{
    printf("Usage: dpsctl %s [OPTION…]%s%s\n\n%s.\n", spec->verb, *spec->positional ? " " : "",
           spec->positional, spec->summary);
    if (spec->details)
        printf("\n%s", spec->details); /* ends with a newline */
    printf("\nOptions:\n");
    for (size_t i = 0; i < spec->count + COMMON; i++)
        if (option_at(spec, i)->help)
            print_option(option_at(spec, i));
}

/* ---- values ---------------------------------------------------------------------------------- */

int args_number(const char *text, uint64_t *ret)
{
    unsigned long long number;
    char *end;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno)
        return -ERANGE;
    *ret = number;
    return 0;
}

static int wrong_value(const ArgOption *option, const char *wanted, const char *text,
                       const CtlOptions *common)
{
    ctl_error(common, "USAGE", "--%s wants %s, not '%s'", option->name, wanted, text);
    return CTL_EXIT_USAGE;
}

static int store_number(const ArgOption *option, const char *text, void *value,
                        const CtlOptions *common)
{
    uint64_t number;
    int r = args_number(text, &number);

    if (option->kind == ARG_U64) {
        if (r < 0)
            return wrong_value(option, "a whole number below 2^64", text, common);
        *(uint64_t *)value = number;
        return -1;
    }
    if (r < 0 || number < 1 || number > UINT32_MAX)
        return wrong_value(option, "a whole number from 1 to 4294967295", text, common);
    *(uint32_t *)value = (uint32_t)number;
    return -1;
}

static int store_float(const ArgOption *option, const char *text, float *value,
                       const CtlOptions *common)
{
    char *end;
    float number = strtof(text, &end);

    if (end == text || *end || !isfinite(number) || number <= 0)
        return wrong_value(option, "a positive number", text, common);
    *value = number;
    return -1;
}

static int store_item(const ArgOption *option, const char *text, ArgList *list,
                      const CtlOptions *common)
{
    if (list->count == ARG_LIST_MAX) {
        ctl_error(common, "USAGE", "--%s was given more than %d times", option->name, ARG_LIST_MAX);
        return CTL_EXIT_USAGE;
    }
    list->items[list->count++] = text;
    return -1;
}

static int store(const ArgOption *option, const char *text, void *value, const CtlOptions *common)
{
    switch (option->kind) {
    case ARG_FLAG:
        *(bool *)value = true;
        return -1;
    case ARG_STRING:
        if (!*text)
            return wrong_value(option, "a value", text, common);
        *(const char **)value = text;
        return -1;
    case ARG_U32:
    case ARG_U64:
        return store_number(option, text, value, common);
    case ARG_FLOAT:
        return store_float(option, text, value, common);
    case ARG_LIST:
        return store_item(option, text, value, common);
    }
    return -1;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static void build_tables(const ArgSpec *spec, struct option *longs, char *letters)
{
    size_t total = spec->count + COMMON;

    *letters++ = ':';
    for (size_t i = 0; i < total; i++) {
        const ArgOption *option = option_at(spec, i);
        longs[i] = (struct option){option->name, option->metavar ? required_argument : no_argument,
                                   NULL, FIRST_OPTION + (int)i};
        if (option->letter) {
            *letters++ = option->letter;
            if (option->metavar)
                *letters++ = ':';
        }
    }
    longs[total] = (struct option){0};
    *letters = '\0';
}

static int index_of(const ArgSpec *spec, int code)
{
    if (code >= FIRST_OPTION)
        return code - FIRST_OPTION;
    for (size_t i = 0; i < spec->count + COMMON; i++)
        if (code && option_at(spec, i)->letter == code)
            return (int)i;
    return -1;
}

/* What getopt calls '?': optopt is 0 for a long option that is unknown or ambiguous, the option's
 * own code where a flag was given a value, else a letter. */
static int unknown_option(const ArgSpec *spec, const char *word, const CtlOptions *common)
{
    const char *names[ARGS_MAX_OPTIONS + COMMON], *near;
    char name[64];

    if (optopt >= FIRST_OPTION) {
        ctl_error(common, "USAGE", "--%s takes no value",
                  option_at(spec, optopt - FIRST_OPTION)->name);
        return CTL_EXIT_USAGE;
    }
    if (optopt) {
        ctl_error(common, "USAGE", "'%s' has no option -%c; see dpsctl %s --help", spec->verb,
                  isprint(optopt) ? optopt : '?', spec->verb);
        return CTL_EXIT_USAGE;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (size_t i = 0; i < spec->count + COMMON; i++)
        names[i] = option_at(spec, i)->name;
    near = ctl_nearest(name, names, spec->count + COMMON);
    if (near)
        ctl_error(common, "USAGE", "'%s' has no option --%s; did you mean --%s?", spec->verb, name,
                  near);
    else
        ctl_error(common, "USAGE", "'%s' has no option --%s; see dpsctl %s --help", spec->verb,
                  name, spec->verb);
    return CTL_EXIT_USAGE;
}

static int missing_value(const ArgSpec *spec, const CtlOptions *common)
{
    int index = index_of(spec, optopt);

    ctl_error(common, "USAGE", "--%s wants a value: %s",
              index >= 0 ? option_at(spec, (size_t)index)->name : "?",
              index >= 0 ? option_at(spec, (size_t)index)->metavar : "?");
    return CTL_EXIT_USAGE;
}

/* -1: go on. */
static int take_common(const ArgSpec *spec, size_t index, CtlOptions *common)
{
    switch (common_options[index].letter) {
    case 'a':
        common->address = optarg;
        return -1;
    case 'j':
        common->json = true;
        return -1;
    default:
        args_help(spec);
        return CTL_EXIT_DONE;
    }
}

static int check_positional(const ArgSpec *spec, int count, const CtlOptions *common)
{
    if (count < spec->min_positional) {
        ctl_error(common, "USAGE", "'%s' wants %s; usage: dpsctl %s [OPTION…] %s", spec->verb,
                  spec->positional, spec->verb, spec->positional);
        return CTL_EXIT_USAGE;
    }
    if (spec->max_positional >= 0 && count > spec->max_positional) {
        ctl_error(common, "USAGE", "'%s' has %s; usage: dpsctl %s [OPTION…]%s%s", spec->verb,
                  spec->max_positional ? "too many arguments" : "no arguments, only options",
                  spec->verb, *spec->positional ? " " : "", spec->positional);
        return CTL_EXIT_USAGE;
    }
    return -1;
}

/* --json anywhere decides how errors before it are written. */
static void look_for_json(int argc, char **argv, CtlOptions *common)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            common->json = true;
}

int args_parse(const ArgSpec *spec, int argc, char **argv, void *values, CtlOptions *common,
               Args *ret)
{
    struct option longs[ARGS_MAX_OPTIONS + COMMON + 1];
    char letters[2 * (ARGS_MAX_OPTIONS + COMMON) + 2];
    int code, r = -1;

    look_for_json(argc, argv, common);
    build_tables(spec, longs, letters);
    optind = 0; /* glibc: start over */
    opterr = 0;
    for (;;) {
        code = getopt_long(argc, argv, letters, longs, NULL);
        if (code == -1)
            break;
        if (code == '?')
            return unknown_option(spec, argv[optind - 1], common);
        if (code == ':')
            return missing_value(spec, common);
        size_t index = (size_t)index_of(spec, code);
        if (index >= spec->count)
            r = take_common(spec, index - spec->count, common);
        else
            r = store(&spec->options[index], optarg, (char *)values + spec->options[index].offset,
                      common);
        if (r >= 0)
            return r;
    }
    r = check_positional(spec, argc - optind, common);
    if (r < 0)
        *ret = (Args){.positional = argv + optind, .count = argc - optind};
    return r;
}
