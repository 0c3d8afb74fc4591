/* From the store to live replicas: the checkpoint and its position, the settings that came after
 * it, the metrics rewound to it, then replicas on lanes. A job without a checkpoint begins at its
 * seed. */
#include "job/job_internal.h"

#include <stdio.h>
#include <string.h>

int job_prepare(Job *job, Error *err)
{
    if (job->planned)
        return 0;
    JobSpec spec = job->spec;
    int r = job_spec_resolve(&spec, &manager_spec(job->manager)->defaults, &job->plan, err);
    if (r == 0)
        r = policy_find(job->settings.policy, &job->policy, err);
    job->planned = r == 0;
    return r;
}

void job_load_answer(Job *job, int r, const char *sentence)
{
    JobDone done = job->load_done;
    if (!done)
        return;
    Error err = {.code = r};
    snprintf(err.message, sizeof err.message, "%s", sentence);
    job->load_done = NULL;
    done(job->load_data, r, &err);
}

static int new_dealer(Job *job)
{
    DealerSpec spec = {.samples = job->spec.samples,
                       .batch = job->spec.batch,
                       .seed = job->spec.seed,
                       .epochs = job->spec.epochs,
                       .steps = job->spec.steps,
                       .ranks = job->spec.max_trainers};
    return dealer_new(&spec, &job->dealer);
}

static int prepare(Job *job, Error *err)
{
    unsigned n_lanes;
    manager_lanes(job->manager, &n_lanes);
    int r = job_prepare(job, err);
    if (r < 0)
        return r;
    job->rate_mark_us = 0;
    job->rate = 0;
    job->engines = calloc(n_lanes, sizeof(Engine *));
    if (!job->engines || members_new(job) < 0 || new_dealer(job) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static void give_back(Job *job)
{
    members_free(job);
    job->common_cut = snapshot_free(job->common_cut);
    job->dealer = dealer_free(job->dealer);
    free(job->engines);
    job->engines = NULL;
    job->phase = PHASE_IDLE;
}

static void loading_failed(Job *job, const char *what, const Error *err)
{
    give_back(job);
    if (!job_state_is_final(job->state)) {
        char reason[JOB_TEXT_MAX];
        snprintf(reason, sizeof reason, "%s: %.250s", what, err->message);
        job_set_state(job, JOB_FAILED, NULL, reason);
    }
    manager_job_changed(job->manager, job); /* last: one that is QUEUED and idle is loaded */
    job_load_answer(job, err->code, err->message);
}

/* Cancelled or failed while the store or the lanes were at it. */
static bool no_longer_wanted(Job *job)
{
    if (!job_state_is_final(job->state) && !job->stopping)
        return false;
    give_back(job);
    job_load_answer(job, -ECANCELED, "the job was ended meanwhile");
    manager_job_changed(job->manager, job);
    return true;
}

/* ---- the last step: live --------------------------------------------------------------------- */

static bool round_has_samples(const Job *job)
{
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++)
        if (job->members[rank].account.samples)
            return true;
    return false;
}

/* Only where the model has something to undo. Without memory it is not undone. */
static void prepare_undo(Job *job)
{
    bool has_buffers = graph_buffer_count(job->plan.graph) > 0;
    for (uint32_t rank = 0; has_buffers && rank < job->spec.max_trainers; rank++)
        (void)member_snapshot_new(job->plan.graph, &job->members[rank].undo);
}

static void on_hosted(Job *job, int r, const Error *err)
{
    if (r < 0) {
        loading_failed(job, "cannot host its replicas", err);
        return;
    }
    job->phase = PHASE_LIVE;
    if (job_state_is_final(job->state) || job->stopping) {
        job_unload(job, "cancelled");
        return;
    }
    prepare_undo(job);
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++) {
        Member *member = &job->members[rank];
        member_take_settings(member);
        if (member->account.samples && member_arrived(member))
            member->arrived_us = clock_monotonic_us();
    }
    job_set_state(job, JOB_RUNNING, NULL, NULL);
    if (job_work_is_done(job) && !round_has_samples(job)) { /* killed while it saved its result */
        job->finishing = true;
        checkpoint_want(job, NULL, NULL);
    }
    job_load_answer(job, 0, "");
    managed_start_all(job);
    job_advance(job);
}

/* Ranks that are not wanted from the beginning; nothing was dealt yet. */
static void drop_spares(Job *job)
{
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++) {
        Member *member = &job->members[rank];
        member->spare = rank >= job->settings.trainers;
        member->place = member->spare ? MEMBER_DROPPED : MEMBER_LIVE;
        if (member->spare)
            (void)dealer_drop(job->dealer, rank);
    }
}

/* With what was asked for before it began: the policy decides what is hosted. */
static void begin_first_round(Job *job)
{
    job_begin_round(job, 1);
    (void)policy_find(job->settings.policy, &job->policy, NULL);
    drop_spares(job);
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++)
        member_begin_round(&job->members[rank], 1);
}

static void on_rewound(void *data, int r, const Error *err)
{
    Job *job = data;
    job->tasks--;
    if (no_longer_wanted(job))
        return;
    if (r < 0) {
        loading_failed(job, "cannot rewind its metrics", err);
        return;
    }
    job->rewind_settings = false;
    if (job->round == 0)
        begin_first_round(job);
    job_host(job, job->latest_checkpoint != 0, on_hosted);
}

static void rewind_metrics(Job *job)
{
    uint64_t whole = job->round ? job->round - 1 : 0, whole_of_rank[JOB_MAX_TRAINERS];
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++) {
        uint64_t round = job->members[rank].round.number;
        whole_of_rank[rank] = round ? round - 1 : 0;
    }
    job->tasks++;
    int r = store_job_rewind(manager_store(job->manager), job->id, whole, whole_of_rank,
                             job->spec.max_trainers, job->rewind_settings, job->latest_checkpoint,
                             on_rewound, job);
    if (r < 0) {
        Error err;
        error_set(&err, r, "out of memory");
        on_rewound(job, r, &err);
    }
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Those that are not in the checkpoint. After a restore only those that a rank, ahead of the others,
 * had reached at the cut. */
static int keep_later_settings(Job *job, const SettingRecord *settings, size_t n)
{
    uint64_t last = job->rewind_settings ? rounds_furthest(job) : UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (settings[i].round <= job->round || settings[i].round > last)
            continue;
        SettingChange change = {.round = settings[i].round};
        snprintf(change.key, sizeof change.key, "%s", settings[i].key);
        snprintf(change.value, sizeof change.value, "%s", settings[i].value);
        if (pending_add(job, &change) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void on_settings(void *data, int r, const Error *err, const SettingRecord *settings,
                        size_t n)
{
    Job *job = data;
    Error problem = r < 0 ? *err : (Error){0};
    job->tasks--;
    if (no_longer_wanted(job))
        return;
    job->n_pending = 0; /* whatever was asked for before is among them, or rewound */
    if (r == 0 && keep_later_settings(job, settings, n) < 0)
        r = error_set(&problem, -ENOMEM, "out of memory");
    if (r < 0)
        loading_failed(job, "cannot read its settings", &problem);
    else
        evaluation_load(job, rewind_metrics);
}

static void load_settings(Job *job)
{
    job->tasks++;
    int r = store_settings_load(manager_store(job->manager), job->id, on_settings, job);
    if (r < 0) {
        Error err;
        error_set(&err, r, "out of memory");
        on_settings(job, r, &err, NULL, 0);
    }
}

/* ---- the checkpoint -------------------------------------------------------------------------- */

static int take_over(Job *job, const CheckpointRecord *checkpoint, const CheckpointPart *parts,
                     size_t n, Error *err)
{
    int r = checkpoint_meta_policy(job, checkpoint->meta, &job->policy,
                                   err); /* decides what there is */
    if (r == 0 && (r = cuts_prepare(job)) < 0)
        error_set(err, r, "out of memory");
    for (uint32_t rank = 0; rank < job->spec.max_trainers && r == 0; rank++) {
        char whose[RANK_NAME_MAX];
        rank_name(rank, whose);
        r = snapshot_from_parts(whose, job->members[rank].cut, parts, n, err);
    }
    if (r == 0 && job->common_cut)
        r = snapshot_from_parts("common", job->common_cut, parts, n, err);
    if (r == 0)
        r = checkpoint_meta_read(job, checkpoint->meta, err);
    if (r < 0)
        return error_prefix(err, r, "checkpoint %llu", (unsigned long long)checkpoint->id);
    job->latest_checkpoint = checkpoint->id;
    job->rounds_since_checkpoint = 0;
    return 0;
}

static void begin_at_the_seed(Job *job)
{
    job->round = 0;
    job->samples = job->batches = job->checksum = 0;
    job->last_loss = 0;
    job->latest_checkpoint = 0;
    job->rounds_since_checkpoint = 0;
    (void)job_spec_settings(&job->spec, &job->settings, NULL); /* checked when it was submitted */
}

static void on_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *checkpoint,
                          const CheckpointPart *parts, size_t n)
{
    Job *job = data;
    Error problem = {0};
    job->tasks--;
    if (no_longer_wanted(job))
        return;
    if (r == -ENOENT && job->restore_id == 0) {
        begin_at_the_seed(job);
        load_settings(job);
        return;
    }
    if (r == 0)
        r = take_over(job, checkpoint, parts, n, &problem);
    else
        problem = *err;
    if (r < 0) {
        loading_failed(job, "cannot load its checkpoint", &problem);
        return;
    }
    log_job(LOG_NOTICE, job->id, -1, "goes on from checkpoint %llu: round %llu, step %llu",
            (unsigned long long)checkpoint->id, (unsigned long long)job->round,
            (unsigned long long)job_step(job));
    load_settings(job);
}

void job_load(Job *job, uint64_t checkpoint)
{
    Error err = {0};
    job->restore_id = checkpoint;
    job->finishing = false;
    int r = prepare(job, &err);
    if (r < 0) {
        loading_failed(job, "cannot be loaded", &err);
        return;
    }
    job->phase = PHASE_LOADING;
    job->tasks++;
    r = store_checkpoint_load(manager_store(job->manager), job->id, checkpoint, on_checkpoint, job);
    if (r < 0) {
        error_set(&err, r, "out of memory");
        on_checkpoint(job, r, &err, NULL, NULL, 0);
    }
}
