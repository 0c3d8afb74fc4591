/* dpsctl: the options before the verb, and the way to the verb. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "ctl/report.h"
#include "ctl/verbs.h"

static void print_help(void)
{
    printf("Usage: dpsctl [--address ADDRESS] [--json] VERB …\n\n"
           "Submits training jobs to dpsd, shows them, changes them, feeds them.\n\nVerbs:\n");
    for (size_t i = 0; i < verb_count; i++) {
        const ArgSpec *spec = verbs[i]->spec;
        printf("  %-12s %s\n", spec->verb, spec->summary);
    }
    printf(
        "\nOptions:\n"
        "  -a, --address ADDRESS  unix:PATH or tcp:HOST:PORT of dpsd\n"
        "                         (default: DPS_ADDRESS, else unix:/run/dpsd/dpsd.sock)\n"
        "  -j, --json             print results and errors as JSON\n"
        "  -h, --help             show this help; dpsctl VERB --help shows a verb's\n"
        "      --version          show the version\n\n"
        "JOB is a job's number, or its name where no other job has it.\n"
        "Exit status: 0 done, 1 failed, 2 wrong usage, 4 no such job, 5 daemon not reachable.\n");
}

static int unknown_option(const CtlOptions *options, const char *word)
{
    static const char *const names[] = {"--address", "--json", "--help", "--version"};
    const char *near = ctl_nearest(word, names, sizeof names / sizeof *names);

    if (near)
        ctl_error(options, "USAGE", "unknown option %s; did you mean %s?", word, near);
    else
        ctl_error(options, "USAGE",
                  "unknown option %s; a verb's own options stand after the verb; see dpsctl --help",
                  word);
    return CTL_EXIT_USAGE;
}

static int unknown_verb(const CtlOptions *options, const char *word)
{
    const char *near = verb_nearest(word);

    if (near)
        ctl_error(options, "USAGE", "unknown verb '%s'; did you mean '%s'?", word, near);
    else
        ctl_error(options, "USAGE", "unknown verb '%s'; dpsctl --help lists them", word);
    return CTL_EXIT_USAGE;
}

static bool is_option(const char *word, const char *longer, const char *shorter)
{
    return strcmp(word, longer) == 0 || strcmp(word, shorter) == 0;
}

/* Reads the option at argv[*at] and moves on. -1: go on, else the exit status. */
static int take_option(int argc, char **argv, int *at, CtlOptions *options)
{
    const char *word = argv[(*at)++];

    if (is_option(word, "--json", "-j")) {
        options->json = true;
    } else if (strncmp(word, "--address=", 10) == 0 && word[10]) {
        options->address = word + 10;
    } else if (is_option(word, "--address", "-a")) {
        if (*at == argc) {
            ctl_error(options, "USAGE", "--address wants a value: unix:PATH or tcp:HOST:PORT");
            return CTL_EXIT_USAGE;
        }
        options->address = argv[(*at)++];
    } else if (is_option(word, "--help", "-h")) {
        print_help();
        return CTL_EXIT_DONE;
    } else if (strcmp(word, "--version") == 0) {
        puts("dpsctl " DPS_VERSION);
        return CTL_EXIT_DONE;
    } else {
        return unknown_option(options, word);
    }
    return -1;
}

/* `dpsctl help [VERB]` is what people type first. */
static int help_verb(const CtlOptions *options, const char *name)
{
    const Verb *verb = name ? verb_find(name) : NULL;
    char *arguments[] = {(char *)name, (char *)"--help", NULL};

    if (!name) {
        print_help();
        return CTL_EXIT_DONE;
    }
    return verb ? verb->run(2, arguments, options) : unknown_verb(options, name);
}

int main(int argc, char **argv)
{
    CtlOptions options = {.address = NULL};
    const Verb *verb;
    int at = 1;

    setlocale(LC_TIME, "");
    while (at < argc && argv[at][0] == '-') {
        int r = take_option(argc, argv, &at, &options);
        if (r >= 0)
            return r;
    }
    if (at == argc) {
        ctl_error(&options, "USAGE", "a verb is missing; dpsctl --help lists them");
        return CTL_EXIT_USAGE;
    }
    if (strcmp(argv[at], "help") == 0)
        return help_verb(&options, argv[at + 1]);
    verb = verb_find(argv[at]);
    if (!verb)
        return unknown_verb(&options, argv[at]);
    return verb->run(argc - at, argv + at, &options);
}
