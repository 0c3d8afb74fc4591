/* dpsd: options, configuration, and the run. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon.h"

#ifndef DPS_DEFAULT_CONFIG
#define DPS_DEFAULT_CONFIG "/etc/dpsd/dpsd.conf"
#endif

enum { EXIT_USAGE = 2 };

static const char help[] =
    "Usage: dpsd [OPTION]…\n"
    "Hosts model replicas and trains them for many trainers over gRPC; see dpsctl to use it.\n"
    "\n"
    "  --config FILE        settings (default: " DPS_DEFAULT_CONFIG ", if it is there)\n"
    "  --state-dir DIR      where jobs, metrics and checkpoints are kept; must be there\n"
    "                       (default: $STATE_DIRECTORY, else " CONFIG_STATE_DIR ")\n"
    "  --runtime-dir DIR    where the socket dpsd.sock is made; must be there\n"
    "                       (default: $RUNTIME_DIRECTORY, else " CONFIG_RUNTIME_DIR ")\n"
    "  --listen ADDRESS     unix:PATH or tcp:HOST:PORT; may be given several times\n"
    "                       (default: unix:RUNTIME_DIR/dpsd.sock)\n"
    "  --device DEVICE      auto or cpu\n"
    "  --log-level LEVEL    debug, info, notice, warning or error (default: info)\n"
    "  --set KEY=VALUE      any setting of the file, such as --set trainer.rejoin=60\n"
    "  --settings           lists all settings with their defaults, and ends\n"
    "  --help, --version\n";

typedef struct Option {
    const char *name;
    const char *key; /* of the setting that it sets; NULL: KEY=VALUE is the argument */
} Option;

static const Option options[] = {
    {"state-dir", "daemon.state_dir"}, {"runtime-dir", "daemon.runtime_dir"},
    {"listen", "listen.address"},      {"device", "daemon.device"},
    {"log-level", "daemon.log_level"}, {"set", NULL},
};

enum {
    OPTIONS = sizeof options / sizeof *options,
    OPTION_CONFIG = 256,
    OPTION_SETTINGS,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_FIRST
};

static void fill_long_options(struct option *table)
{
    int n = 0;
    table[n++] = (struct option){"config", required_argument, NULL, OPTION_CONFIG};
    table[n++] = (struct option){"settings", no_argument, NULL, OPTION_SETTINGS};
    table[n++] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    table[n++] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    for (int i = 0; i < OPTIONS; i++)
        table[n++] = (struct option){options[i].name, required_argument, NULL, OPTION_FIRST + i};
    table[n] = (struct option){0};
}

static void print_setting(const char *key, const char *value, const char *text)
{
    printf("%-20s %-28s %s\n", key, value, text);
}

static int apply_option(Config *config, const Option *option, const char *argument, Error *err)
{
    char pair[CONFIG_PATH_MAX + 64];
    if (option->key)
        return config_set(config, option->key, argument, err);
    snprintf(pair, sizeof pair, "%s", argument);
    char *equals = strchr(pair, '=');
    if (!equals)
        return error_set(err, -EINVAL, "--set %.60s: it takes KEY=VALUE", argument);
    *equals = '\0';
    return config_set(config, pair, equals + 1, err);
}

static int usage_error(const Error *err)
{
    fprintf(stderr, "dpsd: %s\n", err->message);
    return EXIT_USAGE;
}

/* The file comes first, wherever --config stands, so that options override it. */
static int read_config(Config *config, int argc, char **argv, const struct option *table,
                       Error *err)
{
    const char *file = NULL;
    int c;
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1)
        if (c == OPTION_CONFIG)
            file = optarg;
    config_defaults(config);
    if (!file && access(DPS_DEFAULT_CONFIG, R_OK) == 0)
        file = DPS_DEFAULT_CONFIG;
    return file ? config_read_file(config, file, err) : 0;
}

/* 0: run; 1: the option answered itself; negative: an error. */
static int read_options(Config *config, int argc, char **argv, const struct option *table,
                        Error *err)
{
    int c, r = 0;
    bool listens = false;
    optind = 1;
    while (r == 0 && (c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == OPTION_HELP) {
            fputs(help, stdout);
            return 1;
        }
        if (c == OPTION_VERSION) {
            puts("dpsd " DPS_VERSION);
            return 1;
        }
        if (c == OPTION_SETTINGS) {
            config_print_settings(print_setting);
            return 1;
        }
        if (c == '?')
            return error_set(err, -EINVAL, "%s: unknown or without its value; see dpsd --help",
                             argv[optind - 1]);
        if (c < OPTION_FIRST)
            continue;
        const Option *option = &options[c - OPTION_FIRST];
        if (strcmp(option->name, "listen") == 0 && !listens) {
            config->n_listen = 0; /* options replace what the file says */
            listens = true;
        }
        r = apply_option(config, option, optarg, err);
    }
    if (r == 0 && optind < argc)
        r = error_set(err, -EINVAL, "'%s' is not an option; see dpsd --help", argv[optind]);
    return r;
}

int main(int argc, char **argv)
{
    static Config config;
    struct option table[OPTIONS + 5];
    Error err = {0};
    fill_long_options(table);
    int r = read_config(&config, argc, argv, table, &err);
    if (r == 0)
        r = read_options(&config, argc, argv, table, &err);
    if (r < 0)
        return usage_error(&err);
    if (r > 0)
        return EXIT_SUCCESS;
    log_set_level(log_level_from_name(config.log_level));
    log_set_journal(getenv("JOURNAL_STREAM") != NULL);
    r = daemon_run(&config, &err);
    if (r == 0)
        return EXIT_SUCCESS;
    log_error("%s", err.message);
    return EXIT_FAILURE;
}
