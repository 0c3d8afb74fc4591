/* Request messages: bytes to a checked protobuf-c message. Pure functions. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "base/error.h"

/* Decodes; free with protobuf_c_message_free_unpacked(message, NULL). -EBADMSG: not such a message,
 * or a string in it is not UTF-8 (err names the field); -ENOBUFS: decoded it takes out of
 * proportion more memory than its bytes; -ENOMEM. */
int message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                   ProtobufCMessage **ret, Error *err);

/* The name of the first string field, at any depth, that is not UTF-8; NULL: all are. */
const char *message_bad_string(const ProtobufCMessage *message);
