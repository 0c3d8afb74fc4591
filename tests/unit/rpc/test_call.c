#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Calls over a transport that only takes notes, with a clock that stands still. */
#include "dps.pb-c.h"
#include "proto/grpc_frame.h"
#include "rpc/transport.h"

/* ---- the transport --------------------------------------------------------------------------- */

static struct {
    size_t sent, consumed;
    unsigned finished;
    GrpcStatus status;
    char message[512];
    bool full;
} wire;

static bool note_send(void *stream, uint8_t *frame, size_t size)
{
    (void)stream;
    wire.sent += size;
    free(frame);
    return !wire.full;
}

static void note_finish(void *stream, GrpcStatus status, const char *message)
{
    (void)stream;
    wire.finished++;
    wire.status = status;
    snprintf(wire.message, sizeof wire.message, "%s", message);
}

static void note_consume(void *stream, size_t bytes)
{
    (void)stream;
    wire.consumed += bytes;
}

static const CallTransport transport = {note_send, note_finish, note_consume};

/* ---- the service ----------------------------------------------------------------------------- */

static struct {
    unsigned messages, half_closes, writables, cancels;
    bool resume; /* inside on_message */
    bool reply_in_handler;
    bool steal;
    ProtobufCMessage *stolen;
    Call *call;
} seen;

static void on_message(Call *call, const ProtobufCMessage *message, void *data)
{
    (void)data;
    assert_non_null(message);
    seen.messages++;
    if (seen.steal)
        seen.stolen = call_steal_message(call);
    if (seen.resume)
        call_resume(call);
}

static void on_half_close(Call *call, void *data)
{
    (void)data;
    seen.half_closes++;
    call_finish(call);
}

static void on_writable(Call *call, void *data)
{
    (void)call;
    (void)data;
    seen.writables++;
}

static void on_cancel(void *data)
{
    (void)data;
    seen.cancels++;
}

static const CallEvents events = {on_message, on_half_close, on_writable, on_cancel};

static void handle(Call *call, const ProtobufCMessage *message, void *server)
{
    (void)server;
    seen.call = call;
    call_set_events(call, &events, NULL);
    if (message)
        seen.messages++;
    if (seen.steal)
        seen.stolen = call_steal_message(call);
    if (seen.reply_in_handler) {
        Dps__V1__Empty reply = DPS__V1__EMPTY__INIT;
        call_reply(call, &reply.base);
    }
}

static const Method methods[] = {
    {"/t.T/Unary", &dps__v1__session_request__descriptor, false, false, handle},
    {"/t.T/Stream", &dps__v1__session_request__descriptor, true, true, handle},
};
static const MethodTable table = {methods, 2, NULL};

/* ---- fixture --------------------------------------------------------------------------------- */

static uint64_t now_us;
static CallBudget budget;
static CallHost host;

static uint64_t clock_now(void)
{
    return now_us;
}

static int set_up(void **state)
{
    (void)state;
    memset(&wire, 0, sizeof wire);
    memset(&seen, 0, sizeof seen);
    now_us = 1000;
    budget = (CallBudget){.limit = 1 << 20};
    host = (CallHost){.transport = &transport,
                      .tables = &table,
                      .n_tables = 1,
                      .budget = &budget,
                      .message_bytes = 1 << 16,
                      .message_us = 1000000,
                      .peer = "test",
                      .peer_uid = -1,
                      .connection = 1};
    return timers_new(clock_now, &host.timers);
}

static int tear_down(void **state)
{
    (void)state;
    if (seen.stolen)
        protobuf_c_message_free_unpacked(seen.stolen, NULL);
    assert_int_equal(timers_next_us(host.timers), UINT64_MAX);
    assert_int_equal(budget.used, 0);
    timers_free(host.timers);
    return 0;
}

static const uint8_t request[] = {0, 0, 0, 0, 2, 0x08, 7}; /* SessionRequest { session: 7 } */

static Call *begin(const char *path)
{
    return call_begin(&host, &wire, path, -1);
}

static void advance(uint64_t us)
{
    now_us += us;
    timers_run(host.timers);
}

/* ---- unary ----------------------------------------------------------------------------------- */

static void unary_is_handled_when_the_request_is_over_not_before(void **state)
{
    (void)state;
    seen.reply_in_handler = true;
    Call *call = begin("/t.T/Unary");
    call_receive(call, request, sizeof request);
    assert_int_equal(seen.messages, 0);
    call_half_close(call);
    assert_int_equal(seen.messages, 1);
    assert_int_equal(wire.finished, 1);
    assert_int_equal(wire.status, GRPC_OK);
    assert_int_equal(wire.sent, 5);
    assert_int_equal(wire.consumed, sizeof request);
}

static void unary_answered_later_with_a_stolen_request(void **state)
{
    (void)state;
    seen.steal = true;
    Call *call = begin("/t.T/Unary");
    call_receive(call, request, sizeof request);
    call_half_close(call);
    assert_int_equal(wire.finished, 0);
    assert_int_equal(((Dps__V1__SessionRequest *)seen.stolen)->session, 7);
    call_fail(seen.call, GRPC_NOT_FOUND, "job %d", 9);
    assert_int_equal(wire.status, GRPC_NOT_FOUND);
    assert_string_equal(wire.message, "job 9");
    assert_int_equal(seen.cancels, 0);
}

static void unary_with_two_messages_is_refused(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Unary");
    call_receive(call, request, sizeof request);
    call_receive(call, request, sizeof request);
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    assert_int_equal(seen.messages, 0);
}

static void unary_without_a_message_is_refused(void **state)
{
    (void)state;
    call_half_close(begin("/t.T/Unary"));
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    assert_non_null(strstr(wire.message, "/t.T/Unary"));
}

static void request_cut_within_a_message_is_refused(void **state)
{
    (void)state;
    for (size_t n = 1; n < sizeof request; n++) {
        wire.finished = 0;
        Call *call = begin("/t.T/Unary");
        call_receive(call, request, n);
        call_half_close(call);
        assert_int_equal(wire.finished, 1);
        assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    }
}

static void undecodable_request_names_method_and_type(void **state)
{
    (void)state;
    const uint8_t bad[] = {0, 0, 0, 0, 1, 0xff};
    Call *call = begin("/t.T/Unary");
    call_receive(call, bad, sizeof bad);
    call_half_close(call);
    assert_int_equal(wire.status, GRPC_INVALID_ARGUMENT);
    assert_non_null(strstr(wire.message, "/t.T/Unary"));
    assert_non_null(strstr(wire.message, "dps.v1.SessionRequest"));
}

static void message_over_the_limit_names_size_and_limit(void **state)
{
    (void)state;
    uint8_t header[5];
    grpc_frame_header(header, 70000);
    call_receive(begin("/t.T/Unary"), header, 5);
    assert_int_equal(wire.status, GRPC_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(wire.message, "70000"));
    assert_non_null(strstr(wire.message, "65536"));
}

static void compressed_message_is_unimplemented(void **state)
{
    (void)state;
    const uint8_t frame[] = {1, 0, 0, 0, 2, 0x08, 7};
    call_receive(begin("/t.T/Stream"), frame, sizeof frame);
    assert_int_equal(wire.status, GRPC_UNIMPLEMENTED);
    assert_int_equal(seen.cancels, 1);
}

static void unknown_path_is_unimplemented_and_named(void **state)
{
    (void)state;
    assert_null(begin("/t.T/Other"));
    assert_int_equal(wire.status, GRPC_UNIMPLEMENTED);
    assert_string_equal(wire.message, "there is no method /t.T/Other");
    assert_null(begin("/x.X/Other"));
    assert_string_equal(wire.message, "there is no method /x.X/Other, nor such a service");
}

/* ---- streams --------------------------------------------------------------------------------- */

static void next_message_waits_for_resume_and_window_with_it(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    for (int i = 0; i < 3; i++)
        call_receive(call, request, sizeof request);
    assert_int_equal(seen.messages, 1);
    assert_int_equal(wire.consumed, sizeof request);
    call_resume(call);
    assert_int_equal(seen.messages, 1); /* not from inside call_resume */
    advance(0);
    assert_int_equal(seen.messages, 2);
    assert_int_equal(wire.consumed, 2 * sizeof request);
    call_resume(call);
    advance(0);
    assert_int_equal(seen.messages, 3);
    assert_int_equal(wire.consumed, 3 * sizeof request);
    call_cancel(call);
    assert_int_equal(seen.cancels, 1);
    assert_int_equal(wire.finished, 0);
}

static void messages_byte_by_byte_and_all_at_once_are_the_same(void **state)
{
    (void)state;
    seen.resume = true;
    uint8_t many[10 * sizeof request];
    for (size_t i = 0; i < 10; i++)
        memcpy(many + i * sizeof request, request, sizeof request);
    Call *call = begin("/t.T/Stream");
    for (size_t i = 0; i < sizeof many; i++)
        call_receive(call, many + i, 1);
    assert_int_equal(seen.messages, 10);
    call_receive(call, many, sizeof many);
    assert_int_equal(seen.messages, 20);
    assert_int_equal(wire.consumed, 2 * sizeof many);
    call_half_close(call);
    assert_int_equal(seen.half_closes, 1);
    assert_int_equal(wire.status, GRPC_OK);
}

static void half_close_comes_after_the_last_message_is_resumed(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    call_receive(call, request, sizeof request);
    call_receive(call, request, sizeof request);
    call_half_close(call);
    call_resume(call);
    advance(0);
    assert_int_equal(seen.messages, 2);
    assert_int_equal(seen.half_closes, 0);
    call_resume(call);
    assert_int_equal(seen.half_closes, 0);
    advance(0);
    assert_int_equal(seen.half_closes, 1);
    assert_int_equal(wire.finished, 1);
}

static void requests_of_all_calls_share_a_budget(void **state)
{
    (void)state;
    budget.limit = 40000;
    uint8_t block[20000] = {0};
    grpc_frame_header(block, 60000);
    Call *first = begin("/t.T/Stream");
    call_receive(first, block, sizeof block);
    assert_int_equal(wire.finished, 0);
    Call *second = begin("/t.T/Stream");
    call_receive(second, block, sizeof block);
    assert_int_equal(wire.finished, 0);
    call_receive(second, block, sizeof block);
    assert_int_equal(wire.finished, 1);
    assert_int_equal(wire.status, GRPC_RESOURCE_EXHAUSTED);
    call_cancel(first);
    assert_int_equal(seen.cancels, 2);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void deadline_ends_the_call_and_tells_the_handler(void **state)
{
    (void)state;
    Call *call = call_begin(&host, &wire, "/t.T/Unary", 5000);
    call_receive(call, request, sizeof request);
    call_half_close(call);
    advance(4999);
    assert_int_equal(wire.finished, 0);
    advance(1);
    assert_int_equal(wire.status, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(seen.cancels, 1);
    assert_int_equal(wire.finished, 1);
}

static void message_that_comes_too_slowly_ends_the_call(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    now_us += 5000000;
    call_check(call, now_us); /* no message has begun: a stream may be quiet */
    call_receive(call, request, 3);
    now_us += 999999;
    call_check(call, now_us);
    assert_int_equal(wire.finished, 0);
    call_receive(call, request + 3, 1);
    now_us += 1;
    call_check(call, now_us);
    assert_int_equal(wire.status, GRPC_DEADLINE_EXCEEDED);
}

static void time_while_the_handler_holds_the_client_back_does_not_count(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    call_receive(call, request, sizeof request);
    call_receive(call, request, 3);
    now_us += 5000000;
    call_check(call, now_us);
    assert_int_equal(wire.finished, 0);
    call_resume(call);
    now_us += 999999;
    call_check(call, now_us);
    assert_int_equal(wire.finished, 0);
    now_us += 1;
    call_check(call, now_us);
    assert_int_equal(wire.finished, 1);
}

static void unary_request_that_never_comes_ends(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Unary");
    now_us += 1000000;
    call_check(call, now_us);
    assert_int_equal(wire.status, GRPC_DEADLINE_EXCEEDED);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer_with_a_string_that_is_not_utf8_fails_after_the_handler(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    Dps__V1__Done done = DPS__V1__DONE__INIT;
    done.reason = (char *)"\xff";
    assert_true(call_send(call, &done.base));
    assert_true(call_send(call, &done.base)); /* the handler may go on */
    assert_int_equal(wire.sent, 0);
    assert_int_equal(wire.finished, 0);
    advance(0);
    assert_int_equal(wire.status, GRPC_INTERNAL);
    assert_non_null(strstr(wire.message, "reason"));
    assert_int_equal(seen.cancels, 1);
}

static void sender_hears_when_the_queue_is_full_and_when_it_is_not(void **state)
{
    (void)state;
    Call *call = begin("/t.T/Stream");
    Dps__V1__Empty reply = DPS__V1__EMPTY__INIT;
    assert_true(call_send(call, &reply.base));
    wire.full = true;
    assert_false(call_send(call, &reply.base));
    assert_true(call_is_full(call));
    call_writable(call);
    assert_false(call_is_full(call));
    assert_int_equal(seen.writables, 1);
    assert_int_equal(call_bytes_out(call), 10);
    call_finish(call);
    assert_int_equal(seen.cancels, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unary_is_handled_when_the_request_is_over_not_before),
        TEST(unary_answered_later_with_a_stolen_request),
        TEST(unary_with_two_messages_is_refused),
        TEST(unary_without_a_message_is_refused),
        TEST(request_cut_within_a_message_is_refused),
        TEST(undecodable_request_names_method_and_type),
        TEST(message_over_the_limit_names_size_and_limit),
        TEST(compressed_message_is_unimplemented),
        TEST(unknown_path_is_unimplemented_and_named),
        TEST(next_message_waits_for_resume_and_window_with_it),
        TEST(messages_byte_by_byte_and_all_at_once_are_the_same),
        TEST(half_close_comes_after_the_last_message_is_resumed),
        TEST(requests_of_all_calls_share_a_budget),
        TEST(deadline_ends_the_call_and_tells_the_handler),
        TEST(message_that_comes_too_slowly_ends_the_call),
        TEST(time_while_the_handler_holds_the_client_back_does_not_count),
        TEST(unary_request_that_never_comes_ends),
        TEST(answer_with_a_string_that_is_not_utf8_fails_after_the_handler),
        TEST(sender_hears_when_the_queue_is_full_and_when_it_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
