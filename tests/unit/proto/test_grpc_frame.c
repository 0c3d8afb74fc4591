#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/grpc_frame.h"

static GrpcFrameParser parser;

static int set_up(void **state)
{
    (void)state;
    grpc_frame_init(&parser, 1000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grpc_frame_free(&parser);
    return 0;
}

static void message_comes_out_whole_when_fed_byte_by_byte(void **state)
{
    (void)state;
    const uint8_t frame[] = {0, 0, 0, 0, 3, 'a', 'b', 'c'};
    size_t taken;
    for (size_t i = 0; i + 1 < sizeof frame; i++) {
        assert_int_equal(grpc_frame_parse(&parser, frame + i, 1, &taken), GRPC_FRAME_MORE);
        assert_int_equal(taken, 1);
        assert_true(grpc_frame_is_partial(&parser));
    }
    assert_int_equal(grpc_frame_parse(&parser, frame + 7, 1, &taken), GRPC_FRAME_MESSAGE);
    assert_false(grpc_frame_is_partial(&parser));
    assert_int_equal(parser.length, 3);
    assert_memory_equal(parser.body, "abc", 3);
}

static void second_message_is_left_for_the_next_call(void **state)
{
    (void)state;
    const uint8_t frames[] = {0, 0, 0, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 'b', 'c'};
    size_t at = 0, taken;
    assert_int_equal(grpc_frame_parse(&parser, frames, sizeof frames, &taken), GRPC_FRAME_MESSAGE);
    assert_int_equal(taken, 6);
    at += taken;
    grpc_frame_next(&parser);
    assert_int_equal(grpc_frame_parse(&parser, frames + at, sizeof frames - at, &taken),
                     GRPC_FRAME_MESSAGE);
    assert_int_equal(parser.length, 0);
    at += taken;
    grpc_frame_next(&parser);
    assert_int_equal(grpc_frame_parse(&parser, frames + at, sizeof frames - at, &taken),
                     GRPC_FRAME_MESSAGE);
    assert_int_equal(parser.length, 2);
    assert_memory_equal(parser.body, "bc", 2);
}

static void declared_length_over_the_limit_is_refused_before_any_body(void **state)
{
    (void)state;
    const uint8_t frame[] = {0, 0xff, 0xff, 0xff, 0xff};
    size_t taken;
    assert_int_equal(grpc_frame_parse(&parser, frame, sizeof frame, &taken), GRPC_FRAME_TOO_LARGE);
    assert_int_equal(parser.length, UINT32_MAX);
    assert_int_equal(parser.capacity, 0);
}

static void memory_follows_what_arrives_not_what_is_declared(void **state)
{
    (void)state;
    grpc_frame_init(&parser, UINT32_MAX);
    const uint8_t frame[] = {0, 0x40, 0, 0, 0, 'x'};
    size_t taken;
    assert_int_equal(grpc_frame_parse(&parser, frame, sizeof frame, &taken), GRPC_FRAME_MORE);
    assert_true(parser.capacity <= 4096);
    uint8_t block[1000] = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(grpc_frame_parse(&parser, block, sizeof block, &taken), GRPC_FRAME_MORE);
    assert_true(parser.capacity <= 2 * 100001);
}

static void large_buffer_is_not_kept_for_the_next_message(void **state)
{
    (void)state;
    grpc_frame_init(&parser, 1 << 20);
    uint8_t header[5];
    grpc_frame_header(header, 1 << 20);
    uint8_t *body = calloc(1, 1 << 20);
    size_t taken;
    grpc_frame_parse(&parser, header, 5, &taken);
    assert_int_equal(grpc_frame_parse(&parser, body, 1 << 20, &taken), GRPC_FRAME_MESSAGE);
    grpc_frame_next(&parser);
    assert_int_equal(parser.capacity, 0);
    free(body);
}

static void compressed_flag_is_told_apart(void **state)
{
    (void)state;
    const uint8_t frame[] = {1, 0, 0, 0, 1, 'a'};
    size_t taken;
    assert_int_equal(grpc_frame_parse(&parser, frame, sizeof frame, &taken), GRPC_FRAME_COMPRESSED);
}

static int64_t parse(const char *text)
{
    return grpc_timeout_parse(text, strlen(text));
}

static void timeouts_of_every_unit(void **state)
{
    (void)state;
    assert_int_equal(parse("1H"), INT64_C(3600000000));
    assert_int_equal(parse("2M"), 120000000);
    assert_int_equal(parse("10S"), 10000000);
    assert_int_equal(parse("250m"), 250000);
    assert_int_equal(parse("7u"), 7);
    assert_int_equal(parse("1n"), 1); /* rounded up: it is no expired deadline yet */
    assert_int_equal(parse("0n"), 0);
}

static void endless_timeouts_are_ten_years(void **state)
{
    (void)state;
    assert_int_equal(parse("99999999H"), INT64_C(10) * 365 * 24 * 3600 * 1000000);
    assert_int_equal(parse("99999999M"), INT64_C(10) * 365 * 24 * 3600 * 1000000);
    assert_int_equal(parse("99999999S"), INT64_C(99999999000000));
}

static void malformed_timeouts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "S",    "10",         "-1S",  "1s",  " 1S",
                                      "1 S", "1.5S", "123456789S", "0x1S", "1SS", "+1S"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(bad[i]), -1);
    assert_int_equal(grpc_timeout_parse("1S\0S", 4), -1);
}

static void formatted_timeouts_parse_to_what_they_were(void **state)
{
    (void)state;
    static const int64_t us[] = {0, 1, 99999999, 100000000, INT64_C(12345678000)};
    char text[16];
    for (size_t i = 0; i < sizeof us / sizeof *us; i++)
        assert_int_equal(parse(grpc_timeout_format(us[i], text, sizeof text)), us[i]);
    assert_true(parse(grpc_timeout_format(INT64_MAX, text, sizeof text)) > 0);
    assert_int_equal(parse(grpc_timeout_format(-5, text, sizeof text)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(message_comes_out_whole_when_fed_byte_by_byte, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(second_message_is_left_for_the_next_call, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(declared_length_over_the_limit_is_refused_before_any_body,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_follows_what_arrives_not_what_is_declared, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(large_buffer_is_not_kept_for_the_next_message, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(compressed_flag_is_told_apart, set_up, tear_down),
        cmocka_unit_test(timeouts_of_every_unit),
        cmocka_unit_test(endless_timeouts_are_ten_years),
        cmocka_unit_test(malformed_timeouts_are_refused),
        cmocka_unit_test(formatted_timeouts_parse_to_what_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
