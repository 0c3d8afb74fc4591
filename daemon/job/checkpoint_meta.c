/* The position of a cut as JSON: what a checkpoint holds beside the numbers of the replicas. */
#include "job/job_internal.h"
#include "job/json.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static bool add_account(cJSON *json, const RoundAccount *account)
{
    return json_add_u64(json, "samples", account->samples) &&
           json_add_u64(json, "compute_us", account->compute_us) &&
           json_add_u64(json, "wait_us", account->wait_us) &&
           json_add_u64(json, "bytes_in", account->bytes_in) &&
           json_add_u64(json, "bytes_out", account->bytes_out) &&
           cJSON_AddNumberToObject(json, "loss_sum", account->loss_sum);
}

static bool add_guard(cJSON *json, const Guard *guard)
{
    cJSON *norms = cJSON_AddArrayToObject(json, "norms");
    uint64_t n = guard->n < GUARD_NORMS ? guard->n : GUARD_NORMS;
    for (uint64_t i = 0; norms && i < n; i++)
        if (!cJSON_AddItemToArray(norms, cJSON_CreateNumber(guard->norms[i])))
            return false;
    return norms && json_add_u64(json, "norms_seen", guard->n) &&
           cJSON_AddNumberToObject(json, "strikes", guard->strikes) &&
           cJSON_AddNumberToObject(json, "replica_strikes", guard->replica_strikes);
}

static bool add_member(cJSON *members, const Member *member)
{
    cJSON *json = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(members, json))
        return false;
    return cJSON_AddBoolToObject(json, "live", member->place == MEMBER_LIVE) &&
           json_add_u64(json, "step", member->step) &&
           json_add_u64(json, "round", member->round.number) &&
           json_add_u64(json, "round_start", member->round.start) &&
           json_add_u64(json, "round_end", member->round.end) &&
           json_add_u64(json, "updates", member->cut->updates) &&
           cJSON_AddBoolToObject(json, "spare", member->spare) &&
           cJSON_AddBoolToObject(json, "behind", member->behind) &&
           cJSON_AddNumberToObject(json, "last_loss", (double)member->last_loss) &&
           add_account(json, &member->account) && add_guard(json, &member->guard);
}

static bool add_members(cJSON *json, const Job *job)
{
    cJSON *members = cJSON_AddArrayToObject(json, "members");
    for (uint32_t r = 0; members && r < job->spec.max_trainers; r++)
        if (!add_member(members, &job->members[r]))
            return false;
    return members;
}

static bool add_position(cJSON *json, const Job *job)
{
    return json_add_u64(json, "round", job->round) && json_add_u64(json, "samples", job->samples) &&
           json_add_u64(json, "batches", job->batches) &&
           json_add_u64(json, "checksum", job->checksum) &&
           json_add_u64(json, "common_updates", job->common_cut ? job->common_cut->updates : 0) &&
           cJSON_AddNumberToObject(json, "last_loss", (double)job->last_loss);
}

static bool add_settings(cJSON *json, const JobSettings *settings)
{
    cJSON *object = cJSON_AddObjectToObject(json, "settings");
    for (int i = 0; object && i < settings_count(); i++) {
        char text[SETTING_VALUE_MAX];
        if (!cJSON_AddStringToObject(object, settings_key(i),
                                     settings_format(settings, i, text, sizeof text)))
            return false;
    }
    return object;
}

int checkpoint_meta_write(const Job *job, char **ret)
{
    char *dealer = NULL, *text = NULL;
    cJSON *json = cJSON_CreateObject();
    bool whole = json && dealer_save(job->dealer, &dealer) == 0 && add_position(json, job) &&
                 add_settings(json, &job->settings) && add_members(json, job) &&
                 cJSON_AddRawToObject(json, "dealer", dealer);
    if (whole)
        text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    free(dealer);
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_true(const cJSON *json, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, name));
}

static void read_guard(const cJSON *json, Guard *guard)
{
    const cJSON *norm;
    unsigned i = 0;
    cJSON_ArrayForEach(norm, cJSON_GetObjectItemCaseSensitive(json, "norms"))
    {
        if (i < GUARD_NORMS)
            guard->norms[i++] = norm->valuedouble;
    }
    guard->n = json_u64(json, "norms_seen");
    if (guard->n < i || i < GUARD_NORMS)
        guard->n = i;
    guard->strikes = (unsigned)json_double(json, "strikes");
    guard->replica_strikes = (unsigned)json_double(json, "replica_strikes");
}

/* A dps that had one round for all ranks wrote it once. */
static Round read_round(const cJSON *job, const cJSON *member)
{
    const char *name = "round";
    if (!cJSON_HasObjectItem(member, name))
        member = job;
    return (Round){.number = json_u64(member, name),
                   .start = json_u64(member, "round_start"),
                   .end = json_u64(member, "round_end")};
}

static void read_member(const cJSON *job, const cJSON *json, Member *member)
{
    member->place = is_true(json, "live") ? MEMBER_LIVE : MEMBER_DROPPED;
    member->step = json_u64(json, "step");
    member->round = read_round(job, json);
    member->cut->updates = json_u64(json, "updates");
    member->last_loss = (float)json_double(json, "last_loss");
    member->spare = is_true(json, "spare");
    member->behind = is_true(json, "behind");
    read_guard(json, &member->guard);
    member->account = (RoundAccount){
        .samples = json_u64(json, "samples"),
        .compute_us = json_u64(json, "compute_us"),
        .wait_us = json_u64(json, "wait_us"),
        .bytes_in = json_u64(json, "bytes_in"),
        .bytes_out = json_u64(json, "bytes_out"),
        .loss_sum = json_double(json, "loss_sum"),
    };
}

static int read_members(const cJSON *json, Job *job, Error *err)
{
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(json, "members");
    if (!cJSON_IsArray(members) || (uint32_t)cJSON_GetArraySize(members) != job->spec.max_trainers)
        return error_set(err, -EBADMSG, "it does not have the job's %u ranks",
                         job->spec.max_trainers);
    uint32_t r = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, members)
    {
        read_member(json, member, &job->members[r++]);
    }
    return 0;
}

static int read_dealer(const cJSON *json, Job *job, Error *err)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, "dealer"));
    int r = text ? dealer_load(job->dealer, text) : -EBADMSG;
    free(text);
    return r < 0 ? error_set(err, r, "its data position cannot be read") : 0;
}

/* As written by a dps that had four of them, and one policy. */
static int read_first_settings(const cJSON *json, JobSettings *settings)
{
    settings->interval = (uint32_t)json_double(json, "interval");
    settings->lr = (float)json_double(json, "lr");
    settings->checkpoint_rounds = (uint32_t)json_double(json, "checkpoint_rounds");
    settings->checkpoint_keep = (uint32_t)json_double(json, "checkpoint_keep");
    return settings->interval ? 0 : -EBADMSG;
}

/* What is not in it is as the job began with. */
static int read_settings(const cJSON *json, const Job *job, JobSettings *settings)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(json, "settings"), *setting;
    int r = job_spec_settings(&job->spec, settings, NULL);
    if (r == 0 && !object)
        return read_first_settings(json, settings);
    if (r < 0 || !cJSON_IsObject(object))
        return -EBADMSG;
    cJSON_ArrayForEach(setting, object)
    {
        if (!cJSON_IsString(setting) ||
            settings_apply(settings, setting->string, setting->valuestring, NULL) < 0)
            return -EBADMSG;
    }
    return 0;
}

static int read_all(const cJSON *json, Job *job, Error *err)
{
    int r = read_members(json, job, err);
    if (r == 0)
        r = read_dealer(json, job, err);
    if (r < 0)
        return r;
    job->round = json_u64(json, "round");
    job->samples = json_u64(json, "samples");
    job->batches = json_u64(json, "batches");
    job->checksum = json_u64(json, "checksum");
    if (job->common_cut)
        job->common_cut->updates = json_u64(json, "common_updates");
    job->last_loss = (float)json_double(json, "last_loss");
    if (job->round == 0 || read_settings(json, job, &job->settings) < 0)
        return error_set(err, -EBADMSG, "its position cannot be read");
    return 0;
}

int checkpoint_meta_ranks(const char *text, bool *chosen, uint32_t n)
{
    cJSON *json = cJSON_Parse(text);
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(json, "members"), *member;
    bool any = false;
    uint32_t count = 0, r = 0;
    cJSON_ArrayForEach(member, members)
    {
        any |= is_true(member, "live") && !is_true(member, "behind");
        count++;
    }
    cJSON_ArrayForEach(member, members)
    {
        if (r < n)
            chosen[r++] = any ? is_true(member, "live") && !is_true(member, "behind")
                              : !is_true(member, "spare");
    }
    cJSON_Delete(json);
    return count == n ? 0 : -EBADMSG;
}

int checkpoint_meta_policy(const Job *job, const char *text, const SyncPolicy **ret, Error *err)
{
    JobSettings settings;
    cJSON *json = cJSON_Parse(text);
    int r = cJSON_IsObject(json) ? read_settings(json, job, &settings) : -EBADMSG;
    cJSON_Delete(json);
    if (r == 0)
        r = policy_find(settings.policy, ret, NULL);
    return r < 0 ? error_set(err, -EBADMSG, "its settings cannot be read") : 0;
}

int checkpoint_meta_read(Job *job, const char *text, Error *err)
{
    cJSON *json = cJSON_Parse(text);
    int r = cJSON_IsObject(json) ? read_all(json, job, err)
                                 : error_set(err, -EBADMSG, "its position is not JSON");
    cJSON_Delete(json);
    return r;
}
