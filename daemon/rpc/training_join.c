/* Joining, leases one at a time, leaving. */
#include "rpc/training_internal.h"

#include "dps.pb-c.h"
#include "rpc/pack_lease.h"

static void pack_model(const JobPlan *plan, Dps__V1__Normalisation *normalisation,
                       Dps__V1__JoinReply *reply)
{
    const ModelDefaults *defaults = &plan->model->defaults;
    const Shape *output = graph_value_shape(plan->graph, graph_output(plan->graph));
    reply->n_input_dims = (size_t)defaults->input.ndim - 1;
    reply->input_dims = (int64_t *)defaults->input.dims + 1;
    reply->n_output_dims = (size_t)output->ndim - 1;
    reply->output_dims = (int64_t *)output->dims + 1;
    reply->loss = (char *)loss_name(plan->loss);
    normalisation->scale = defaults->scale;
    normalisation->n_mean = normalisation->n_deviation = (size_t)defaults->channels;
    normalisation->mean = (float *)defaults->mean;
    normalisation->deviation = (float *)defaults->deviation;
    reply->normalisation = normalisation;
}

static void pack_joined(const Services *services, const Session *session,
                        Dps__V1__Normalisation *normalisation, Dps__V1__JoinReply *reply)
{
    const Member *member = session_member(session);
    const Job *job = member_job(member);
    const SessionLimits *limits = session_limits(services->sessions);
    reply->session = session_id(session);
    reply->rank = member_rank(member);
    reply->step = member_step(member);
    reply->round = member_round(member);
    reply->samples = job_spec(job)->samples;
    reply->batch = job_spec(job)->batch;
    reply->window = limits->window;
    reply->max_contexts = limits->contexts;
    reply->lease_ms = (uint32_t)(limits->lease_us / 1000);
    pack_model(job_plan(job), normalisation, reply);
}

static int open_session(Call *call, Services *services, const Dps__V1__JoinRequest *request,
                        Session **ret, Error *err)
{
    bool ranked = request->want_case == DPS__V1__JOIN_REQUEST__WANT_RANK;
    JoinWant want = {.any_rank = !ranked,
                     .rank = ranked ? request->rank : 0,
                     .own_data = request->own_data,
                     .token = request->token,
                     .client = *request->client ? request->client : call_peer(call)};
    Job *job = manager_find(services->jobs, request->job);
    return session_open(services->sessions, job, &want, call_connection(call), ret, err);
}

static void attempt(Retry *retry)
{
    Dps__V1__JoinReply reply = DPS__V1__JOIN_REPLY__INIT;
    Dps__V1__Normalisation normalisation = DPS__V1__NORMALISATION__INIT;
    Services *services = retry->pending.services;
    Session *session;
    Error err = {0};
    int r = open_session(retry->pending.call, services, (Dps__V1__JoinRequest *)retry->message,
                         &session, &err);
    if (r == 0)
        pack_joined(services, session, &normalisation, &reply);
    retry_reply(retry, r, &err, &reply.base);
}

void training_join(Call *call, const ProtobufCMessage *message, void *server)
{
    if (call_find_job(call, server, ((const Dps__V1__JoinRequest *)message)->job))
        retry_begin(call, server, attempt);
}

void training_leave(Call *call, const ProtobufCMessage *message, void *server)
{
    Dps__V1__Empty reply = DPS__V1__EMPTY__INIT;
    Session *session =
        call_find_session(call, server, ((const Dps__V1__SessionRequest *)message)->session);
    if (!session)
        return;
    session_leave(session);
    call_reply(call, &reply.base);
}

void training_next_lease(Call *call, const ProtobufCMessage *message, void *server)
{
    Dps__V1__NextLeaseReply reply = DPS__V1__NEXT_LEASE_REPLY__INIT;
    Dps__V1__Lease lease;
    Dps__V1__Done done = DPS__V1__DONE__INIT;
    DealerBatch batch;
    uint64_t step;
    Session *session =
        call_find_session(call, server, ((const Dps__V1__SessionRequest *)message)->session);
    if (!session)
        return;
    int r = session_current_lease(session, &batch, &step);
    if (r == -ENOMEM) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "dpsd is out of memory; try again later");
        return;
    }
    if (r == 0) {
        pack_lease(&batch, step, &lease);
        reply.kind_case = DPS__V1__NEXT_LEASE_REPLY__KIND_LEASE;
        reply.lease = &lease;
    } else {
        done.reason = "no more batches for this rank";
        reply.kind_case = DPS__V1__NEXT_LEASE_REPLY__KIND_DONE;
        reply.done = &done;
    }
    call_reply(call, &reply.base);
}
