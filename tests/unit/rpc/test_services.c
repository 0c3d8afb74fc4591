/* The services over a transport that only takes notes, on a world without network (../job/world.h):
 * whatever is going on, the client may go at any moment, and so may the job. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dps.pb-c.h"
#include "job/job_internal.h"
#include "proto/grpc_frame.h"
#include "rpc/services.h"
#include "rpc/transport.h"

enum { BATCH = 4, OUTPUTS = 10 };

/* ---- the wire -------------------------------------------------------------------------------- */

typedef struct Wire {
    Call *call; /* NULL once it has ended */
    unsigned messages, finished;
    size_t bytes;
    bool full;
    GrpcStatus status;
    char sentence[512];
    uint8_t *last; /* message */
    size_t last_bytes;
} Wire;

static bool take(void *stream, uint8_t *frame, size_t size)
{
    Wire *wire = stream;
    assert_int_equal(wire->finished, 0);
    wire->messages++;
    wire->bytes += size;
    free(wire->last);
    wire->last = frame;
    wire->last_bytes = size - GRPC_FRAME_HEADER;
    return !wire->full;
}

static void finish(void *stream, GrpcStatus status, const char *message)
{
    Wire *wire = stream;
    wire->finished++;
    wire->call = NULL;
    wire->status = status;
    snprintf(wire->sentence, sizeof wire->sentence, "%s", message);
}

static void consume(void *stream, size_t bytes)
{
    (void)stream;
    (void)bytes;
}

static const CallTransport transport = {take, finish, consume};

typedef struct Server {
    World world;
    Services services;
    MethodTable tables[2];
    CallBudget budget;
    CallHost host;
    Job *job;
    uint64_t session;
} Server;

static void server_open(Server *server, const JobSpec *spec)
{
    world_start(&server->world);
    server->services = (Services){.jobs = server->world.jobs,
                                  .sessions = server->world.sessions,
                                  .store = server->world.store,
                                  .timers = server->world.timers};
    server->tables[0] = control_methods(&server->services);
    server->tables[1] = training_methods(&server->services);
    server->budget.limit = 1 << 26;
    server->host = (CallHost){.transport = &transport,
                              .timers = server->world.timers,
                              .tables = server->tables,
                              .n_tables = 2,
                              .budget = &server->budget,
                              .message_bytes = 1 << 24,
                              .message_us = USEC_PER_SEC,
                              .peer = "uid=0 (root)",
                              .peer_uid = 0,
                              .connection = 77};
    server->job = world_submit(&server->world, spec);
}

static void server_close(Server *server)
{
    session_table_disconnected(server->world.sessions, 77);
    world_stop(&server->world);
    assert_int_equal(server->budget.used, 0);
}

static void begin(Server *server, const char *path, Wire *wire)
{
    *wire = (Wire){0};
    wire->call = call_begin(&server->host, wire, path, -1);
}

static void say(Wire *wire, const void *message)
{
    const ProtobufCMessage *base = message;
    size_t size = protobuf_c_message_get_packed_size(base);
    uint8_t *frame = malloc(GRPC_FRAME_HEADER + size);
    grpc_frame_header(frame, (uint32_t)size);
    protobuf_c_message_pack(base, frame + GRPC_FRAME_HEADER);
    if (wire->call)
        call_receive(wire->call, frame, GRPC_FRAME_HEADER + size);
    free(frame);
}

static void half_close(Wire *wire)
{
    if (wire->call)
        call_half_close(wire->call);
}

static void go_away(Wire *wire)
{
    if (wire->call)
        call_cancel(wire->call);
    wire->call = NULL;
}

static void ask(Server *server, const char *path, const void *message, Wire *wire)
{
    begin(server, path, wire);
    say(wire, message);
    half_close(wire);
}

static void wire_free(Wire *wire)
{
    go_away(wire);
    free(wire->last);
}

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct Samples {
    Dps__V1__Tensor x, y;
    int64_t x_dims[4], y_dims[1];
    float pixels[BATCH * WORLD_WIDTH];
    int64_t classes[BATCH];
} Samples;

static void fill(Samples *samples)
{
    memset(samples, 0, sizeof *samples);
    dps__v1__tensor__init(&samples->x);
    dps__v1__tensor__init(&samples->y);
    memcpy(samples->x_dims, (int64_t[]){BATCH, 1, 28, 28}, sizeof samples->x_dims);
    samples->y_dims[0] = BATCH;
    for (int i = 0; i < BATCH * WORLD_WIDTH; i++)
        samples->pixels[i] = (float)(i % 17) / 17;
    for (int i = 0; i < BATCH; i++)
        samples->classes[i] = i;
    samples->x.dtype = DPS__V1__DTYPE__F32;
    samples->x.dims = samples->x_dims;
    samples->x.n_dims = 4;
    samples->x.data = (ProtobufCBinaryData){sizeof samples->pixels, (uint8_t *)samples->pixels};
    samples->y.dtype = DPS__V1__DTYPE__I64;
    samples->y.dims = samples->y_dims;
    samples->y.n_dims = 1;
    samples->y.data = (ProtobufCBinaryData){sizeof samples->classes, (uint8_t *)samples->classes};
}

static void join(Server *server, uint32_t rank, Wire *wire)
{
    Dps__V1__JoinRequest request = DPS__V1__JOIN_REQUEST__INIT;
    request.job = job_id(server->job);
    request.want_case = DPS__V1__JOIN_REQUEST__WANT_RANK;
    request.rank = rank;
    ask(server, "/dps.v1.Training/Join", &request, wire);
}

static void join_at_once(Server *server, uint32_t rank)
{
    Wire wire;
    join(server, rank, &wire);
    assert_int_equal(wire.status, GRPC_OK);
    Dps__V1__JoinReply *reply =
        dps__v1__join_reply__unpack(NULL, wire.last_bytes, wire.last + GRPC_FRAME_HEADER);
    assert_non_null(reply);
    server->session = reply->session;
    dps__v1__join_reply__free_unpacked(reply, NULL);
    wire_free(&wire);
}

static void say_start(Server *server, Wire *wire)
{
    Dps__V1__TrainRequest request = DPS__V1__TRAIN_REQUEST__INIT;
    Dps__V1__TrainStart start = DPS__V1__TRAIN_START__INIT;
    start.session = server->session;
    request.kind_case = DPS__V1__TRAIN_REQUEST__KIND_START;
    request.start = &start;
    say(wire, &request);
}

static void say_batch(Wire *wire, uint64_t step)
{
    Samples samples;
    Dps__V1__TrainRequest request = DPS__V1__TRAIN_REQUEST__INIT;
    Dps__V1__Batch batch = DPS__V1__BATCH__INIT;
    fill(&samples);
    batch.step = step;
    batch.x = &samples.x;
    batch.y = &samples.y;
    request.kind_case = DPS__V1__TRAIN_REQUEST__KIND_BATCH;
    request.batch = &batch;
    say(wire, &request);
}

static void say_evaluate(Server *server, Wire *wire, bool first)
{
    Samples samples;
    Dps__V1__EvaluateRequest request = DPS__V1__EVALUATE_REQUEST__INIT;
    fill(&samples);
    request.job = first ? job_id(server->job) : 0;
    request.x = &samples.x;
    request.y = &samples.y;
    say(wire, &request);
}

static void forward(Server *server, Wire *wire)
{
    Samples samples;
    Dps__V1__ForwardRequest request = DPS__V1__FORWARD_REQUEST__INIT;
    fill(&samples);
    request.session = server->session;
    request.x = &samples.x;
    ask(server, "/dps.v1.Training/Forward", &request, wire);
}

static void backward(Server *server, uint64_t context, Wire *wire)
{
    float gradient[BATCH * OUTPUTS] = {0.5F};
    int64_t dims[] = {BATCH, OUTPUTS};
    Dps__V1__Tensor tensor = DPS__V1__TENSOR__INIT;
    Dps__V1__BackwardRequest request = DPS__V1__BACKWARD_REQUEST__INIT;
    tensor.dtype = DPS__V1__DTYPE__F32;
    tensor.dims = dims;
    tensor.n_dims = 2;
    tensor.data = (ProtobufCBinaryData){sizeof gradient, (uint8_t *)gradient};
    request.session = server->session;
    request.context = context;
    request.output_gradient = &tensor;
    ask(server, "/dps.v1.Training/Backward", &request, wire);
}

static void with_context(Server *server, const char *path, uint64_t context, Wire *wire)
{
    Dps__V1__ContextRequest request = DPS__V1__CONTEXT_REQUEST__INIT;
    request.session = server->session;
    request.context = context;
    ask(server, path, &request, wire);
}

static void with_job(Server *server, const char *path, Wire *wire)
{
    Dps__V1__JobRequest request = DPS__V1__JOB_REQUEST__INIT;
    request.job = job_id(server->job);
    ask(server, path, &request, wire);
}

/* ---- what a client sees ---------------------------------------------------------------------- */

static void calls_of_the_example_work_one_by_one(void **state)
{
    (void)state;
    Server server = {0};
    Wire wire;
    JobSpec spec = world_spec(1, 100);
    server_open(&server, &spec);
    join_at_once(&server, 0);
    forward(&server, &wire);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_OK);
    assert_int_equal(wire.messages, 1);
    wire_free(&wire);
    backward(&server, 1, &wire);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_OK);
    wire_free(&wire);
    with_context(&server, "/dps.v1.Training/Gradients", 1, &wire);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_OK);
    assert_int_equal(wire.messages, 4);
    wire_free(&wire);
    Dps__V1__StepRequest step = DPS__V1__STEP_REQUEST__INIT;
    step.session = server.session;
    step.context = 1;
    ask(&server, "/dps.v1.Training/Step", &step, &wire);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_OK);
    wire_free(&wire);
    server_close(&server);
}

static void small_tensors_wait_for_a_slow_client(void **state)
{
    (void)state;
    Server server = {0};
    Wire wire;
    Dps__V1__ExportRequest request = DPS__V1__EXPORT_REQUEST__INIT;
    JobSpec spec = world_spec(1, 100);
    server_open(&server, &spec);
    request.job = job_id(server.job);
    begin(&server, "/dps.v1.Control/Export", &wire);
    wire.full = true;
    say(&wire, &request);
    half_close(&wire);
    for (unsigned i = 1; i <= 4; i++) {
        world_settle(&server.world);
        assert_int_equal(wire.messages, i);
        assert_int_equal(wire.finished, i == 4);
        if (wire.call)
            call_writable(wire.call);
    }
    assert_int_equal(wire.status, GRPC_OK);
    wire_free(&wire);
    server_close(&server);
}

static void train_goes_to_the_end(void **state)
{
    (void)state;
    Server server = {0};
    Wire wire;
    JobSpec spec = world_spec(1, 3);
    server_open(&server, &spec);
    join_at_once(&server, 0);
    begin(&server, "/dps.v1.Training/Train", &wire);
    say_start(&server, &wire);
    assert_int_equal(wire.messages, 4); /* leases */
    for (uint64_t step = 0; step < 10; step++)
        say_batch(&wire, step);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_OK);
    assert_int_equal(wire.messages, 10 + 10 + 1); /* leases, results, the end */
    assert_int_equal(world_state(server.job), JOB_COMPLETED);
    wire_free(&wire);
    server_close(&server);
}

static void train_refuses_what_is_no_batch(void **state)
{
    (void)state;
    Server server = {0};
    Wire wire;
    Dps__V1__TrainRequest nothing = DPS__V1__TRAIN_REQUEST__INIT;
    JobSpec spec = world_spec(1, 3);
    server_open(&server, &spec);
    join_at_once(&server, 0);
    begin(&server, "/dps.v1.Training/Train", &wire);
    say_batch(&wire, 0);
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    wire_free(&wire);
    begin(&server, "/dps.v1.Training/Train", &wire);
    say_start(&server, &wire);
    say(&wire, &nothing);
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    wire_free(&wire);
    begin(&server, "/dps.v1.Training/Train", &wire);
    say_start(&server, &wire);
    for (uint64_t step = 5; step < 9; step++)
        say_batch(&wire, step);
    world_settle(&server.world);
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    wire_free(&wire);
    server_close(&server);
}

/* ---- ends at any moment ---------------------------------------------------------------------- */

typedef void (*Scene)(Server *server, Wire *wire, unsigned beat);

static void scene_train(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0) {
        begin(server, "/dps.v1.Training/Train", wire);
        say_start(server, wire);
    }
    say_batch(wire, beat);
    if (beat == 9)
        half_close(wire);
}

static void scene_evaluate(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0)
        begin(server, "/dps.v1.Control/Evaluate", wire);
    if (beat < 5)
        say_evaluate(server, wire, beat == 0);
    if (beat == 5)
        half_close(wire);
}

static void scene_export(Server *server, Wire *wire, unsigned beat)
{
    Dps__V1__ExportRequest request = DPS__V1__EXPORT_REQUEST__INIT;
    request.job = job_id(server->job);
    if (beat == 0) {
        begin(server, "/dps.v1.Control/Export", wire);
        wire->full = true;
        say(wire, &request);
        half_close(wire);
    } else if (wire->call) {
        call_writable(wire->call);
    }
}

static void scene_gradients(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0) {
        begin(server, "/dps.v1.Training/Gradients", wire);
        Dps__V1__ContextRequest request = DPS__V1__CONTEXT_REQUEST__INIT;
        request.session = server->session;
        request.context = 1;
        wire->full = true;
        say(wire, &request);
        half_close(wire);
    } else if (wire->call) {
        call_writable(wire->call);
    }
}

static void scene_metrics(Server *server, Wire *wire, unsigned beat)
{
    Dps__V1__MetricsRequest request = DPS__V1__METRICS_REQUEST__INIT;
    request.job = job_id(server->job);
    if (beat == 0) {
        begin(server, "/dps.v1.Control/Metrics", wire);
        wire->full = true;
        say(wire, &request);
        half_close(wire);
    } else if (wire->call) {
        call_writable(wire->call);
    }
}

static void scene_watch(Server *server, Wire *wire, unsigned beat)
{
    Dps__V1__WatchRequest request = DPS__V1__WATCH_REQUEST__INIT;
    request.job = job_id(server->job);
    if (beat == 0)
        ask(server, "/dps.v1.Control/Watch", &request, wire);
    else
        world_wait(&server->world, 300 * USEC_PER_MSEC);
}

static void scene_checkpoint(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0)
        with_job(server, "/dps.v1.Control/Checkpoint", wire);
}

static void scene_pause(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0)
        with_job(server, "/dps.v1.Control/Pause", wire);
}

static void scene_restore(Server *server, Wire *wire, unsigned beat)
{
    Dps__V1__RestoreRequest request = DPS__V1__RESTORE_REQUEST__INIT;
    request.job = job_id(server->job);
    if (beat == 0)
        ask(server, "/dps.v1.Control/Restore", &request, wire);
}

static void scene_late_join(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0) /* its rank was dropped: tried again until the round ends */
        join(server, 1, wire);
    else
        world_wait(&server->world, 30 * USEC_PER_MSEC);
}

static void scene_forward(Server *server, Wire *wire, unsigned beat)
{
    if (beat == 0)
        forward(server, wire);
}

static const struct {
    const char *name;
    Scene play;
} scenes[] = {
    {"Train", scene_train},           {"Evaluate", scene_evaluate}, {"Export", scene_export},
    {"Gradients", scene_gradients},   {"Metrics", scene_metrics},   {"Watch", scene_watch},
    {"Checkpoint", scene_checkpoint}, {"Pause", scene_pause},       {"Restore", scene_restore},
    {"Join", scene_late_join},        {"Forward", scene_forward},
};

typedef void (*Ending)(Server *server, Wire *wire);

static void client_goes(Server *server, Wire *wire)
{
    (void)server;
    go_away(wire);
}

static void connection_goes(Server *server, Wire *wire)
{
    go_away(wire);
    session_table_disconnected(server->world.sessions, 77);
}

static void session_goes(Server *server, Wire *wire)
{
    (void)wire;
    session_table_disconnected(server->world.sessions, 77);
}

static void ignore(void *data, int r, const Error *err)
{
    (void)data;
    (void)r;
    (void)err;
}

static void job_is_cancelled(Server *server, Wire *wire)
{
    (void)wire;
    job_cancel(server->job, "uid=0", ignore, NULL);
}

static void job_is_restored(Server *server, Wire *wire)
{
    (void)wire;
    job_restore(server->job, 0, "uid=0", ignore, NULL);
}

static void daemon_stops(Server *server, Wire *wire)
{
    (void)server;
    (void)wire;
}

static const Ending endings[] = {client_goes,      connection_goes, session_goes,
                                 job_is_cancelled, job_is_restored, daemon_stops};

static void play(Scene scene, Ending ending, unsigned beats)
{
    Server server = {0};
    Wire wire = {0}, other;
    JobSpec spec = world_spec(2, 2);
    server_open(&server, &spec);
    join_at_once(&server, 0);
    forward(&server, &other);
    world_settle(&server.world);
    wire_free(&other);
    backward(&server, 1, &other);
    world_settle(&server.world);
    wire_free(&other);
    world_checkpoint(&server.world, server.job);
    if (scene == scene_late_join)
        member_drop(&server.job->members[1], "it was late");
    for (unsigned beat = 0; beat < beats; beat++) {
        scene(&server, &wire, beat);
        world_beat(&server.world);
    }
    ending(&server, &wire);
    if (ending != daemon_stops)
        world_settle(&server.world);
    Answer stopped = {0};
    manager_stop(server.world.jobs, NULL, answer_done, &stopped);
    world_settle(&server.world);
    wire_free(&wire);
    world_settle(&server.world);
    server_close(&server);
}

static void whoever_goes_at_any_moment_nothing_is_left(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++)
        for (size_t e = 0; e < sizeof endings / sizeof *endings; e++)
            for (unsigned beats = 1; beats < 9; beats++)
                play(scenes[s].play, endings[e], beats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_the_example_work_one_by_one),
        cmocka_unit_test(small_tensors_wait_for_a_slow_client),
        cmocka_unit_test(train_goes_to_the_end),
        cmocka_unit_test(train_refuses_what_is_no_batch),
        cmocka_unit_test(whoever_goes_at_any_moment_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
