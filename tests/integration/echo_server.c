/* echo_server ADDRESS [NAME=VALUE…]: the gRPC server with a service made for tests. Prints its
 * listeners, one a line, then an empty line; ends on SIGTERM. NAME is a limit of ServerLimits, or
 * "drain_ms": when to drain. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "echo.pb-c.h"
#include "net/loop.h"
#include "net/server.h"
#include "proto/descriptors.h"
#include "rpc/health.h"
#include "rpc/reflection.h"

enum { MAX_PEERS = 1024 };

typedef struct Echo {
    Loop *loop;
    Server *server;
    Health *health;
    Timer drain;
    uint64_t cancelled, disconnected, messages, open_calls;
} Echo;

/* A call that is answered later, or by and by. */
typedef struct Pending {
    Echo *echo;
    Call *call;
    Timer timer;
    uint64_t messages, bytes;
    Dps__Test__EchoRequest *request; /* being delayed */
    uint32_t left, size;             /* of Chunks */
    bool client_done;
} Pending;

static Pending *pending_new(Echo *echo, Call *call)
{
    Pending *pending = calloc(1, sizeof *pending);
    if (!pending) {
        call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    pending->echo = echo;
    pending->call = call;
    pending->timer.data = pending;
    echo->open_calls++;
    return pending;
}

static void pending_free(Pending *pending)
{
    pending->echo->open_calls--;
    timer_cancel(loop_timers(pending->echo->loop), &pending->timer);
    if (pending->request)
        protobuf_c_message_free_unpacked(&pending->request->base, NULL);
    free(pending);
}

static void on_cancel(void *data)
{
    Pending *pending = data;
    pending->echo->cancelled++;
    pending_free(pending);
}

static void fill_reply(Dps__Test__EchoReply *reply, const Call *call,
                       const Dps__Test__EchoRequest *request)
{
    dps__test__echo_reply__init(reply);
    reply->text = request->text;
    reply->data = request->data;
    reply->messages = 1;
    reply->bytes = call_bytes_in(call);
    reply->peer = (char *)call_peer(call);
}

static bool fails(Call *call, const Dps__Test__EchoRequest *request)
{
    if (request->fail_errno == 0)
        return false;
    Error err;
    int r = error_set(&err, -(int)request->fail_errno, "%s", request->text);
    call_fail_error(call, r, &err);
    return true;
}

/* ---- Unary ----------------------------------------------------------------------------------- */

static void unary_answer(void *data)
{
    Pending *pending = data;
    Dps__Test__EchoReply reply;
    fill_reply(&reply, pending->call, pending->request);
    call_reply(pending->call, &reply.base);
    pending_free(pending);
}

static void unary(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_cancel = on_cancel};
    Echo *echo = server;
    const Dps__Test__EchoRequest *request = (const Dps__Test__EchoRequest *)message;
    echo->messages++;
    if (fails(call, request))
        return;
    if (request->delay_ms == 0 && !request->never) {
        Dps__Test__EchoReply reply;
        fill_reply(&reply, call, request);
        call_reply(call, &reply.base);
        return;
    }
    Pending *pending = pending_new(echo, call);
    if (!pending)
        return;
    uint32_t delay_ms = request->delay_ms;
    bool never = request->never;
    pending->request = (Dps__Test__EchoRequest *)call_steal_message(call);
    pending->timer.fire = unary_answer;
    call_set_events(call, &events, pending);
    if (!never)
        timer_arm(loop_timers(echo->loop), &pending->timer, delay_ms * USEC_PER_MSEC);
}

/* ---- Collect and Bidi ------------------------------------------------------------------------ */

static void collect_message(Call *call, const ProtobufCMessage *message, void *data)
{
    Pending *pending = data;
    const Dps__Test__EchoRequest *request = (const Dps__Test__EchoRequest *)message;
    pending->echo->messages++;
    pending->messages++;
    pending->bytes += request->data.len;
    if (request->never)
        return; /* the client is held back from here on */
    if (request->delay_ms > 0)
        timer_arm(loop_timers(pending->echo->loop), &pending->timer,
                  request->delay_ms * USEC_PER_MSEC);
    else
        call_resume(call);
}

static void collect_resume(void *data)
{
    Pending *pending = data;
    call_resume(pending->call);
}

static void collect_done(Call *call, void *data)
{
    Pending *pending = data;
    Dps__Test__EchoReply reply = DPS__TEST__ECHO_REPLY__INIT;
    reply.messages = pending->messages;
    reply.bytes = pending->bytes;
    call_reply(call, &reply.base);
    pending_free(pending);
}

static void collect(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {
        .on_message = collect_message, .on_half_close = collect_done, .on_cancel = on_cancel};
    (void)message;
    Pending *pending = pending_new(server, call);
    if (!pending)
        return;
    pending->timer.fire = collect_resume;
    call_set_events(call, &events, pending);
}

static void bidi_answer(void *data)
{
    Pending *pending = data;
    Dps__Test__EchoReply reply;
    fill_reply(&reply, pending->call, pending->request);
    reply.messages = pending->messages;
    bool more = call_send(pending->call, &reply.base);
    protobuf_c_message_free_unpacked(&pending->request->base, NULL);
    pending->request = NULL;
    if (more)
        call_resume(pending->call);
}

static void bidi_message(Call *call, const ProtobufCMessage *message, void *data)
{
    Pending *pending = data;
    const Dps__Test__EchoRequest *request = (const Dps__Test__EchoRequest *)message;
    pending->echo->messages++;
    pending->messages++;
    if (request->fail_errno) {
        fails(call, request);
        pending_free(pending);
        return;
    }
    uint32_t delay_ms = request->delay_ms;
    pending->request = (Dps__Test__EchoRequest *)call_steal_message(call);
    if (delay_ms > 0)
        timer_arm(loop_timers(pending->echo->loop), &pending->timer, delay_ms * USEC_PER_MSEC);
    else
        bidi_answer(pending);
}

static void bidi_writable(Call *call, void *data)
{
    const Pending *pending = data;
    if (!pending->request)
        call_resume(call);
}

static void bidi_done(Call *call, void *data)
{
    call_finish(call);
    pending_free(data);
}

static void bidi(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_message = bidi_message,
                                      .on_half_close = bidi_done,
                                      .on_writable = bidi_writable,
                                      .on_cancel = on_cancel};
    (void)message;
    Pending *pending = pending_new(server, call);
    if (!pending)
        return;
    pending->timer.fire = bidi_answer;
    call_set_events(call, &events, pending);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static void chunks_go_on(Call *call, void *data)
{
    Pending *pending = data;
    _cleanup_free_ uint8_t *bytes = calloc(1, pending->size + 1);
    bool more = true;
    while (bytes && more && pending->left > 0) {
        Dps__Test__EchoReply reply = DPS__TEST__ECHO_REPLY__INIT;
        reply.messages = ++pending->messages;
        reply.data = (ProtobufCBinaryData){.data = bytes, .len = pending->size};
        pending->left--;
        more = call_send(call, &reply.base);
    }
    if (pending->left > 0)
        return;
    call_finish(call);
    pending_free(pending);
}

static void chunks(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {.on_writable = chunks_go_on, .on_cancel = on_cancel};
    const Dps__Test__ChunksRequest *request = (const Dps__Test__ChunksRequest *)message;
    Pending *pending = pending_new(server, call);
    if (!pending)
        return;
    pending->left = request->count;
    pending->size = request->size;
    call_set_events(call, &events, pending);
    chunks_go_on(call, pending);
}

/* ---- Stats ----------------------------------------------------------------------------------- */

static uint64_t rss_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    if (file && fscanf(file, "%*u %lu", &pages) != 1) /* NOLINT: the kernel's own number */
        pages = 0;
    if (file)
        fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void stats(Call *call, const ProtobufCMessage *message, void *server)
{
    (void)message;
    const Echo *echo = server;
    Dps__Test__StatsReply reply = DPS__TEST__STATS_REPLY__INIT;
    reply.cancelled = echo->cancelled;
    reply.disconnected = echo->disconnected;
    reply.connections = server_connections(echo->server);
    reply.messages = echo->messages;
    reply.rss_bytes = rss_bytes();
    reply.open_calls = echo->open_calls;
    for (uint64_t id = 1; id <= MAX_PEERS; id++) {
        uint64_t silence = server_silence_us(echo->server, id);
        if (silence != UINT64_MAX && silence > reply.largest_silence_us)
            reply.largest_silence_us = silence;
    }
    call_reply(call, &reply.base);
}

/* ---- main ------------------------------------------------------------------------------------ */

static const Method methods[] = {
    {"/dps.test.Echo/Unary", &dps__test__echo_request__descriptor, false, false, unary},
    {"/dps.test.Echo/Collect", &dps__test__echo_request__descriptor, true, false, collect},
    {"/dps.test.Echo/Chunks", &dps__test__chunks_request__descriptor, false, true, chunks},
    {"/dps.test.Echo/Bidi", &dps__test__echo_request__descriptor, true, true, bidi},
    {"/dps.test.Echo/Stats", &dps__test__stats_request__descriptor, false, false, stats},
};

static void on_disconnect(uint64_t connection, void *data)
{
    (void)connection;
    Echo *echo = data;
    echo->disconnected++;
}

static void on_drain(void *data)
{
    Echo *echo = data;
    health_set(echo->health, "", false);
    server_drain(echo->server);
}

static void on_terminate(int signal, void *data)
{
    (void)signal;
    loop_stop(data);
}

/* One NAME=VALUE of the command line. */
static int set_option(ServerLimits *limits, uint64_t *drain_ms, const char *option)
{
    const struct {
        const char *name;
        size_t *size;
        unsigned *number;
        uint64_t *time;
    } options[] = {
        {"connections", .number = &limits->connections},
        {"streams", .number = &limits->streams},
        {"resets", .number = &limits->resets},
        {"control_frames", .number = &limits->control_frames},
        {"message_bytes", .size = &limits->message_bytes},
        {"request_bytes", .size = &limits->request_bytes},
        {"send_queue_bytes", .size = &limits->send_queue_bytes},
        {"header_bytes", .size = &limits->header_bytes},
        {"handshake_us", .time = &limits->handshake_us},
        {"message_us", .time = &limits->message_us},
        {"write_stall_us", .time = &limits->write_stall_us},
        {"keepalive_us", .time = &limits->keepalive_us},
        {"drain_ms", .time = drain_ms},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t length = strlen(options[i].name);
        if (strncmp(option, options[i].name, length) != 0 || option[length] != '=')
            continue;
        unsigned long long value = strtoull(option + length + 1, NULL, 10);
        if (options[i].size)
            *options[i].size = value;
        else if (options[i].number)
            *options[i].number = (unsigned)value;
        else
            *options[i].time = value;
        return 0;
    }
    return -EINVAL;
}

static int run(Echo *echo, const char *address, uint64_t drain_ms)
{
    Error err;
    int r = server_listen(echo->server, address, &err);
    if (r < 0) {
        log_error("%s", err.message);
        return r;
    }
    for (unsigned i = 0; server_listener(echo->server, i); i++)
        printf("%s\n", server_listener(echo->server, i));
    printf("\n");
    fflush(stdout);
    if (drain_ms > 0)
        timer_arm(loop_timers(echo->loop), &echo->drain, drain_ms * USEC_PER_MSEC);
    return loop_run(echo->loop);
}

int main(int argc, char **argv)
{
    ServerLimits limits = server_default_limits;
    uint64_t drain_ms = 0;
    for (int i = 2; i < argc; i++)
        if (set_option(&limits, &drain_ms, argv[i]) < 0)
            argc = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: echo_server ADDRESS [LIMIT=VALUE...]\n");
        return 2;
    }
    log_set_level(LOG_DEBUG);
    Echo echo = {0};
    Reflection *reflection = NULL;
    echo.drain = (Timer){.fire = on_drain, .data = &echo};
    if (loop_new(&echo.loop) < 0 || health_new(&echo.health) < 0 ||
        health_set(echo.health, "", true) < 0 ||
        health_set(echo.health, "dps.test.Echo", true) < 0 ||
        reflection_new(dps_descriptors, dps_descriptors_size, &reflection) < 0 ||
        loop_on_signal(echo.loop, SIGTERM, on_terminate, echo.loop) < 0)
        return 1;
    const MethodTable tables[] = {
        {methods, sizeof methods / sizeof *methods, &echo},
        health_methods(echo.health),
        reflection_methods(reflection),
    };
    const ServerEvents events = {.on_disconnect = on_disconnect, .data = &echo};
    int r = server_new(echo.loop, &limits, tables, 3, &events, &echo.server);
    if (r == 0)
        r = run(&echo, argv[1], drain_ms);
    server_free(echo.server);
    reflection_free(reflection);
    health_free(echo.health);
    loop_free(echo.loop);
    return r < 0;
}
