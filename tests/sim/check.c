/* What must hold after every event. */
#include <stdio.h>
#include <string.h>

#include "job/job_internal.h"
#include "memory.h"
#include "sim.h"

/* Without a step, a round or a change of state for so long, a job that could go on hangs: a silent
 * trainer is found out after the lease, and its place is kept for the rejoin time; a managed one is
 * started again after 10 s at most; the end waits for an evaluation, up to 60 s of silence. */
static uint64_t patience_us(void)
{
    return world.limits.lease_us * 2 + world.rejoin_us + 150 * SIM_SECOND;
}

static bool somebody_works(const Job *job)
{
    return members_busy(job) || job->exclusive || job->stepping;
}

/* ---- one job -----------------------------------------------------------------------------------
 */

static void must_not_go_back(const SimJob *sim, const char *what, uint64_t before, uint64_t now)
{
    if (now < before)
        sim_fail("job %llu: its %s goes back from %llu to %llu", (unsigned long long)sim->id, what,
                 (unsigned long long)before, (unsigned long long)now);
}

static void check_position(const SimJob *sim, Job *job)
{
    must_not_go_back(sim, "round", sim->round, job->round);
    must_not_go_back(sim, "samples", sim->seen_samples, job->samples);
    for (uint32_t rank = 0; rank < sim->spec.max_trainers; rank++)
        must_not_go_back(sim, "rank's step", sim->rank_step[rank], job->members[rank].step);
}

/* It goes on where the checkpoint was cut, or begins at its seed. */
static void check_loaded(const SimJob *sim, const Job *job)
{
    const DiskJob *disk = disk_job(&world.disk, sim->id);
    uint64_t round = 0, samples = 0;
    for (size_t i = 0; disk && i < disk->n_checkpoints; i++)
        if (disk->checkpoints[i].record.id == job->latest_checkpoint) {
            round = disk->checkpoints[i].record.round;
            samples = disk->checkpoints[i].samples;
        }
    bool as_cut = job->policy->pace == PACE_FREE ? job->round > round : job->round == round + 1;
    if (!as_cut || job->samples != samples)
        sim_fail("job %llu goes on with round %llu and %llu samples; checkpoint %llu was cut in "
                 "round %llu with %llu samples",
                 (unsigned long long)sim->id, (unsigned long long)job->round,
                 (unsigned long long)job->samples, (unsigned long long)job->latest_checkpoint,
                 (unsigned long long)round + 1, (unsigned long long)samples);
}

/* A rank that a quorum did not wait for is in an earlier round than the job; after a restart, or
 * where the policy lets it go on by itself, it has the settings of the job's round. */
static bool is_late(const Job *job, const Member *member)
{
    return member->round.number < job->round;
}

/* When a rank goes into a round its settings are those that the store has for it. */
static void check_settings(SimJob *sim, const Job *job)
{
    char differs[200];
    for (uint32_t rank = 0; rank < sim->spec.max_trainers; rank++) {
        const Member *member = &job->members[rank];
        if (member->place != MEMBER_LIVE || is_late(job, member) || sim->settings_unsure ||
            (sim->seen_live && sim->rank_round[rank] == member->round.number))
            continue;
        sim->rank_round[rank] = member->round.number;
        if (!settings_alike(&member->settings, settings_wanted(sim, rank, member->round.number),
                            differs, sizeof differs))
            sim_fail("job %llu rank %u goes into round %llu with %s", (unsigned long long)sim->id,
                     rank, (unsigned long long)member->round.number, differs);
    }
}

static void check_live(SimJob *sim, Job *job)
{
    if (sim->seen_live)
        check_position(sim, job);
    else
        check_loaded(sim, job);
    if (!somebody_works(job) && job->samples != sim->samples)
        sim_fail("job %llu has counted %llu samples; its replicas were trained on %llu",
                 (unsigned long long)sim->id, (unsigned long long)job->samples,
                 (unsigned long long)sim->samples);
    check_settings(sim, job);
    if (sim->round != job->round || sim->seen_samples != job->samples)
        sim->changed_us = sim_now();
    sim->seen_live = true;
    sim->round = job->round;
    sim->seen_samples = job->samples;
    for (uint32_t rank = 0; rank < sim->spec.max_trainers; rank++)
        sim->rank_step[rank] = job->members[rank].step;
}

static void check_completed(const SimJob *sim)
{
    uint64_t done[SIM_WORDS] = {0};
    DiskJob *disk = disk_job(&world.disk, sim->id);
    const DiskCheckpoint *latest =
        disk->n_checkpoints ? &disk->checkpoints[disk->n_checkpoints - 1] : NULL;
    if (disk->state_unsure) /* it was restored, and the disk did not take that in */
        return;
    if (!latest)
        sim_fail("job %llu is COMPLETED without a checkpoint", (unsigned long long)sim->id);
    for (size_t i = 0; i < latest->n; i++)
        for (unsigned k = 0; k < SIM_WORDS && strstr(latest->parts[i].name, "/counters") &&
                             strncmp(latest->parts[i].name, "rank", 4) == 0;
             k++)
            done[k] |= ((const uint64_t *)latest->parts[i].data)[k];
    if (sim->spec.epochs && !*sim->spec.stop_when && !ledger_complete(sim, done))
        sim_fail("job %llu is COMPLETED and not all of its batches were used",
                 (unsigned long long)sim->id);
}

static void check_failed(const SimJob *sim, const Job *job)
{
    if (!sim->poisoned && !sim->unreadable && !sim->unlaunched)
        sim_fail("job %llu is FAILED, and nothing that was done to it explains it: %s",
                 (unsigned long long)sim->id, job->reason);
}

static void on_state(SimJob *sim, const Job *job)
{
    sim->changed_us = sim_now();
    sim->state = job->state;
    if (job->state == JOB_COMPLETED)
        check_completed(sim);
    if (job->state == JOB_FAILED)
        check_failed(sim, job);
}

static void check_job(SimJob *sim)
{
    Job *job = sim_daemon_job(sim);
    if (!job)
        return;
    if (job->state != sim->state)
        on_state(sim, job);
    if (job->phase == PHASE_LIVE)
        check_live(sim, job);
    else
        sim->seen_live = false;
    if (job->phase == PHASE_IDLE && sim->batches)
        sim_fail("job %llu is not in memory; replicas of it are", (unsigned long long)sim->id);
}

void check_everything(void)
{
    for (unsigned i = 0; i < world.n_jobs; i++)
        if (world.jobs[i].id)
            check_job(&world.jobs[i]);
}

void check_daemon_gone(void)
{
    char open[600];
    if (questions_open(open, sizeof open))
        sim_fail("the daemon has ended and never answered: %s", open);
    if (memory_blocks()) {
        memory_describe(open, sizeof open);
        sim_fail("the daemon has ended and left %zu blocks of memory: %s", memory_blocks(), open);
    }
}

/* ---- the meeting -------------------------------------------------------------------------------
 */

bool check_ranks_meet(uint64_t id)
{
    const Job *job = world.manager ? manager_find(world.manager, id) : NULL;
    return job && job->policy && job->policy->pace != PACE_FREE && !job->settings.quorum;
}

/* Batches that are not used yet and not dealt out ahead to some rank. */
static bool much_is_left(const SimJob *sim)
{
    uint64_t ahead = (uint64_t)sim->spec.max_trainers * (world.limits.window + 2);
    return sim->spec.epochs && sim->batches + ahead < ledger_total(sim);
}

/* The rows of a round, as it ends: no rank has done more than K steps in it (but for what it held),
 * and where all meet one has done K, unless the data is nearly dealt out. */
void check_meeting(const RoundRecord *rows, size_t n)
{
    SimJob *sim = sim_job_by_id(rows[0].job);
    const DiskJob *disk = disk_job(&world.disk, rows[0].job);
    bool full = false;
    if (sim->settings_unsure)
        return;
    for (size_t i = 0; i < n; i++) {
        const DiskRound *before = disk_last_row(disk, rows[i].rank);
        uint64_t interval = settings_wanted(sim, rows[i].rank, rows[i].round)->interval;
        uint64_t batches = (rows[i].samples + sim->spec.batch - 1) / sim->spec.batch;
        if (batches > interval + SIM_MAX_HELD)
            sim_fail("job %llu: rank %u has done at least %llu steps in round %llu, whose K is "
                     "%llu",
                     (unsigned long long)sim->id, rows[i].rank, (unsigned long long)batches,
                     (unsigned long long)rows[i].round, (unsigned long long)interval);
        full |= rows[i].step - (before ? before->step : 0) >= interval;
    }
    if (!full && check_ranks_meet(sim->id) && much_is_left(sim))
        sim_fail(
            "job %llu: round %llu ends before any rank has done its K steps, and there is data",
            (unsigned long long)sim->id, (unsigned long long)rows[0].round);
}

/* The learning rate of a step is that of its round. */
void check_rate(SimJob *sim, int rank, float lr)
{
    const Job *job = sim_daemon_job(sim);
    const Member *member = &job->members[rank];
    const JobSettings *wanted = settings_wanted(sim, (uint32_t)rank, member->round.number);
    Schedule schedule;
    if (is_late(job, member) || sim->settings_unsure)
        return;
    (void)schedule_parse(wanted->schedule, &schedule, NULL);
    float should = schedule_lr(&schedule, wanted->lr, member->step);
    if (lr != should)
        sim_fail("job %llu rank %d: step %llu, of round %llu, has lr %g; the settings say %g",
                 (unsigned long long)sim->id, rank, (unsigned long long)member->step,
                 (unsigned long long)member->round.number, (double)lr, (double)should);
}

/* ---- progress ----------------------------------------------------------------------------------
 */

static void describe(const SimJob *sim, Job *job, char *text, size_t size)
{
    int used =
        snprintf(text, size, "%s, %s, phase %d, round %llu, tasks %u%s%s%s",
                 job_state_name(job->state), job->settings.policy, (int)job->phase,
                 (unsigned long long)job->round, job->tasks, job->exclusive ? ", exclusive" : "",
                 job->finishing ? ", finishing" : "", job->checkpoint.writing ? ", writing" : "");
    for (uint32_t rank = 0; job->members && rank < sim->spec.max_trainers; rank++) {
        MemberStatus status;
        job_member_status(job, rank, &status);
        if ((size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, "; rank %u %s at step %llu%s%s",
                             rank, status.state, (unsigned long long)status.step,
                             *status.waiting_for ? " waits for " : "", status.waiting_for);
    }
}

static bool is_excused(const SimJob *sim, const Job *job)
{
    if (job_state_is_final(job->state) || job->state == JOB_PAUSED || job->state == JOB_QUEUED)
        return true;
    if (world.disk.full || sim_now() < world.disk.healthy_since + SIM_SECOND)
        return true;
    return job->state == JOB_RUNNING && trainers_joined(sim) == 0 && !world_is_calm();
}

void check_progress(void)
{
    for (unsigned i = 0; i < world.n_jobs; i++) {
        SimJob *sim = &world.jobs[i];
        Job *job = sim->id ? sim_daemon_job(sim) : NULL;
        char text[900];
        if (!job || is_excused(sim, job)) {
            sim->changed_us = sim_now();
            continue;
        }
        if (sim_now() - sim->changed_us < patience_us())
            continue;
        describe(sim, job, text, sizeof text);
        sim_fail("job %llu has not moved for %.0f s: %s", (unsigned long long)sim->id,
                 (double)(sim_now() - sim->changed_us) / 1e6, text);
    }
}

bool jobs_all_ended(void)
{
    for (unsigned i = 0; i < world.n_jobs; i++) {
        const SimJob *sim = &world.jobs[i];
        const Job *job = sim->dead ? NULL : sim_daemon_job(sim);
        if (!sim->dead && (!job || !job_state_is_final(job->state) || job->phase != PHASE_IDLE))
            return false;
    }
    return true;
}
