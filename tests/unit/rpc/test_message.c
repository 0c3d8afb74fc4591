#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dps.pb-c.h"
#include "rpc/message.h"
#include "rpc/method.h"
#include "rpc/status_map.h"

static Error err;

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, const void *data,
                                size_t size, int expected)
{
    ProtobufCMessage *message = NULL;
    assert_int_equal(message_unpack(type, data, size, &message, &err), expected);
    return message;
}

static void empty_message_is_one(void **state)
{
    (void)state;
    ProtobufCMessage *message = unpack(&dps__v1__join_request__descriptor, NULL, 0, 0);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void bytes_that_are_no_message_name_the_type(void **state)
{
    (void)state;
    unpack(&dps__v1__join_request__descriptor, "\xff\xff\xff", 3, -EBADMSG);
    assert_non_null(strstr(err.message, "dps.v1.JoinRequest"));
    unpack(&dps__v1__join_request__descriptor,
           "\x1a\x05"
           "ab",
           4, -EBADMSG); /* cut string */
}

static void string_that_is_not_utf8_names_the_field(void **state)
{
    (void)state;
    unpack(&dps__v1__join_request__descriptor, "\x1a\x02\xc3\x28", 4, -EBADMSG);
    assert_non_null(strstr(err.message, "field client of the dps.v1.JoinRequest"));
    /* in a map's entry: JobSpec.options {"\xff": ""} */
    unpack(&dps__v1__job_spec__descriptor, "\xaa\x01\x03\x0a\x01\xff", 6, -EBADMSG);
    assert_non_null(strstr(err.message, "field key"));
}

static void a_member_of_another_oneof_case_is_not_looked_at(void **state)
{
    (void)state;
    /* TrainRequest { start { session: 7 } }: batch shares its memory */
    ProtobufCMessage *message =
        unpack(&dps__v1__train_request__descriptor, "\x0a\x02\x08\x07", 4, 0);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void empty_entries_cannot_take_fifty_times_their_bytes(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    uint8_t *data = malloc(n);
    for (size_t i = 0; i < n; i += 2) { /* UpdateRequest.settings, each an empty entry */
        data[i] = 0x12;
        data[i + 1] = 0;
    }
    unpack(&dps__v1__update_request__descriptor, data, n, -ENOBUFS);
    free(data);
}

static void one_large_tensor_passes(void **state)
{
    (void)state;
    static uint8_t payload[1 << 20];
    Dps__V1__Tensor tensor = DPS__V1__TENSOR__INIT;
    tensor.data = (ProtobufCBinaryData){.data = payload, .len = sizeof payload};
    size_t size = dps__v1__tensor__get_packed_size(&tensor);
    uint8_t *data = malloc(size);
    dps__v1__tensor__pack(&tensor, data);
    ProtobufCMessage *message = unpack(&dps__v1__tensor__descriptor, data, size, 0);
    assert_int_equal(((Dps__V1__Tensor *)message)->data.len, sizeof payload);
    protobuf_c_message_free_unpacked(message, NULL);
    free(data);
}

static void methods_are_found_by_whole_path(void **state)
{
    (void)state;
    static const Method methods[] = {{.path = "/a.B/C"}, {.path = "/a.B/Cd"}};
    int mark;
    const MethodTable table = {methods, 2, &mark};
    void *server = NULL;
    assert_ptr_equal(method_find(&table, 1, "/a.B/Cd", &server), &methods[1]);
    assert_ptr_equal(server, &mark);
    static const char *const others[] = {"", "/", "a.B/C", "/a.B/", "/a.B/C/", "/a.B/c", "/a.B"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(method_find(&table, 1, others[i], &server));
    assert_true(method_service_exists(&table, 1, "/a.B/X"));
    assert_false(method_service_exists(&table, 1, "/a.Bc/X"));
    assert_false(method_service_exists(&table, 1, "x"));
}

static void errnos_have_their_status(void **state)
{
    (void)state;
    assert_int_equal(grpc_status_of_errno(-EINVAL), GRPC_INVALID_ARGUMENT);
    assert_int_equal(grpc_status_of_errno(-ENOENT), GRPC_NOT_FOUND);
    assert_int_equal(grpc_status_of_errno(-ESTALE), GRPC_FAILED_PRECONDITION);
    assert_int_equal(grpc_status_of_errno(-ENOMEM), GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(grpc_status_of_errno(-EAGAIN), GRPC_UNAVAILABLE);
    assert_int_equal(grpc_status_of_errno(-EBADMSG), GRPC_DATA_LOSS);
    assert_int_equal(grpc_status_of_errno(-ELIBBAD), GRPC_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_message_is_one),
        cmocka_unit_test(bytes_that_are_no_message_name_the_type),
        cmocka_unit_test(string_that_is_not_utf8_names_the_field),
        cmocka_unit_test(a_member_of_another_oneof_case_is_not_looked_at),
        cmocka_unit_test(empty_entries_cannot_take_fifty_times_their_bytes),
        cmocka_unit_test(one_large_tensor_passes),
        cmocka_unit_test(methods_are_found_by_whole_path),
        cmocka_unit_test(errnos_have_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
