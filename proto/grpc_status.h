/* gRPC status codes, their names, and the percent-encoding of grpc-message. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum GrpcStatus {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
} GrpcStatus;

/* "INVALID_ARGUMENT"; "UNKNOWN" for a code that is none. */
const char *grpc_status_name(GrpcStatus status);

/* Whether the text is UTF-8, as protobuf asks of strings and gRPC of messages. */
bool grpc_text_is_utf8(const char *text);

/* Percent-encodes `text` as the gRPC protocol asks of grpc-message; always terminates. Returns the
 * length written, cut at a whole character where `size` is too small. Bytes that are not UTF-8
 * become U+FFFD. */
size_t grpc_message_encode(const char *text, char *encoded, size_t size);
size_t grpc_message_decode(const char *encoded, char *text, size_t size);
