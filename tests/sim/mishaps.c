/* What goes wrong around the daemon: trainers, disk, the daemon itself. */
#include "sim.h"

static void kill_daemon(void)
{
    if (sim_chance(300) && world.manager)
        daemon_kill();
}

static void terminate_daemon(void)
{
    if (sim_chance(200) && world.manager)
        daemon_terminate();
}

static void on_disk_well(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    world.disk.full = false;
    world.disk.healthy_since = sim_now();
}

static void fill_disk(void)
{
    world.disk.full = true;
    event_in(sim_between(10, 8000) * SIM_MS, "disk has room", on_disk_well, NULL, 0);
}

static void slow_disk(void)
{
    world.disk.slow_until = sim_now() + sim_between(100, 6000) * SIM_MS;
    world.disk.healthy_since = world.disk.slow_until;
}

static void break_requests(void)
{
    if (sim_chance(300))
        world.disk.fail_next += (unsigned)sim_between(1, 2);
}

static void tear_checkpoint(void)
{
    if (!world.disk.n || !sim_chance(300))
        return;
    DiskJob *job = &world.disk.jobs[sim_between(0, world.disk.n - 1)];
    if (job->n_checkpoints) {
        SimJob *sim = sim_job_by_id(job->record.id);
        job->checkpoints[sim_between(0, job->n_checkpoints - 1)].torn = true;
        if (sim) /* an explicit restore may find it so */
            sim->unreadable = true;
    }
}

static const struct Trouble {
    const char *name;
    void (*happen)(void);
} troubles[] = {
    {"trainer", trainers_mishap},    {"trainer", trainers_mishap},
    {"trainer", trainers_mishap},    {"trainer", trainers_mishap},
    {"trainer", trainers_mishap},    {"trainer", trainers_mishap},
    {"kill -9", kill_daemon},        {"SIGTERM", terminate_daemon},
    {"disk full", fill_disk},        {"disk slow", slow_disk},
    {"disk errors", break_requests}, {"torn checkpoint", tear_checkpoint},
    {"another job", sim_submit},
};

static void on_trouble(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    if (world_is_calm())
        return;
    event_in(sim_between(0, 2 * SIM_SECOND * 1000 / (world.mishaps + 1)), "trouble", on_trouble,
             NULL, 0);
    const struct Trouble *trouble =
        &troubles[sim_between(0, sizeof troubles / sizeof *troubles - 1)];
    trace("  %s", trouble->name);
    trouble->happen();
}

void mishaps_begin(void)
{
    event_in(sim_between(0, 5 * SIM_SECOND), "trouble", on_trouble, NULL, 0);
}
