#include "rpc/message.h"

#include <stdlib.h>

#include "proto/grpc_status.h"

/* Decoded, a message takes more memory than encoded: a two-byte map entry becomes a struct with
 * strings. These bound it at a few times the bytes received, with room for small messages that are
 * all short entries; so 1 MiB of nothing but empty entries is refused instead of growing
 * fifty-fold. */
enum { UNPACK_FACTOR = 6, UNPACK_SLACK = 512 * 1024 };

/* Counts what protobuf-c allocates. Memory is malloc's, so that the message can be freed without
 * this allocator, by whoever owns it then. */
typedef struct Meter {
    size_t used, limit;
    bool exceeded;
} Meter;

static void *meter_alloc(void *data, size_t size)
{
    Meter *meter = data;
    if (size > meter->limit - meter->used) {
        meter->exceeded = true;
        return NULL;
    }
    meter->used += size;
    return malloc(size ? size : 1);
}

static void meter_free(void *data, void *pointer)
{
    (void)data; /* what was freed still counts: temporary memory is part of the price */
    free(pointer);
}

static const char *bad_string_in(const ProtobufCFieldDescriptor *field, const void *member,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const void *value = ((const void *const *)member)[i];
        if (!value)
            continue;
        if (field->type == PROTOBUF_C_TYPE_STRING && !grpc_text_is_utf8(value))
            return field->name;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            const char *bad = message_bad_string(value);
            if (bad)
                return bad;
        }
    }
    return NULL;
}

/* Depth is bounded by the types: none of the contract's messages contains itself. */
const char *message_bad_string(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const char *base = (const char *)message;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        const void *member = base + field->offset;
        size_t n = 1;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            n = *(const size_t *)(base + field->quantifier_offset);
            member = *(const void *const *)member;
        } else if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
            n = *(const uint32_t *)(base + field->quantifier_offset) == field->id;
        }
        const char *bad = bad_string_in(field, member, n);
        if (bad)
            return bad;
    }
    return NULL;
}

int message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                   ProtobufCMessage **ret, Error *err)
{
    static const uint8_t nothing[1];
    Meter meter = {.limit = UNPACK_SLACK + UNPACK_FACTOR * size};
    ProtobufCAllocator allocator = {
        .alloc = meter_alloc, .free = meter_free, .allocator_data = &meter};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &allocator, size, data ? data : nothing);
    if (!message && meter.exceeded)
        return error_set(err, -ENOBUFS,
                         "the %zu bytes of the %s would take more than %zu bytes of memory", size,
                         type->name, meter.limit);
    if (!message)
        return error_set(err, -EBADMSG, "the %zu bytes received are not a valid %s", size,
                         type->name);
    const char *bad = message_bad_string(message);
    if (bad) {
        protobuf_c_message_free_unpacked(message, NULL);
        return error_set(err, -EBADMSG, "field %s of the %s is not UTF-8", bad, type->name);
    }
    *ret = message;
    return 0;
}
