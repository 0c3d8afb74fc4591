#include "service/child_launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define STOP_PATIENCE_US (5 * USEC_PER_SEC) /* from SIGTERM to SIGKILL */

struct LaunchedTrainer {
    ChildLauncher *launcher;
    pid_t pid;
    void (*on_exit)(void *data, bool clean, const char *how);
    void *data;
    bool stopping;
    Timer kill;
    LaunchedTrainer *next;
};

struct ChildLauncher {
    Timers *timers;
    char *command, *address;
    LaunchedTrainer *first;
};

extern char **environ;

int child_launcher_new(Timers *timers, const char *command, ChildLauncher **ret)
{
    ChildLauncher *launcher = calloc(1, sizeof *launcher);
    if (!launcher)
        return -ENOMEM;
    launcher->timers = timers;
    launcher->command = strdup(command);
    if (!launcher->command) {
        free(launcher);
        return -ENOMEM;
    }
    *ret = launcher;
    return 0;
}

int child_launcher_set_address(ChildLauncher *launcher, const char *address)
{
    char *copy = strdup(address);
    if (!copy)
        return -ENOMEM;
    free(launcher->address);
    launcher->address = copy;
    return 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* The parent's environment and the token, which does not belong on a command line that all can
 * read. */
static char **environment_with(char *token_entry)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **copy = calloc(n + 2, sizeof *copy);
    if (!copy)
        return NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) /* the trainer is no service of its own */
        if (strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0 &&
            strncmp(environ[i], "WATCHDOG_", 9) != 0)
            copy[kept++] = environ[i];
    copy[kept] = token_entry;
    return copy;
}

static int spawn(const ChildLauncher *launcher, char *const argv[], char *token_entry, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char **environment = environment_with(token_entry);
    if (!environment)
        return -ENOMEM;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int r = -posix_spawn(ret, launcher->command, &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return r;
}

enum { ARGUMENTS_MAX = 20 };

/* The numbers on a command line, as text. */
typedef struct Numbers {
    char job[24], rank[12], accumulate[12], checkpoint[24], parent[12];
} Numbers;

static void trainer_arguments(const ChildLauncher *launcher, const LaunchSpec *spec,
                              Numbers *numbers, char *argv[ARGUMENTS_MAX])
{
    char *const arguments[] = {
        launcher->command, "--address",        launcher->address, "trainer",
        "--job",           numbers->job,       "--rank",          numbers->rank,
        "--data",          (char *)spec->data, "--accumulate",    numbers->accumulate,
        "--managed",       "--parent",         numbers->parent,   NULL};
    memcpy(argv, arguments, sizeof arguments);
}

static void evaluator_arguments(const ChildLauncher *launcher, const LaunchSpec *spec,
                                Numbers *numbers, char *argv[ARGUMENTS_MAX])
{
    char *const arguments[] = {
        launcher->command,  "--address",    launcher->address,   "eval",     "--data",
        (char *)spec->data, "--checkpoint", numbers->checkpoint, "--record", "--parent",
        numbers->parent,    "--",           numbers->job,        NULL};
    memcpy(argv, arguments, sizeof arguments);
}

typedef struct Kind {
    const char *token_name; /* in the environment */
    void (*arguments)(const ChildLauncher *launcher, const LaunchSpec *spec, Numbers *numbers,
                      char *argv[ARGUMENTS_MAX]);
} Kind;

static const Kind kinds[] = {
    [LAUNCH_TRAINER] = {"DPS_TRAINER_TOKEN", trainer_arguments},
    [LAUNCH_EVALUATOR] = {"DPS_EVALUATION_TOKEN", evaluator_arguments},
};

static int start(void *self, const LaunchSpec *spec,
                 void (*on_exit)(void *data, bool clean, const char *how), void *data,
                 LaunchedTrainer **ret, Error *err)
{
    ChildLauncher *launcher = self;
    const Kind *kind = &kinds[spec->kind];
    Numbers numbers;
    char *argv[ARGUMENTS_MAX], token[80];
    LaunchedTrainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer)
        return error_set(err, -ENOMEM, "out of memory");
    snprintf(numbers.job, sizeof numbers.job, "%" PRIu64, spec->job);
    snprintf(numbers.rank, sizeof numbers.rank, "%u", spec->rank);
    snprintf(numbers.accumulate, sizeof numbers.accumulate, "%u", spec->accumulate);
    snprintf(numbers.checkpoint, sizeof numbers.checkpoint, "%" PRIu64, spec->checkpoint);
    snprintf(numbers.parent, sizeof numbers.parent, "%d", (int)getpid());
    snprintf(token, sizeof token, "%s=%s", kind->token_name, spec->token);
    kind->arguments(launcher, spec, &numbers, argv);
    int r = spawn(launcher, argv, token, &trainer->pid);
    if (r < 0) {
        free(trainer);
        return error_set(err, r, "%s: %s", launcher->command, strerror(-r));
    }
    trainer->launcher = launcher;
    trainer->on_exit = on_exit;
    trainer->data = data;
    trainer->next = launcher->first;
    launcher->first = trainer;
    *ret = trainer;
    return 0;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void on_patience_over(void *data)
{
    const LaunchedTrainer *trainer = data;
    (void)kill(trainer->pid, SIGKILL);
}

static void stop(void *self, LaunchedTrainer *trainer)
{
    const ChildLauncher *launcher = self;
    trainer->stopping = true;
    trainer->on_exit = NULL;
    trainer->kill = (Timer){.fire = on_patience_over, .data = trainer};
    (void)kill(trainer->pid, SIGTERM);
    timer_arm(launcher->timers, &trainer->kill, STOP_PATIENCE_US);
}

Launcher child_launcher_interface(ChildLauncher *launcher)
{
    return (Launcher){.start = start, .stop = stop, .self = launcher};
}

static LaunchedTrainer *take_ended(ChildLauncher *launcher, int *status)
{
    for (LaunchedTrainer **link = &launcher->first; *link; link = &(*link)->next) {
        LaunchedTrainer *trainer = *link;
        if (waitpid(trainer->pid, status, WNOHANG) != trainer->pid)
            continue;
        *link = trainer->next;
        timer_cancel(launcher->timers, &trainer->kill);
        return trainer;
    }
    return NULL;
}

static void tell(const LaunchedTrainer *trainer, int status)
{
    char how[64];
    if (!trainer->on_exit)
        return;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(status));
    trainer->on_exit(trainer->data, WIFEXITED(status) && WEXITSTATUS(status) == 0, how);
}

void child_launcher_reap(ChildLauncher *launcher)
{
    int status;
    LaunchedTrainer *trainer;
    while ((trainer = take_ended(launcher, &status))) {
        tell(trainer, status);
        free(trainer);
    }
}

ChildLauncher *child_launcher_free(ChildLauncher *launcher)
{
    if (!launcher)
        return NULL;
    for (LaunchedTrainer *trainer = launcher->first; trainer; trainer = trainer->next) {
        trainer->on_exit = NULL;
        (void)kill(trainer->pid, SIGTERM);
    }
    uint64_t begun = clock_monotonic_us();
    while (launcher->first) {
        child_launcher_reap(launcher);
        if (launcher->first && clock_monotonic_us() - begun > STOP_PATIENCE_US)
            (void)kill(launcher->first->pid, SIGKILL);
        if (launcher->first)
            usleep(5000);
    }
    free(launcher->command);
    free(launcher->address);
    free(launcher);
    return NULL;
}
