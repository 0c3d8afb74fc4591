#include "daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/descriptors.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/services.h"
#include "service/child_launcher.h"
#include "service/notify.h"
#include "service/watchdog.h"

enum { MAX_LANES = 64 };

#define STATUS_INTERVAL_US (2 * USEC_PER_SEC)
#define STOP_EXTENSION_US  (30 * USEC_PER_SEC) /* asked for at each piece of work while stopping */

typedef struct Daemon {
    const Config *config;
    Error *err;
    int r;
    Loop *loop;
    Store *store;
    Lane *lanes[MAX_LANES];
    unsigned n_lanes;
    ChildLauncher *launcher;
    JobManager *jobs;
    SessionTable *sessions;
    Services services;
    Health *health;
    Reflection *reflection;
    Server *server;
    Watchdog *watchdog;
    Timer status_timer;
    char command[CONFIG_PATH_MAX];
    bool stopping;
} Daemon;

/* ---- what others ask of it ------------------------------------------------------------------- */

static const char *listener(void *data, unsigned i)
{
    return server_listener(((Daemon *)data)->server, i);
}

static unsigned connections(void *data)
{
    return server_connections(((Daemon *)data)->server);
}

static uint64_t silence_us(void *data, uint64_t connection)
{
    return server_silence_us(((Daemon *)data)->server, connection);
}

static void close_connection(void *data, uint64_t connection)
{
    server_close_connection(((Daemon *)data)->server, connection);
}

static void on_disconnect(uint64_t connection, void *data)
{
    session_table_disconnected(((Daemon *)data)->sessions, connection);
}

/* ---- status for systemd ---------------------------------------------------------------------- */

static void show_status(Daemon *daemon)
{
    unsigned running = manager_running(daemon->jobs), trainers = session_count(daemon->sessions);
    notify_status("%u job%s in memory of %u stored, %u trainer%s connected", running,
                  running == 1 ? "" : "s", manager_count(daemon->jobs), trainers,
                  trainers == 1 ? "" : "s");
}

static void on_status_timer(void *data)
{
    Daemon *daemon = data;
    if (daemon->stopping)
        return;
    show_status(daemon);
    timer_arm(loop_timers(daemon->loop), &daemon->status_timer, STATUS_INTERVAL_US);
}

/* ---- signals --------------------------------------------------------------------------------- */

static void on_stop_progress(void *data, const char *what)
{
    (void)data;
    notify_extend(STOP_EXTENSION_US);
    notify_status("Stopping: %s", what);
    log_info("stopping: %s", what);
}

static void on_stopped(void *data, int r, const Error *err)
{
    Daemon *daemon = data;
    (void)r;
    (void)err;
    loop_stop(daemon->loop);
}

static void on_stop_signal(int signal, void *data)
{
    Daemon *daemon = data;
    if (daemon->stopping)
        return;
    daemon->stopping = true;
    log_notice("%s: saving and stopping", signal == SIGINT ? "SIGINT" : "SIGTERM");
    notify_stopping();
    notify_extend(STOP_EXTENSION_US);
    (void)health_set(daemon->health, "", false);
    server_drain(daemon->server);
    manager_stop(daemon->jobs, on_stop_progress, on_stopped, daemon);
}

static void on_child_signal(int signal, void *data)
{
    (void)signal;
    child_launcher_reap(((Daemon *)data)->launcher);
}

/* ---- starting -------------------------------------------------------------------------------- */

static int make_directory(const char *path, mode_t mode, const char *setting, Error *err)
{
    if (mkdir(path, mode) == 0 || errno == EEXIST)
        return 0;
    return error_set(err, -errno, "%s: %s; make it, or name another with %s", path, strerror(errno),
                     setting);
}

static unsigned lane_count(const Config *config)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = config->lanes ? config->lanes : (unsigned)(cores > 0 ? cores : 1);
    return n > MAX_LANES ? MAX_LANES : n;
}

static int make_lanes(Daemon *daemon)
{
    unsigned n = lane_count(daemon->config);
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%u", i);
        int r = lane_new(name, (int)i, loop_mailbox(daemon->loop), &daemon->lanes[i]);
        if (r < 0)
            return error_set(daemon->err, r, "cannot start lane %s: %s", name, strerror(-r));
        daemon->n_lanes++;
    }
    return 0;
}

/* The dpsctl that was built or installed with this dpsd. */
static void find_command(Daemon *daemon)
{
    char self[CONFIG_PATH_MAX];
    snprintf(daemon->command, sizeof daemon->command, "%s", daemon->config->trainer_command);
    if (*daemon->command)
        return;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(daemon->command, sizeof daemon->command, "%.500s/dpsctl", self);
    if (access(daemon->command, X_OK) != 0)
        snprintf(daemon->command, sizeof daemon->command, "%s", DPS_BINDIR "/dpsctl");
}

static int listen_everywhere(Daemon *daemon)
{
    const Config *config = daemon->config;
    int first, n = notify_listen_fds(&first), r = 0;
    for (int i = 0; i < n && r == 0; i++)
        r = server_listen_fd(daemon->server, first + i, daemon->err);
    for (unsigned i = 0; i < config->n_listen && r == 0; i++)
        r = server_listen(daemon->server, config->listen[i], daemon->err);
    if (r == 0 && n <= 0 && config->n_listen == 0) {
        char address[CONFIG_PATH_MAX + 32];
        snprintf(address, sizeof address, "unix:%s/dpsd.sock", config->runtime_dir);
        r = server_listen(daemon->server, address, daemon->err);
    }
    return r;
}

/* Trainers on this machine take the Unix socket, where there is one. */
static int choose_address(Daemon *daemon)
{
    const char *chosen = server_listener(daemon->server, 0), *other;
    for (unsigned i = 0; (other = server_listener(daemon->server, i)); i++)
        if (strncmp(other, "unix:", 5) == 0) {
            chosen = other;
            break;
        }
    return child_launcher_set_address(daemon->launcher, chosen ? chosen : "");
}

static int make_jobs(Daemon *daemon)
{
    const Config *config = daemon->config;
    JobManagerSpec spec = {
        .store = daemon->store,
        .timers = loop_timers(daemon->loop),
        .loop = loop_mailbox(daemon->loop),
        .lanes = daemon->lanes,
        .n_lanes = daemon->n_lanes,
        .launcher = child_launcher_interface(daemon->launcher),
        .defaults = config->checkpoint,
        .max_running = config->jobs_running,
        .max_jobs = config->jobs_stored,
        .rejoin_us = config->trainer_rejoin_s * USEC_PER_SEC,
        .trainer_restarts = config->trainer_restarts,
    };
    return manager_new(&spec, &daemon->jobs);
}

static int make_sessions(Daemon *daemon)
{
    SessionLimits limits = daemon->config->sessions;
    SessionTransport transport = {
        .silence_us = silence_us, .close = close_connection, .data = daemon};
    limits.lease_us = daemon->config->trainer_lease_s * USEC_PER_SEC;
    return session_table_new(daemon->jobs, loop_timers(daemon->loop), &limits, &transport,
                             &daemon->sessions);
}

static void fill_services(Daemon *daemon)
{
    const Backend *backend = NULL;
    (void)backend_find("auto", &backend, NULL);
    daemon->services = (Services){
        .jobs = daemon->jobs,
        .sessions = daemon->sessions,
        .store = daemon->store,
        .timers = loop_timers(daemon->loop),
        .facts = {.version = DPS_VERSION,
                  .state_dir = daemon->config->state_dir,
                  .backend = backend ? backend->name : "none",
                  .note = "no GPU backend in this version: computing on the CPU",
                  .listener = listener,
                  .connections = connections,
                  .data = daemon,
                  .started_us = clock_monotonic_us()},
    };
}

static int make_server(Daemon *daemon)
{
    static MethodTable tables[4];
    ServerLimits limits = daemon->config->server;
    ServerEvents events = {.on_disconnect = on_disconnect, .data = daemon};
    uint64_t lease_us = daemon->config->trainer_lease_s * USEC_PER_SEC;
    if (limits.keepalive_us >
        lease_us / 3) /* a silent peer is asked thrice before it counts as dead */
        limits.keepalive_us = lease_us / 3;
    int r = health_new(&daemon->health);
    if (r == 0)
        r = reflection_new(dps_descriptors, dps_descriptors_size, &daemon->reflection);
    if (r < 0)
        return r;
    tables[0] = control_methods(&daemon->services);
    tables[1] = training_methods(&daemon->services);
    tables[2] = health_methods(daemon->health);
    tables[3] = reflection_methods(daemon->reflection);
    return server_new(daemon->loop, &limits, tables, 4, &events, &daemon->server);
}

static int connect_signals(Daemon *daemon)
{
    int r = loop_on_signal(daemon->loop, SIGTERM, on_stop_signal, daemon);
    if (r == 0)
        r = loop_on_signal(daemon->loop, SIGINT, on_stop_signal, daemon);
    if (r == 0)
        r = loop_on_signal(daemon->loop, SIGCHLD, on_child_signal, daemon);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    return r;
}

static void on_loaded(void *data, int r, const Error *err)
{
    Daemon *daemon = data;
    if (daemon->stopping)
        return; /* told to stop before it had begun: the server may be gone */
    if (r < 0) {
        daemon->r = error_set(daemon->err, r, "cannot read the stored jobs: %s", err->message);
        loop_stop(daemon->loop);
        return;
    }
    (void)health_set(daemon->health, "", true);
    (void)health_set(daemon->health, "dps.v1.Control", true);
    (void)health_set(daemon->health, "dps.v1.Training", true);
    log_notice("dpsd %s is ready: %u jobs stored, %u CPU lanes, backend %s; %s", DPS_VERSION,
               manager_count(daemon->jobs), daemon->n_lanes, daemon->services.facts.backend,
               daemon->services.facts.note);
    for (unsigned i = 0; server_listener(daemon->server, i); i++)
        log_notice("listening on %s", server_listener(daemon->server, i));
    show_status(daemon);
    notify_ready();
    on_status_timer(daemon);
}

static int start_parts(Daemon *daemon)
{
    const Config *config = daemon->config;
    int r = make_directory(config->state_dir, 0750, "--state-dir", daemon->err);
    if (r == 0)
        r = make_directory(config->runtime_dir, 0755, "--runtime-dir", daemon->err);
    if (r == 0)
        r = store_open(config->state_dir, loop_mailbox(daemon->loop), &daemon->store, daemon->err);
    if (r == 0)
        r = make_lanes(daemon);
    return r;
}

static int start(Daemon *daemon)
{
    int r = loop_new(&daemon->loop);
    if (r == 0)
        r = connect_signals(daemon);
    if (r == 0)
        r = start_parts(daemon);
    if (r == 0) {
        find_command(daemon);
        r = child_launcher_new(loop_timers(daemon->loop), daemon->command, &daemon->launcher);
    }
    if (r == 0)
        r = make_jobs(daemon);
    if (r == 0)
        r = make_sessions(daemon);
    if (r == 0) {
        fill_services(daemon);
        r = make_server(daemon);
    }
    if (r == 0)
        r = listen_everywhere(daemon);
    if (r == 0)
        r = choose_address(daemon);
    if (r == 0)
        r = watchdog_new(loop_timers(daemon->loop), daemon->store, &daemon->watchdog);
    return r;
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void run_finished_tasks(Daemon *daemon)
{
    Task *task;
    while ((task = mailbox_take(loop_mailbox(daemon->loop))))
        task->done(task);
}

/* Each part goes before those that it uses; lanes and store finish what they were asked before they
 * go. */
static void stop_parts(Daemon *daemon)
{
    if (daemon->loop)
        timer_cancel(loop_timers(daemon->loop), &daemon->status_timer);
    server_free(daemon->server);
    session_table_free(daemon->sessions);
    watchdog_free(daemon->watchdog);
    child_launcher_free(daemon->launcher);
    for (unsigned i = 0; i < daemon->n_lanes; i++)
        lane_free(daemon->lanes[i]);
    if (daemon->loop)
        run_finished_tasks(daemon);
    store_close(daemon->store);
    if (daemon->loop)
        run_finished_tasks(daemon);
    manager_free(daemon->jobs);
    reflection_free(daemon->reflection);
    health_free(daemon->health);
    loop_free(daemon->loop);
}

int daemon_run(const Config *config, Error *err)
{
    Daemon daemon = {.config = config, .err = err};
    daemon.status_timer = (Timer){.fire = on_status_timer, .data = &daemon};
    int r = start(&daemon);
    if (r == 0) {
        manager_load(daemon.jobs, on_loaded, &daemon);
        r = loop_run(daemon.loop);
    }
    if (r == 0)
        r = daemon.r;
    if (r < 0 && !err->code)
        error_set(err, r, "cannot start: %s", strerror(-r));
    stop_parts(&daemon);
    if (r == 0)
        log_notice("stopped");
    return r;
}
