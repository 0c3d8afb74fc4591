/* gRPC's length-prefixed messages: one byte "compressed", four bytes length (big-endian), the
 * message. An incremental parser that never allocates more than what has arrived, rounded up, and
 * never more than its limit. No I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRPC_FRAME_HEADER = 5 };

typedef struct GrpcFrameParser {
    uint8_t header[GRPC_FRAME_HEADER];
    size_t header_used;
    uint8_t *body; /* grows with what arrives */
    size_t length, used, capacity;
    size_t limit;
} GrpcFrameParser;

typedef enum GrpcFrameResult {
    GRPC_FRAME_MORE,       /* all input taken, no message yet */
    GRPC_FRAME_MESSAGE,    /* parser->body has `length` bytes; grpc_frame_next before parsing on */
    GRPC_FRAME_COMPRESSED, /* the compressed flag is set: not supported */
    GRPC_FRAME_TOO_LARGE,  /* longer than the limit: parser->length says how long */
    GRPC_FRAME_NO_MEMORY,
} GrpcFrameResult;

void grpc_frame_init(GrpcFrameParser *parser, size_t limit);
void grpc_frame_free(GrpcFrameParser *parser);
/* Takes up to `size` bytes; *taken says how many. Errors are final. */
GrpcFrameResult grpc_frame_parse(GrpcFrameParser *parser, const uint8_t *data, size_t size,
                                 size_t *taken);
/* Forgets the message that was returned. */
void grpc_frame_next(GrpcFrameParser *parser);
/* Whether a message has begun and is not whole: a stream that ends now was truncated. */
bool grpc_frame_is_partial(const GrpcFrameParser *parser);

void grpc_frame_header(uint8_t header[GRPC_FRAME_HEADER], uint32_t length);

/* grpc-timeout ("250m", "10S") in microseconds; -1: malformed. Clamped to 10 years. */
int64_t grpc_timeout_parse(const char *text, size_t length);
/* The other way, for clients; returns text. */
const char *grpc_timeout_format(int64_t microseconds, char *text, size_t size);
