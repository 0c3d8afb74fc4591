/* A session on a desk: a world with one job, and every answer written down. */
#pragma once

#include "world.h"

#include "job/job_internal.h"
#include "session/session_internal.h"

enum { OUTPUTS = 10, SAMPLES = 4 };

typedef struct Desk {
    World world;
    Job *job;
    Trainer ranks[2];
    Session *session; /* of rank 0 */
} Desk;

/* What a request was answered with, and as which one of all. */
typedef struct Reply {
    int called, r, place;
    uint64_t context, version;
    StepOutcome outcome;
    double norm;
    float gradient[4]; /* of a bias */
    float output[SAMPLES * OUTPUTS];
    char message[480];
} Reply;

void desk_open(Desk *desk, uint32_t trainers, uint32_t interval);
/* With a spec of its own. */
void desk_open_with(Desk *desk, const JobSpec *spec);

/* Requests; the reply is written when they are answered. */
void forward(Session *session, Reply *reply);
void backward(Session *session, uint64_t context, Reply *reply);
void step(Session *session, uint64_t context, Reply *reply);
void train(Session *session, uint64_t number, Reply *reply);
void discard(Session *session, uint64_t context, Reply *reply);
/* Of the first bias. */
void read_gradient(Session *session, uint64_t context, Reply *reply);
/* The gradient of the output that `backward` sends. */
void output_gradient(float gradient[SAMPLES * OUTPUTS]);

void on_train(void *data, int r, const Error *err, const TrainResult *result);
void on_backward(void *data, int r, const Error *err, double norm);
void on_gradient(void *data, int r, const Error *err, const float *gradient);
void on_done(void *data, int r, const Error *err);
