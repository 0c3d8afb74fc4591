/* What is kept of a job besides its spec: its last known progress, in the store as JSON and, once
 * its replicas are gone, in memory. */
#include "job/job_internal.h"
#include "job/json.h"

#include <inttypes.h>
#include <stdio.h>

int result_summarise(Job *job)
{
    job->result_furthest = rounds_furthest(job);
    job->result_round = job->round;
    job->result_step = job_step(job);
    job->result_epoch = job_epoch(job);
    free(job->summary);
    job->summary = calloc(job->spec.max_trainers, sizeof *job->summary);
    if (!job->summary)
        return -ENOMEM;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        const Member *member = &job->members[r];
        job->summary[r] = (RankSummary){.step = member->step,
                                        .loss = member->last_loss,
                                        .restarts = member->managed.restarts,
                                        .dropped = member->place == MEMBER_DROPPED};
    }
    return 0;
}

static bool add_rank(cJSON *ranks, uint64_t step, float loss, unsigned restarts, bool dropped)
{
    cJSON *rank = cJSON_CreateObject();
    return cJSON_AddItemToArray(ranks, rank) &&
           cJSON_AddNumberToObject(rank, "step", (double)step) &&
           cJSON_AddNumberToObject(rank, "loss", (double)loss) &&
           cJSON_AddNumberToObject(rank, "restarts", restarts) &&
           cJSON_AddBoolToObject(rank, "dropped", dropped);
}

static bool add_ranks(cJSON *json, const Job *job)
{
    cJSON *ranks = cJSON_AddArrayToObject(json, "ranks");
    bool whole = ranks;
    for (uint32_t r = 0; whole && job->members && r < job->spec.max_trainers; r++) {
        const Member *member = &job->members[r];
        whole = add_rank(ranks, member->step, member->last_loss, member->managed.restarts,
                         member->place == MEMBER_DROPPED);
    }
    for (uint32_t r = 0; whole && !job->members && job->summary && r < job->spec.max_trainers;
         r++) {
        const RankSummary *rank = &job->summary[r];
        whole = add_rank(ranks, rank->step, rank->loss, rank->restarts, rank->dropped);
    }
    return whole;
}

char *result_json(const Job *job)
{
    cJSON *json = cJSON_CreateObject();
    char checksum[24], *text = NULL;
    uint64_t round = job->members ? job->round : job->result_round;
    snprintf(checksum, sizeof checksum, "%016" PRIx64, job->checksum);
    if (json && cJSON_AddNumberToObject(json, "round", (double)round) &&
        cJSON_AddNumberToObject(json, "furthest", (double)rounds_furthest(job)) &&
        cJSON_AddNumberToObject(json, "step", (double)job_step(job)) &&
        cJSON_AddNumberToObject(json, "epoch", (double)job_epoch(job)) &&
        cJSON_AddNumberToObject(json, "samples", (double)job->samples) &&
        cJSON_AddNumberToObject(json, "loss", (double)job->last_loss) &&
        cJSON_AddNumberToObject(json, "lr", (double)job->settings.lr) &&
        cJSON_AddNumberToObject(json, "interval", job->settings.interval) &&
        cJSON_AddNumberToObject(json, "checkpoint", (double)job->latest_checkpoint) &&
        cJSON_AddNumberToObject(json, "accuracy", job->evaluation.accuracy) &&
        cJSON_AddNumberToObject(json, "accuracy_round", (double)job->evaluation.accuracy_round) &&
        cJSON_AddStringToObject(json, "checksum", checksum) && add_ranks(json, job))
        text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

static void read_ranks(const cJSON *ranks, Job *job)
{
    if ((uint32_t)cJSON_GetArraySize(ranks) != job->spec.max_trainers)
        return; /* never loaded: there is nothing to tell of its ranks */
    RankSummary *summary = calloc(job->spec.max_trainers, sizeof *summary);
    if (!summary)
        return;
    uint32_t r = 0;
    const cJSON *rank;
    cJSON_ArrayForEach(rank, ranks)
    {
        summary[r++] = (RankSummary){
            .step = (uint64_t)json_double(rank, "step"),
            .loss = (float)json_double(rank, "loss"),
            .restarts = (unsigned)json_double(rank, "restarts"),
            .dropped = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(rank, "dropped")),
        };
    }
    free(job->summary);
    job->summary = summary;
}

int result_read(Job *job, const char *text)
{
    cJSON *json = cJSON_Parse(text);
    if (!json)
        return -EBADMSG;
    job->result_round = job->round = (uint64_t)json_double(json, "round");
    job->result_furthest = (uint64_t)json_double(json, "furthest");
    job->result_step = (uint64_t)json_double(json, "step");
    job->result_epoch = (uint64_t)json_double(json, "epoch");
    job->samples = (uint64_t)json_double(json, "samples");
    job->last_loss = (float)json_double(json, "loss");
    job->latest_checkpoint = (uint64_t)json_double(json, "checkpoint");
    job->evaluation.accuracy = json_double(json, "accuracy");
    job->evaluation.accuracy_round = (uint64_t)json_double(json, "accuracy_round");
    if (json_double(json, "interval") > 0) {
        job->settings.interval = (uint32_t)json_double(json, "interval");
        job->settings.lr = (float)json_double(json, "lr");
    }
    const cJSON *checksum = cJSON_GetObjectItemCaseSensitive(json, "checksum");
    if (cJSON_IsString(checksum))
        job->checksum = strtoull(checksum->valuestring, NULL, 16);
    read_ranks(cJSON_GetObjectItemCaseSensitive(json, "ranks"), job);
    cJSON_Delete(json);
    return 0;
}
