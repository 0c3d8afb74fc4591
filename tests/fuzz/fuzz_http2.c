/* Bytes of a client into the server side of a connection, without sockets.
 *
 * The first byte says how the rest is cut into reads and how the clock moves between them. Served
 * are the standard services, and a stream whose handler takes messages late, as a trainer's does.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "dps.pb-c.h"
#include "fuzz.h"
#include "net/http2.h"
#include "proto/descriptors.h"
#include "rpc/health.h"
#include "rpc/reflection.h"

static uint64_t now_us;

static uint64_t clock_now(void)
{
    return now_us;
}

/* ---- a slow handler -------------------------------------------------------------------------- */

typedef struct Slow {
    Call *call;
    Timers *timers;
    Timer timer;
} Slow;

static void slow_answer(void *data)
{
    const Slow *slow = data;
    Dps__V1__TrainReply reply = DPS__V1__TRAIN_REPLY__INIT;
    if (call_send(slow->call, &reply.base))
        call_resume(slow->call);
}

static void slow_message(Call *call, const ProtobufCMessage *message, void *data)
{
    (void)message;
    Slow *slow = data;
    protobuf_c_message_free_unpacked(call_steal_message(call), NULL);
    timer_arm(slow->timers, &slow->timer, 1000);
}

static void slow_writable(Call *call, void *data)
{
    (void)data;
    call_resume(call);
}

static void slow_free(void *data)
{
    Slow *slow = data;
    timer_cancel(slow->timers, &slow->timer);
    free(slow);
}

static void slow_done(Call *call, void *data)
{
    call_finish(call);
    slow_free(data);
}

static void slow_handle(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {slow_message, slow_done, slow_writable, slow_free};
    (void)message;
    Slow *slow = calloc(1, sizeof *slow);
    if (!slow)
        abort();
    *slow = (Slow){.call = call, .timers = *(Timers **)server, .timer = {.fire = slow_answer}};
    slow->timer.data = slow;
    call_set_events(call, &events, slow);
}

/* ---- the connection -------------------------------------------------------------------------- */

static Timers *timers;
static Health *health;
static Reflection *reflection;
static MethodTable tables[3];
static ServerLimits limits;

static void set_up(void)
{
    static const Method methods[] = {
        {"/dps.v1.Training/Train", &dps__v1__train_request__descriptor, true, true, slow_handle}};
    if (timers)
        return;
    log_set_level(-1);
    limits = server_default_limits;
    limits.message_bytes = 1 << 20;
    limits.send_queue_bytes = 4096;
    if (timers_new(clock_now, &timers) < 0 || health_new(&health) < 0 ||
        reflection_new(dps_descriptors, dps_descriptors_size, &reflection) < 0)
        abort();
    tables[0] = (MethodTable){methods, 1, &timers};
    tables[1] = health_methods(health);
    tables[2] = reflection_methods(reflection);
}

static void no_wake(void *data)
{
    (void)data;
}

/* Takes what the server has to say, up to a bound; whether the connection is still good. */
static bool take_output(Http2 *http2)
{
    const uint8_t *output;
    for (int i = 0; i < 1000; i++) {
        ssize_t n = http2_send(http2, &output);
        if (n <= 0) {
            http2_tell_writable(http2);
            return n == 0 && !http2_is_over(http2);
        }
    }
    return true;
}

static void drive(Http2 *http2, const uint8_t *data, size_t size, uint8_t manner)
{
    static const size_t pieces[] = {1, 7, 64, 100000};
    size_t piece = pieces[manner & 3];
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (http2_receive(http2, data + at, n) < 0 || !take_output(http2))
            return;
        now_us += manner & 4 ? 500 * USEC_PER_MSEC : 100;
        timers_run(timers);
        http2_check(http2, now_us);
        if ((manner & 8) && at == 0)
            http2_drain(http2);
    }
    for (int i = 0; i < 20 && take_output(http2); i++) {
        now_us += USEC_PER_SEC;
        timers_run(timers);
        http2_check(http2, now_us);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (size == 0)
        return 0;
    set_up();
    CallBudget budget = {.limit = 4 << 20};
    Http2Config config = {.limits = &limits,
                          .host = {.timers = timers,
                                   .tables = tables,
                                   .n_tables = 3,
                                   .budget = &budget,
                                   .message_bytes = limits.message_bytes,
                                   .message_us = limits.message_us,
                                   .peer = "fuzzer",
                                   .peer_uid = -1,
                                   .connection = 1},
                          .wake = no_wake};
    Http2 *http2;
    if (http2_new(&config, &http2) < 0)
        abort();
    bool greeted =
        data[0] & 16 || http2_receive(http2, (const uint8_t *)preface, sizeof preface - 1) == 0;
    if (greeted)
        drive(http2, data + 1, size - 1, data[0]);
    http2_free(http2);
    if (budget.used != 0 || timers_next_us(timers) != UINT64_MAX)
        abort(); /* something of the connection is left */
    return 0;
}
