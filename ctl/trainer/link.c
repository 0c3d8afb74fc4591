#include "ctl/trainer/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/text.h"
#include "ctl/trainer/feed.h"
#include "ctl/trainer/fit.h"
#include "ctl/trainer/stop.h"

enum {
    CONNECT_MS = 5000,
    CALL_MS = 10000, /* Join and Get; a server that takes longer is asked again */
    LEAVE_MS = 2000, /* the server notices the closed connection anyway */
};

/* ---- what a status means --------------------------------------------------------------------- */

typedef struct EndOf {
    GrpcStatus code;
    LinkEnd end;
} EndOf;

/* Codes that are not listed cannot be mended by trying again. */
static const EndOf join_ends[] = {
    {GRPC_UNAVAILABLE, LINK_AGAIN},       /* recovering, paused, not loaded yet */
    {GRPC_DEADLINE_EXCEEDED, LINK_AGAIN}, /* busy */
    {GRPC_CANCELLED, LINK_AGAIN},         /* stopping */
    {GRPC_ABORTED, LINK_AGAIN},
    {GRPC_ALREADY_EXISTS, LINK_BUSY}, /* our own last session, perhaps, not yet noticed as dead */
    {GRPC_RESOURCE_EXHAUSTED, LINK_BUSY},
    {GRPC_NOT_FOUND, LINK_NO_JOB},
};

static const EndOf train_ends[] = {
    {GRPC_OK, LINK_AGAIN}, /* an end without Done */
    {GRPC_UNAVAILABLE, LINK_AGAIN},
    {GRPC_CANCELLED, LINK_AGAIN},
    {GRPC_ABORTED, LINK_AGAIN},
    {GRPC_INTERNAL, LINK_AGAIN},            /* the stream was reset */
    {GRPC_FAILED_PRECONDITION, LINK_AGAIN}, /* the session is gone */
    {GRPC_NOT_FOUND, LINK_AGAIN},
};

static LinkEnd end_of(const EndOf *table, size_t n, const ClientStatus *status)
{
    if (status->lost)
        return LINK_LOST;
    for (size_t i = 0; i < n; i++)
        if (table[i].code == status->code)
            return table[i].end;
    return LINK_REFUSED;
}

#define END_OF(table, status) end_of(table, sizeof(table) / sizeof((table)[0]), status)

static void refuse(LinkResult *result, const char *text)
{
    result->end = LINK_REFUSED;
    result->status.code = GRPC_FAILED_PRECONDITION;
    snprintf(result->status.message, sizeof(result->status.message), "%s", text);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* FAILED_PRECONDITION: a job that has ended refuses to be joined, and how it ended is what the
 * trainer wants to know; or the rank has a trainer, which may pass. */
static void ask_how_it_stands(Client *client, uint64_t job, LinkResult *result)
{
    static const struct {
        Dps__V1__JobState state;
        const char *reason;
    } ends[] = {
        {DPS__V1__JOB_STATE__COMPLETED, "completed"},
        {DPS__V1__JOB_STATE__CANCELLED, "cancelled"},
        {DPS__V1__JOB_STATE__FAILED, "failed"},
    };
    Dps__V1__JobRequest request = DPS__V1__JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    ClientStatus status;

    request.job = job;
    if (client_call(client, &dps__v1__control__descriptor, "Get", &request.base, CALL_MS, &reply,
                    &status) < 0) {
        result->end = status.lost ? LINK_LOST : LINK_REFUSED;
        return;
    }
    result->end = LINK_BUSY;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (((Dps__V1__JobStatus *)reply)->state == ends[i].state) {
            result->end = LINK_DONE;
            snprintf(result->reason, sizeof(result->reason), "%s", ends[i].reason);
        }
    protobuf_c_message_free_unpacked(reply, NULL);
}

static int join(Client *client, const LinkPlan *plan, Dps__V1__JoinReply **ret, LinkResult *result)
{
    Dps__V1__JoinRequest request = DPS__V1__JOIN_REQUEST__INIT;
    char host[64] = "?", who[160];
    ProtobufCMessage *reply;

    gethostname(host, sizeof(host) - 1);
    snprintf(who, sizeof(who), "dpsctl %s, host %s, pid %d", DPS_VERSION, host, (int)getpid());
    request.job = plan->job;
    request.client = who;
    request.token = (char *)plan->token;
    if (!plan->any_rank) {
        request.want_case = DPS__V1__JOIN_REQUEST__WANT_RANK;
        request.rank = plan->rank;
    }
    if (client_call(client, &dps__v1__training__descriptor, "Join", &request.base, CALL_MS, &reply,
                    &result->status) == 0) {
        *ret = (Dps__V1__JoinReply *)reply;
        return 0;
    }
    result->end = END_OF(join_ends, &result->status);
    if (result->end == LINK_REFUSED && result->status.code == GRPC_FAILED_PRECONDITION)
        ask_how_it_stands(client, plan->job, result);
    return -EREMOTEIO;
}

static void leave(Client *client, uint64_t session)
{
    Dps__V1__SessionRequest request = DPS__V1__SESSION_REQUEST__INIT;
    ProtobufCMessage *reply;
    ClientStatus status;

    request.session = session;
    if (client_call(client, &dps__v1__training__descriptor, "Leave", &request.base, LEAVE_MS,
                    &reply, &status) == 0)
        protobuf_c_message_free_unpacked(reply, NULL);
}

/* ---- feeding --------------------------------------------------------------------------------- */

/* Translates how the feeding ended. */
static void conclude(const FeedOutcome *outcome, LinkResult *result)
{
    switch (outcome->end) {
    case FEED_DONE:
        result->end = LINK_DONE;
        ctl_sanitise_to(outcome->reason, result->reason, sizeof(result->reason));
        break;
    case FEED_ENDED:
        result->status = outcome->status;
        result->end = END_OF(train_ends, &outcome->status);
        break;
    case FEED_WRONG:
        refuse(result, outcome->status.message);
        break;
    case FEED_STOPPED:
        result->end = LINK_STOPPED;
        break;
    }
}

static void feed_session(Client *client, LinkPlan *plan, const Dps__V1__JoinReply *reply,
                         Progress *progress, LinkResult *result)
{
    char problem[400];
    FeedOutcome outcome;
    Fit fit;

    if (fit_check(reply, dataset_info(plan->dataset), plan->data, &fit, problem, sizeof(problem)) <
        0) {
        refuse(result, problem);
        return;
    }
    plan->any_rank = false;
    plan->rank = reply->rank;
    progress->job = plan->job;
    progress->rank = reply->rank;
    progress->step = reply->step;
    progress->round = reply->round;
    result->joined = true;
    feed_run(client, reply->session, plan->dataset, &fit, progress, &outcome);
    result->steps = outcome.steps;
    conclude(&outcome, result);
}

void link_run(LinkPlan *plan, Progress *progress, LinkResult *result)
{
    Dps__V1__JoinReply *reply = NULL;
    Client *client;

    *result = (LinkResult){.end = LINK_REFUSED};
    switch (client_open(plan->address, CONNECT_MS, &client, &result->status)) {
    case 0:
        break;
    case -EINVAL: /* no such form of address */
        return;
    default:
        result->end = LINK_LOST;
        return;
    }
    if (join(client, plan, &reply, result) == 0) {
        feed_session(client, plan, reply, progress, result);
        /* in every case but a lost connection, so that the rank is free at once */
        if (client_is_connected(client) && result->end != LINK_DONE && !plan->managed)
            leave(client, reply->session);
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    client_free(client);
}
