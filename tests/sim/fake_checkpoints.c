/* In place of store/checkpoint_*.c. A cut is checked before it is written: its ranks share no batch,
 * and together they have what the job has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_store.h"
#include "memory.h"

typedef struct SaveAsked {
    Asked asked;
    CheckpointRecord record;
    const CheckpointPart *parts; /* the caller's until the answer */
    size_t n;
    uint64_t fingerprint, samples, id;
    unsigned keep;
    StoreCheckpointSaved saved;
} SaveAsked;

typedef struct ReadAsked {
    Asked asked;
    uint64_t id;
    bool verify;
    DiskCheckpoint copy; /* load: its texts and parts are the request's */
    StoreCheckpointLoaded loaded;
    StoreCheckpointsListed listed;
    CheckpointRecord *records;
    size_t n;
} ReadAsked;

/* ---- saving ------------------------------------------------------------------------------------
 */

static uint64_t fingerprint(const CheckpointPart *parts, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k + 8 <= parts[i].bytes; k += 8) {
            uint64_t word;
            memcpy(&word, (const char *)parts[i].data + k, sizeof word);
            hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        }
    return hash;
}

static void check_cut(const SimJob *job, const CheckpointPart *parts, size_t n)
{
    uint64_t done[SIM_WORDS] = {0}, samples = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t *counters = parts[i].data;
        if (strncmp(parts[i].name, "rank", 4) != 0 || !strstr(parts[i].name, "/counters"))
            continue;
        samples += (uint64_t)counters[SIM_WORDS];
        for (unsigned k = 0; k < SIM_WORDS; k++) {
            if (done[k] & (uint64_t)counters[k])
                sim_fail("job %llu: two ranks of a cut have the same batch",
                         (unsigned long long)job->id);
            done[k] |= (uint64_t)counters[k];
        }
    }
    if (samples != job->samples)
        sim_fail("job %llu: a cut has %llu samples; the replicas were trained on %llu",
                 (unsigned long long)job->id, (unsigned long long)samples,
                 (unsigned long long)job->samples);
}

static bool is_pinned(const DiskCheckpoint *checkpoint)
{
    return !checkpoint->known_torn && (checkpoint->record.in_use || checkpoint->record.best);
}

/* As checkpoint_prune: before the new one is added; those that are pinned are not counted. */
static void prune(DiskJob *job, unsigned keep, bool adds_pinned)
{
    unsigned valid = !adds_pinned;
    for (size_t i = job->n_checkpoints; keep && i--;) {
        if (is_pinned(&job->checkpoints[i]))
            continue;
        if (valid >= keep)
            disk_remove_checkpoint(job, i);
        else
            valid += !job->checkpoints[i].known_torn;
    }
}

static int save_run(Asked *asked)
{
    SaveAsked *save = (SaveAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    if (fingerprint(save->parts, save->n) != save->fingerprint)
        sim_fail("job %llu: a cut changed while the store was writing it",
                 (unsigned long long)asked->job);
    prune(job, save->keep, save->record.in_use);
    DiskCheckpoint *checkpoint = disk_add_checkpoint(job);
    job->result_behind = true;
    checkpoint->record = save->record;
    checkpoint->record.meta = sim_copy_text(save->record.meta);
    checkpoint->record.id = save->id = ++world.disk.next_checkpoint;
    checkpoint->record.valid = true;
    checkpoint->record.best = false;
    checkpoint->samples = save->samples;
    checkpoint->parts = sim_allocate((save->n + 1) * sizeof *checkpoint->parts);
    checkpoint->n = save->n;
    for (size_t i = 0; i < save->n; i++) {
        checkpoint->parts[i] = save->parts[i];
        checkpoint->parts[i].data =
            memcpy(sim_allocate(save->parts[i].bytes), save->parts[i].data, save->parts[i].bytes);
    }
    return 0;
}

static void save_answer(Asked *asked, const Error *err)
{
    const SaveAsked *save = (SaveAsked *)asked;
    save->saved(asked->data, asked->r, err, save->id);
}

static void save_release(Asked *asked)
{
    free(((SaveAsked *)asked)->record.meta);
}

static const AskedKind save_kind = {.what = "save a checkpoint",
                                    .writes = true,
                                    .run = save_run,
                                    .answer = save_answer,
                                    .release = save_release};

int store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                          const CheckpointPart *parts, size_t n, unsigned keep,
                          StoreCheckpointSaved done, void *data)
{
    Asked *asked;
    const SimJob *job = sim_job_by_id(checkpoint->job);
    check_cut(job, parts, n);
    int r = asked_new(store, &save_kind, sizeof(SaveAsked), checkpoint->job, data, &asked);
    if (r < 0)
        return r;
    SaveAsked *save = (SaveAsked *)asked;
    save->record = *checkpoint;
    save->record.meta = strdup(checkpoint->meta);
    save->parts = parts;
    save->n = n;
    save->keep = keep;
    save->fingerprint = fingerprint(parts, n);
    save->samples = job->samples;
    save->saved = done;
    asked_post(asked);
    return 0;
}

/* ---- loading -----------------------------------------------------------------------------------
 */

/* The latest good one; torn ones on the way are marked. */
static DiskCheckpoint *find_latest(DiskJob *job)
{
    for (size_t i = job->n_checkpoints; i--;) {
        DiskCheckpoint *checkpoint = &job->checkpoints[i];
        checkpoint->known_torn |= checkpoint->torn;
        if (!checkpoint->known_torn)
            return checkpoint;
    }
    return NULL;
}

static int find_one(DiskJob *job, uint64_t id, DiskCheckpoint **ret)
{
    *ret = id ? NULL : find_latest(job);
    for (size_t i = 0; id && i < job->n_checkpoints; i++)
        if (job->checkpoints[i].record.id == id)
            *ret = &job->checkpoints[i];
    if (!*ret)
        return -ENOENT;
    return (*ret)->torn ? -EBADMSG : 0;
}

static int load_run(Asked *asked)
{
    ReadAsked *load = (ReadAsked *)asked;
    DiskJob *job = asked_job(asked);
    DiskCheckpoint *found;
    int r = job ? find_one(job, load->id, &found) : -ENOENT;
    if (r < 0)
        return r;
    load->copy = *found;
    load->copy.record.meta = strdup(found->record.meta);
    load->copy.parts = calloc(found->n + 1, sizeof *load->copy.parts);
    for (size_t i = 0; i < found->n; i++) {
        load->copy.parts[i] = found->parts[i];
        load->copy.parts[i].data =
            memcpy(malloc(found->parts[i].bytes), found->parts[i].data, found->parts[i].bytes);
    }
    return 0;
}

static void load_fails(Asked *asked)
{
    SimJob *job = sim_job_by_id(asked->job);
    if (job)
        job->unreadable = true;
}

static void load_answer(Asked *asked, const Error *err)
{
    const ReadAsked *load = (ReadAsked *)asked;
    load->loaded(asked->data, asked->r, err, asked->r < 0 ? NULL : &load->copy.record,
                 load->copy.parts, load->copy.n);
}

static void load_release(Asked *asked)
{
    ReadAsked *load = (ReadAsked *)asked;
    for (size_t i = 0; i < load->copy.n; i++)
        free((void *)load->copy.parts[i].data);
    free(load->copy.parts);
    free(load->copy.record.meta);
}

static const AskedKind load_kind = {.what = "load a checkpoint",
                                    .run = load_run,
                                    .fails = load_fails,
                                    .answer = load_answer,
                                    .release = load_release};

int store_checkpoint_load(Store *store, uint64_t job, uint64_t id, StoreCheckpointLoaded done,
                          void *data)
{
    Asked *asked;
    int r = asked_new(store, &load_kind, sizeof(ReadAsked), job, data, &asked);
    if (r < 0)
        return r;
    ((ReadAsked *)asked)->id = id;
    ((ReadAsked *)asked)->loaded = done;
    asked_post(asked);
    return 0;
}

/* ---- listing -----------------------------------------------------------------------------------
 */

static int list_run(Asked *asked)
{
    ReadAsked *list = (ReadAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    list->records = calloc(job->n_checkpoints + 1, sizeof *list->records);
    for (size_t i = job->n_checkpoints; i--;) {
        DiskCheckpoint *checkpoint = &job->checkpoints[i];
        if (list->verify)
            checkpoint->known_torn |= checkpoint->torn;
        CheckpointRecord *record = &list->records[list->n++];
        *record = checkpoint->record;
        record->meta = NULL;
        record->valid = !checkpoint->known_torn;
        record->problem = checkpoint->known_torn ? (char *)"torn" : NULL;
    }
    return 0;
}

static void list_answer(Asked *asked, const Error *err)
{
    const ReadAsked *list = (ReadAsked *)asked;
    list->listed(asked->data, asked->r, err, list->records, list->n);
}

static void list_release(Asked *asked)
{
    free(((ReadAsked *)asked)->records);
}

static const AskedKind list_kind = {
    .what = "list checkpoints", .run = list_run, .answer = list_answer, .release = list_release};

int store_checkpoints_list(Store *store, uint64_t job, bool verify, StoreCheckpointsListed done,
                           void *data)
{
    Asked *asked;
    int r = asked_new(store, &list_kind, sizeof(ReadAsked), job, data, &asked);
    if (r < 0)
        return r;
    ((ReadAsked *)asked)->verify = verify;
    ((ReadAsked *)asked)->listed = done;
    asked_post(asked);
    return 0;
}
