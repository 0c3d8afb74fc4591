#include "config.h"

#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

typedef enum SettingKind {
    SETTING_TEXT,
    SETTING_LISTEN,
    SETTING_NUMBER,
    SETTING_BYTES
} SettingKind;

typedef struct Setting {
    const char *key;
    SettingKind kind;
    size_t offset, size;
    uint64_t min, max;
    const char *help;
} Setting;

#define MEMBER(member) offsetof(Config, member), sizeof(((Config *)0)->member)

static const Setting settings[] = {
    {"daemon.state_dir", SETTING_TEXT, MEMBER(state_dir), 0, 0, "where dps.db is"},
    {"daemon.runtime_dir", SETTING_TEXT, MEMBER(runtime_dir), 0, 0, "where the socket is"},
    {"daemon.device", SETTING_TEXT, MEMBER(device), 0, 0, "auto or cpu"},
    {"daemon.log_level", SETTING_TEXT, MEMBER(log_level), 0, 0,
     "debug, info, notice, warning, error"},
    {"daemon.lanes", SETTING_NUMBER, MEMBER(lanes), 0, 64, "CPU lanes; 0: one a core"},
    {"listen.address", SETTING_LISTEN, 0, 0, 0, 0,
     "unix:PATH or tcp:HOST:PORT; may stand several times"},
    {"jobs.running", SETTING_NUMBER, MEMBER(jobs_running), 1, 1000, "jobs at once; others wait"},
    {"jobs.stored", SETTING_NUMBER, MEMBER(jobs_stored), 1, 100000, "jobs kept in the store"},
    {"trainer.lease", SETTING_NUMBER, MEMBER(trainer_lease_s), 1, 3600,
     "seconds of silence after which a trainer counts as dead"},
    {"trainer.rejoin", SETTING_NUMBER, MEMBER(trainer_rejoin_s), 1, 86400,
     "seconds that a meeting waits for a lost trainer"},
    {"trainer.restarts", SETTING_NUMBER, MEMBER(trainer_restarts), 0, 1000,
     "restarts of a managed trainer in a row without a step"},
    {"trainer.command", SETTING_TEXT, MEMBER(trainer_command), 0, 0,
     "the dpsctl that managed trainers run"},
    {"checkpoint.rounds", SETTING_NUMBER, MEMBER(checkpoint.checkpoint_rounds), 1,
     JOB_MAX_CHECKPOINT_ROUNDS, "rounds between two checkpoints, unless the job says otherwise"},
    {"checkpoint.keep", SETTING_NUMBER, MEMBER(checkpoint.checkpoint_keep), 1,
     JOB_MAX_CHECKPOINT_KEEP, "checkpoints kept of a job, unless it says otherwise"},
    {"limits.connections", SETTING_NUMBER, MEMBER(server.connections), 1, 100000, "at once"},
    {"limits.streams", SETTING_NUMBER, MEMBER(server.streams), 1, 10000, "at once on a connection"},
    {"limits.message", SETTING_BYTES, MEMBER(server.message_bytes), 1024, 1U << 30,
     "bytes of a request message"},
    {"limits.sessions", SETTING_NUMBER, MEMBER(sessions.sessions), 1, 100000, "at once"},
    {"limits.contexts", SETTING_NUMBER, MEMBER(sessions.contexts), 1, 1024, "of a session"},
    {"limits.window", SETTING_NUMBER, MEMBER(sessions.window), 1, 256,
     "batches under way on a Train stream"},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static const char *from_environment(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

void config_defaults(Config *config)
{
    *config = (Config){
        .device = "auto",
        .log_level = "info",
        .jobs_running = 4,
        .jobs_stored = 10000,
        .trainer_lease_s = 10,
        .trainer_rejoin_s = 30,
        .trainer_restarts = 5,
        .checkpoint = {.checkpoint_rounds = 4, .checkpoint_keep = 3},
        .sessions = session_default_limits,
        .server = server_default_limits,
    };
    /* systemd names the directories that it made */
    snprintf(config->state_dir, sizeof config->state_dir, "%s",
             from_environment("STATE_DIRECTORY", CONFIG_STATE_DIR));
    snprintf(config->runtime_dir, sizeof config->runtime_dir, "%s",
             from_environment("RUNTIME_DIRECTORY", CONFIG_RUNTIME_DIR));
}

static int set_text(Config *config, const Setting *setting, const char *value, Error *err)
{
    size_t length = strlen(value);
    if (length >= setting->size)
        return error_set(err, -EINVAL, "%s: the value is longer than %zu bytes", setting->key,
                         setting->size - 1);
    memcpy((char *)config + setting->offset, value, length + 1);
    return 0;
}

static int add_listen(Config *config, const char *value, Error *err)
{
    if (config->n_listen >= CONFIG_MAX_LISTEN)
        return error_set(err, -EINVAL, "listen.address: more than %d addresses", CONFIG_MAX_LISTEN);
    size_t length = strlen(value);
    if (length >= CONFIG_PATH_MAX)
        return error_set(err, -EINVAL, "listen.address: longer than %d bytes", CONFIG_PATH_MAX - 1);
    memcpy(config->listen[config->n_listen++], value, length + 1);
    return 0;
}

static int set_number(Config *config, const Setting *setting, const char *value, Error *err)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (!*value || *end || *value == '-' || errno || number < setting->min || number > setting->max)
        return error_set(err, -EINVAL, "%s=%.40s: it takes a whole number from %llu to %llu (%s)",
                         setting->key, value, (unsigned long long)setting->min,
                         (unsigned long long)setting->max, setting->help);
    if (setting->kind == SETTING_BYTES)
        *(size_t *)((char *)config + setting->offset) = (size_t)number;
    else
        *(unsigned *)((char *)config + setting->offset) = (unsigned)number;
    return 0;
}

static int apply(Config *config, const Setting *setting, const char *value, Error *err)
{
    switch (setting->kind) {
    case SETTING_TEXT:
        return set_text(config, setting, value, err);
    case SETTING_LISTEN:
        return add_listen(config, value, err);
    case SETTING_NUMBER:
    case SETTING_BYTES:
        return set_number(config, setting, value, err);
    }
    return -EINVAL;
}

static int check_words(const Config *config, Error *err)
{
    if (log_level_from_name(config->log_level) < 0)
        return error_set(err, -EINVAL,
                         "daemon.log_level=%s: it takes debug, info, notice, warning or error",
                         config->log_level);
    if (strcmp(config->device, "auto") != 0 && strcmp(config->device, "cpu") != 0)
        return error_set(err, -EINVAL,
                         "daemon.device=%s: it takes auto or cpu; this build has no GPU backend",
                         config->device);
    return 0;
}

int config_set(Config *config, const char *key, const char *value, Error *err)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].key, key) != 0)
            continue;
        int r = apply(config, &settings[i], value, err);
        return r < 0 ? r : check_words(config, err);
    }
    return error_set(err, -EINVAL, "there is no setting '%.60s'; `dpsd --settings` lists them",
                     key);
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct Reading {
    Config *config;
    Error *err;
} Reading;

static int on_line(void *data, const char *section, const char *name, const char *value)
{
    Reading *reading = data;
    char key[128];
    snprintf(key, sizeof key, "%s.%s", section, name);
    return config_set(reading->config, key, value, reading->err) == 0;
}

int config_read_file(Config *config, const char *path, Error *err)
{
    Error problem = {0};
    Reading reading = {.config = config, .err = &problem};
    int line = ini_parse(path, on_line, &reading);
    if (line == -1)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (line != 0)
        return error_set(err, -EINVAL, "%s line %d: %s", path, line,
                         problem.code ? problem.message
                                      : "not [section], name = value or # comment");
    snprintf(config->file, sizeof config->file, "%s", path);
    return 0;
}

static void format_value(const Config *config, const Setting *setting, char *text, size_t size)
{
    const char *at = (const char *)config + setting->offset;
    if (setting->kind == SETTING_TEXT)
        snprintf(text, size, "%s", at);
    else if (setting->kind == SETTING_NUMBER)
        snprintf(text, size, "%u", *(const unsigned *)at);
    else if (setting->kind == SETTING_BYTES)
        snprintf(text, size, "%zu", *(const size_t *)at);
    else
        snprintf(text, size, "unix:%s/dpsd.sock", config->runtime_dir);
}

void config_print_settings(void (*print)(const char *key, const char *value, const char *help))
{
    Config config;
    config_defaults(&config);
    for (int i = 0; i < SETTINGS; i++) {
        char value[CONFIG_PATH_MAX + 32];
        format_value(&config, &settings[i], value, sizeof value);
        print(settings[i].key, value, settings[i].help);
    }
}
