/* Everything that can be set about a dpsd: defaults, then the file, then the options. Plain values.
 */
#pragma once

#include "base/error.h"
#include "job/manager.h"
#include "net/server.h"
#include "session/session.h"

#define CONFIG_STATE_DIR   "/var/lib/dpsd" /* unless systemd's STATE_DIRECTORY says otherwise */
#define CONFIG_RUNTIME_DIR "/run/dpsd"     /* … RUNTIME_DIRECTORY … */

enum { CONFIG_MAX_LISTEN = 8, CONFIG_PATH_MAX = 512 };

typedef struct Config {
    char file[CONFIG_PATH_MAX]; /* that was read; empty: none */
    char state_dir[CONFIG_PATH_MAX], runtime_dir[CONFIG_PATH_MAX];
    char listen[CONFIG_MAX_LISTEN][CONFIG_PATH_MAX]; /* none: unix:RUNTIME_DIR/dpsd.sock */
    unsigned n_listen;
    char device[32]; /* auto or cpu */
    char log_level[16];
    unsigned lanes;                        /* 0: a lane a core */
    char trainer_command[CONFIG_PATH_MAX]; /* empty: dpsctl beside dpsd, else in the bindir */
    unsigned jobs_running, jobs_stored;
    uint32_t trainer_lease_s, trainer_rejoin_s, trainer_restarts;
    JobDefaults checkpoint;
    SessionLimits sessions;
    ServerLimits server;
} Config;

void config_defaults(Config *config);
/* -EINVAL with file, line, key and what it takes; -ENOENT where the file must exist and does not.
 */
int config_read_file(Config *config, const char *path, Error *err);
/* One setting as in the file: "trainer.rejoin", "30". -EINVAL */
int config_set(Config *config, const char *key, const char *value, Error *err);
/* Writes the table of settings with their defaults, as for an example file. */
void config_print_settings(void (*print)(const char *key, const char *value, const char *help));
