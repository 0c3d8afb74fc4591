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

static bool add_member(cJSON *members, const Member *member)
{
    cJSON *json = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(members, json))
        return false;
    return cJSON_AddBoolToObject(json, "live", member->place == MEMBER_LIVE) &&
           json_add_u64(json, "step", member->step) &&
           json_add_u64(json, "updates", member->cut->updates) &&
           cJSON_AddNumberToObject(json, "last_loss", (double)member->last_loss) &&
           add_account(json, &member->account);
}

static bool add_members(cJSON *json, const Job *job)
{
    cJSON *members = cJSON_AddArrayToObject(json, "members");
    for (uint32_t r = 0; members && r < job->spec.trainers; r++)
        if (!add_member(members, &job->members[r]))
            return false;
    return members;
}

static bool add_position(cJSON *json, const Job *job)
{
    return json_add_u64(json, "round", job->round.number) &&
           json_add_u64(json, "round_start", job->round.start) &&
           json_add_u64(json, "round_end", job->round.end) &&
           json_add_u64(json, "samples", job->samples) &&
           json_add_u64(json, "batches", job->batches) &&
           json_add_u64(json, "checksum", job->checksum) &&
           cJSON_AddNumberToObject(json, "last_loss", (double)job->last_loss);
}

static bool add_settings(cJSON *json, const JobSettings *settings)
{
    return cJSON_AddNumberToObject(json, "interval", settings->interval) &&
           cJSON_AddNumberToObject(json, "lr", (double)settings->lr) &&
           cJSON_AddNumberToObject(json, "checkpoint_rounds", settings->checkpoint_rounds) &&
           cJSON_AddNumberToObject(json, "checkpoint_keep", settings->checkpoint_keep);
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

static void read_member(const cJSON *json, Member *member)
{
    member->place =
        cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "live")) ? MEMBER_LIVE : MEMBER_DROPPED;
    member->step = json_u64(json, "step");
    member->cut->updates = json_u64(json, "updates");
    member->last_loss = (float)json_double(json, "last_loss");
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
    if (!cJSON_IsArray(members) || (uint32_t)cJSON_GetArraySize(members) != job->spec.trainers)
        return error_set(err, -EBADMSG, "it does not have the job's %u ranks", job->spec.trainers);
    uint32_t r = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, members)
    {
        read_member(member, &job->members[r++]);
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

static int read_all(const cJSON *json, Job *job, Error *err)
{
    int r = read_members(json, job, err);
    if (r == 0)
        r = read_dealer(json, job, err);
    if (r < 0)
        return r;
    job->round.number = json_u64(json, "round");
    job->round.start = json_u64(json, "round_start");
    job->round.end = json_u64(json, "round_end");
    job->samples = json_u64(json, "samples");
    job->batches = json_u64(json, "batches");
    job->checksum = json_u64(json, "checksum");
    job->last_loss = (float)json_double(json, "last_loss");
    job->settings.interval = (uint32_t)json_double(json, "interval");
    job->settings.lr = (float)json_double(json, "lr");
    job->settings.checkpoint_rounds = (uint32_t)json_double(json, "checkpoint_rounds");
    job->settings.checkpoint_keep = (uint32_t)json_double(json, "checkpoint_keep");
    if (job->round.number == 0 || job->settings.interval == 0)
        return error_set(err, -EBADMSG, "its position cannot be read");
    return 0;
}

int checkpoint_meta_live(const char *text, bool *live, uint32_t n)
{
    cJSON *json = cJSON_Parse(text);
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(json, "members"), *member;
    uint32_t r = 0;
    cJSON_ArrayForEach(member, members)
    {
        if (r < n)
            live[r] = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(member, "live"));
        r++;
    }
    cJSON_Delete(json);
    return r == n ? 0 : -EBADMSG;
}

int checkpoint_meta_read(Job *job, const char *text, Error *err)
{
    cJSON *json = cJSON_Parse(text);
    int r = cJSON_IsObject(json) ? read_all(json, job, err)
                                 : error_set(err, -EBADMSG, "its position is not JSON");
    cJSON_Delete(json);
    return r;
}
