/* Options of a verb, from a table. Long options take `--name value` and `--name=value`, may be cut
 * to what is unambiguous, and may stand among the positional arguments; `--` ends them. --help,
 * --json and --address are understood everywhere.
 *
 * A table writes into a struct of the verb's own, which holds the defaults before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/options.h"

typedef enum ArgKind {
    ARG_FLAG,   /* bool */
    ARG_STRING, /* const char *; points into argv */
    ARG_U32,    /* uint32_t, at least 1 */
    ARG_U64,    /* uint64_t */
    ARG_FLOAT,  /* float, positive and finite */
    ARG_LIST,   /* ArgList: may be given several times */
} ArgKind;

enum { ARG_LIST_MAX = 64 }; /* model options: more than any model has */

typedef struct ArgList {
    const char *items[ARG_LIST_MAX]; /* point into argv */
    size_t count;
} ArgList;

typedef struct ArgOption {
    const char *name;
    char letter; /* 0: none */
    ArgKind kind;
    size_t offset;       /* of the value in the verb's struct */
    const char *metavar; /* NULL for flags */
    const char *help;    /* NULL: for dpsd's own use, not told */
} ArgOption;

enum { ARGS_MAX_OPTIONS = 48 };

/* What --help says and what is allowed. */
typedef struct ArgSpec {
    const char *verb;
    const char *positional; /* "JOB", "JOB KEY=VALUE…", or "" */
    const char *summary;    /* one line, for the list of verbs too */
    const char *details;    /* whole lines, or NULL */
    const ArgOption *options;
    size_t count;
    int min_positional, max_positional; /* -1: any number */
} ArgSpec;

typedef struct Args {
    char **positional; /* points into argv, which was reordered */
    int count;
} Args;

/* argv[0] is the verb. Returns -1 to go on; otherwise the exit status to end with: --help was
 * printed, or the usage error was reported. `common` gets --json and --address. */
int args_parse(const ArgSpec *spec, int argc, char **argv, void *values, CtlOptions *common,
               Args *ret);
/* Prints the help of a verb to stdout. */
void args_help(const ArgSpec *spec);

/* A whole number in decimal without sign or blanks, nothing after it. 0, -EINVAL, -ERANGE. */
int args_number(const char *text, uint64_t *ret);
