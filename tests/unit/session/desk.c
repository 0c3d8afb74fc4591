#include "desk.h"

#include <stdio.h>
#include <string.h>

void desk_open_with(Desk *desk, const JobSpec *spec)
{
    world_start(&desk->world);
    desk->job = world_submit(&desk->world, spec);
    trainers_join(&desk->world, desk->job, desk->ranks, spec->trainers);
    desk->session = desk->ranks[0].session;
}

void desk_open(Desk *desk, uint32_t trainers, uint32_t interval)
{
    JobSpec spec = world_spec(trainers, interval);
    desk_open_with(desk, &spec);
}

static int replies;

static void note(Reply *reply, int r, const Error *err)
{
    reply->called++;
    reply->place = ++replies;
    reply->r = r;
    if (r < 0)
        snprintf(reply->message, sizeof reply->message, "%s", err->message);
}

static void on_forward(void *data, int r, const Error *err, uint64_t context, uint64_t version,
                       const float *output, int64_t elements)
{
    Reply *reply = data;
    note(reply, r, err);
    if (r < 0)
        return;
    reply->context = context;
    reply->version = version;
    assert_int_equal(elements, SAMPLES * OUTPUTS);
    memcpy(reply->output, output, sizeof reply->output);
}

void on_backward(void *data, int r, const Error *err, double norm)
{
    note(data, r, err);
    ((Reply *)data)->norm = norm;
}

void on_gradient(void *data, int r, const Error *err, const float *gradient)
{
    Reply *reply = data;
    note(reply, r, err);
    if (r == 0)
        memcpy(reply->gradient, gradient, sizeof reply->gradient);
}

static void on_step(void *data, int r, const Error *err, const StepOutcome *outcome)
{
    Reply *reply = data;
    note(reply, r, err);
    if (r == 0)
        reply->outcome = *outcome;
}

void on_done(void *data, int r, const Error *err)
{
    note(data, r, err);
}

void on_train(void *data, int r, const Error *err, const TrainResult *result)
{
    (void)result;
    note(data, r, err);
}

void forward(Session *session, Reply *reply)
{
    OwnedBatch batch;
    *reply = (Reply){0};
    world_batch(NULL, SAMPLES, &batch);
    session_forward(session, &batch, on_forward, reply);
}

void output_gradient(float gradient[SAMPLES * OUTPUTS])
{
    for (int i = 0; i < SAMPLES * OUTPUTS; i++)
        gradient[i] = i % OUTPUTS == 3 ? -0.25F : 0.02F;
}

void backward(Session *session, uint64_t context, Reply *reply)
{
    float gradient[SAMPLES * OUTPUTS];
    output_gradient(gradient);
    *reply = (Reply){0};
    session_backward(session, context, gradient, SAMPLES * OUTPUTS, on_backward, reply);
}

void step(Session *session, uint64_t context, Reply *reply)
{
    *reply = (Reply){0};
    session_step(session, context, 1.5F, on_step, reply);
}

void train(Session *session, uint64_t number, Reply *reply)
{
    OwnedBatch batch;
    *reply = (Reply){0};
    world_batch(NULL, SAMPLES, &batch);
    session_train(session, number, &batch, false, on_train, reply);
}

void discard(Session *session, uint64_t context, Reply *reply)
{
    *reply = (Reply){0};
    session_discard(session, context, on_done, reply);
}

void read_gradient(Session *session, uint64_t context, Reply *reply)
{
    *reply = (Reply){0};
    session_gradient(session, context, 1, on_gradient, reply);
}
