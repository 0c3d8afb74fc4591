/* In place of service/child_launcher.c: processes that the daemon starts, trainers and evaluators.
 */
#include <stdio.h>
#include <string.h>

#include "trainer.h"

struct LaunchedTrainer {
    bool used;
    Trainer *trainer; /* or else */
    Evaluating *evaluating;
    void (*on_exit)(void *data, bool clean, const char *how);
    void *data;
    uint64_t number; /* so that an event for an earlier one is known */
};

enum { LAUNCHED = SIM_MAX_JOBS * SIM_MAX_RANKS + 8 };

static LaunchedTrainer launched[LAUNCHED];
static uint64_t last_number;

void launcher_begin(void)
{
    launcher_forget();
    last_number = 0;
}

void launcher_forget(void)
{
    memset(launched, 0, sizeof launched);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void on_exited(void *data, uint64_t number)
{
    LaunchedTrainer *of = data;
    if (!of->used || of->number != number / 2)
        return;
    LaunchedTrainer gone = *of;
    *of = (LaunchedTrainer){0};
    gone.on_exit(gone.data, number & 1, number & 1 ? "exit status 0" : "killed by signal 9");
}

static void ends(LaunchedTrainer *of, bool clean)
{
    of->trainer = NULL;
    of->evaluating = NULL;
    event_of_daemon(sim_between(0, 50) * SIM_MS, "child is reaped", on_exited, of,
                    of->number * 2 + clean);
}

void launcher_ended(Trainer *trainer, bool clean)
{
    for (size_t i = 0; i < LAUNCHED; i++)
        if (launched[i].used && launched[i].trainer == trainer)
            ends(&launched[i], clean);
}

void launcher_evaluated(const Evaluating *evaluating, bool clean)
{
    for (size_t i = 0; i < LAUNCHED; i++)
        if (launched[i].used && launched[i].evaluating == evaluating)
            ends(&launched[i], clean);
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static LaunchedTrainer *free_place(void)
{
    for (size_t i = 0; i < LAUNCHED; i++)
        if (!launched[i].used)
            return &launched[i];
    sim_fail("more processes are started than there are ranks");
}

static int start(void *self, const LaunchSpec *spec,
                 void (*on_exit)(void *data, bool clean, const char *how), void *data,
                 LaunchedTrainer **ret, Error *err)
{
    SimJob *job = sim_job_by_id(spec->job);
    LaunchedTrainer *of = free_place();
    (void)self;
    if (!world_is_calm() && sim_chance(50)) {
        job->unlaunched = true;
        return error_set(err, -EAGAIN, "cannot fork");
    }
    *of =
        (LaunchedTrainer){.used = true, .on_exit = on_exit, .data = data, .number = ++last_number};
    if (spec->kind == LAUNCH_TRAINER) {
        of->trainer = trainer_launch(job, spec->rank, spec->token);
    } else {
        of->evaluating = evaluation_by_process(spec->job, spec->checkpoint, spec->token);
        if (!of->evaluating)
            ends(of, false);
    }
    *ret = of;
    return 0;
}

static void stop(void *self, LaunchedTrainer *of)
{
    (void)self;
    if (!of->used)
        sim_fail("a process is stopped that has ended");
    Trainer *trainer = of->trainer;
    Evaluating *evaluating = of->evaluating;
    *of = (LaunchedTrainer){0};
    if (trainer && trainer->alive)
        trainer_die(trainer);
    if (evaluating)
        evaluation_kill(evaluating);
}

Launcher launcher_interface(void)
{
    return (Launcher){.start = start, .stop = stop};
}
