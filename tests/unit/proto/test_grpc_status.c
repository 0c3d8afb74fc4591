#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/grpc_status.h"

static void encodes_to(const char *text, const char *expected)
{
    char encoded[256];
    size_t n = grpc_message_encode(text, encoded, sizeof encoded);
    assert_string_equal(encoded, expected);
    assert_int_equal(n, strlen(expected));
}

static void what_is_not_printable_ascii_is_escaped(void **state)
{
    (void)state;
    encodes_to("job 7 is not there", "job 7 is not there");
    encodes_to("100%\n", "100%25%0A");
    encodes_to("gr\xc3\xbc\xc3\x9f", "gr%C3%BC%C3%9F");
}

static void bytes_that_are_no_text_become_replacement_characters(void **state)
{
    (void)state;
    encodes_to("a\xff"
               "b",
               "a%EF%BF%BDb");
    encodes_to("\xc3", "%EF%BF%BD");                           /* cut character */
    encodes_to("\xed\xa0\x80", "%EF%BF%BD%EF%BF%BD%EF%BF%BD"); /* surrogate */
    encodes_to("\xc0\xaf", "%EF%BF%BD%EF%BF%BD");              /* overlong */
}

static void a_message_too_long_is_cut_at_a_whole_character(void **state)
{
    (void)state;
    char encoded[8];
    grpc_message_encode("ab\xc3\xbc", encoded, sizeof encoded);
    assert_string_equal(encoded, "ab"); /* six more would leave no room for the end */
    char exact[9];
    grpc_message_encode("ab\xc3\xbc", exact, sizeof exact);
    assert_string_equal(exact, "ab%C3%BC");
    char none[1] = {'x'};
    assert_int_equal(grpc_message_encode("abc", none, 1), 0);
    assert_string_equal(none, "");
}

static void decoding_undoes_encoding_and_lets_malformed_escapes_stand(void **state)
{
    (void)state;
    char text[64];
    grpc_message_decode("gr%C3%bc 100%25", text, sizeof text);
    assert_string_equal(text, "gr\xc3\xbc 100%");
    grpc_message_decode("5% %4", text, sizeof text);
    assert_string_equal(text, "5% %4");
    grpc_message_decode("%", text, sizeof text);
    assert_string_equal(text, "%");
    grpc_message_decode("abcdef", text, 4);
    assert_string_equal(text, "abc");
}

static void utf8_is_told_from_other_bytes(void **state)
{
    (void)state;
    assert_true(grpc_text_is_utf8(""));
    assert_true(grpc_text_is_utf8("a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"));
    assert_false(grpc_text_is_utf8("\x80"));
    assert_false(grpc_text_is_utf8("\xe2\x82"));
    assert_false(grpc_text_is_utf8("\xf4\x90\x80\x80"));
    assert_false(grpc_text_is_utf8("\xf8\x88\x80\x80\x80"));
}

static void names_of_codes(void **state)
{
    (void)state;
    assert_string_equal(grpc_status_name(GRPC_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    assert_string_equal(grpc_status_name((GrpcStatus)17), "UNKNOWN");
    assert_string_equal(grpc_status_name((GrpcStatus)-1), "UNKNOWN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_printable_ascii_is_escaped),
        cmocka_unit_test(bytes_that_are_no_text_become_replacement_characters),
        cmocka_unit_test(a_message_too_long_is_cut_at_a_whole_character),
        cmocka_unit_test(decoding_undoes_encoding_and_lets_malformed_escapes_stand),
        cmocka_unit_test(utf8_is_told_from_other_bytes),
        cmocka_unit_test(names_of_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
