#include "proto/grpc_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BODY_START = 4096, /* first allocation: most control messages fit */
    /* A body buffer up to this size is kept for the stream's next message, a larger one is freed,
     * so that a stream does not hold on to its largest message. */
    BODY_KEEP = 256 * 1024,
};

void grpc_frame_init(GrpcFrameParser *parser, size_t limit)
{
    *parser = (GrpcFrameParser){.limit = limit};
}

void grpc_frame_free(GrpcFrameParser *parser)
{
    free(parser->body);
    *parser = (GrpcFrameParser){.limit = parser->limit};
}

static size_t take_header(GrpcFrameParser *parser, const uint8_t *data, size_t size)
{
    size_t n = GRPC_FRAME_HEADER - parser->header_used;
    if (n > size)
        n = size;
    memcpy(parser->header + parser->header_used, data, n);
    parser->header_used += n;
    if (parser->header_used == GRPC_FRAME_HEADER)
        parser->length = (size_t)parser->header[1] << 24 | (size_t)parser->header[2] << 16 |
                         (size_t)parser->header[3] << 8 | (size_t)parser->header[4];
    return n;
}

/* Room for `needed` bytes of the body: doubled as data comes in, never past the message's end. */
static bool grow_body(GrpcFrameParser *parser, size_t needed)
{
    if (needed <= parser->capacity)
        return true;
    size_t capacity = parser->capacity * 2;
    if (capacity < BODY_START)
        capacity = BODY_START;
    if (capacity < needed)
        capacity = needed;
    if (capacity > parser->length)
        capacity = parser->length;
    uint8_t *body = realloc(parser->body, capacity);
    if (!body)
        return false;
    parser->body = body;
    parser->capacity = capacity;
    return true;
}

GrpcFrameResult grpc_frame_parse(GrpcFrameParser *parser, const uint8_t *data, size_t size,
                                 size_t *taken)
{
    *taken = 0;
    if (parser->header_used < GRPC_FRAME_HEADER) {
        *taken = take_header(parser, data, size);
        if (parser->header_used < GRPC_FRAME_HEADER)
            return GRPC_FRAME_MORE;
    }
    if (parser->header[0] != 0)
        return GRPC_FRAME_COMPRESSED;
    if (parser->length > parser->limit)
        return GRPC_FRAME_TOO_LARGE;
    size_t n = parser->length - parser->used;
    if (n > size - *taken)
        n = size - *taken;
    if (n > 0) {
        if (!grow_body(parser, parser->used + n))
            return GRPC_FRAME_NO_MEMORY;
        memcpy(parser->body + parser->used, data + *taken, n);
        parser->used += n;
        *taken += n;
    }
    return parser->used == parser->length ? GRPC_FRAME_MESSAGE : GRPC_FRAME_MORE;
}

void grpc_frame_next(GrpcFrameParser *parser)
{
    if (parser->capacity > BODY_KEEP) {
        free(parser->body);
        parser->body = NULL;
        parser->capacity = 0;
    }
    parser->header_used = parser->length = parser->used = 0;
}

bool grpc_frame_is_partial(const GrpcFrameParser *parser)
{
    if (parser->header_used < GRPC_FRAME_HEADER)
        return parser->header_used > 0;
    return parser->used < parser->length;
}

void grpc_frame_header(uint8_t header[GRPC_FRAME_HEADER], uint32_t length)
{
    header[0] = 0;
    header[1] = (uint8_t)(length >> 24);
    header[2] = (uint8_t)(length >> 16);
    header[3] = (uint8_t)(length >> 8);
    header[4] = (uint8_t)length;
}

/* ---- grpc-timeout ---------------------------------------------------------------------------- */

enum { TIMEOUT_DIGITS = 8 }; /* the protocol allows no more */

static const int64_t ten_years_us = INT64_C(10) * 365 * 24 * 3600 * 1000000;

static const struct {
    char unit;
    int64_t ns;
} timeout_units[] = {
    {'n', 1},
    {'u', 1000},
    {'m', 1000000},
    {'S', INT64_C(1000000000)},
    {'M', INT64_C(60) * 1000000000},
    {'H', INT64_C(3600) * 1000000000},
};

enum { N_TIMEOUT_UNITS = sizeof timeout_units / sizeof *timeout_units };

int64_t grpc_timeout_parse(const char *text, size_t length)
{
    if (length < 2 || length > TIMEOUT_DIGITS + 1)
        return -1;
    int64_t amount = 0;
    for (size_t i = 0; i + 1 < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        amount = amount * 10 + (text[i] - '0');
    }
    for (size_t i = 0; i < N_TIMEOUT_UNITS; i++) {
        if (text[length - 1] != timeout_units[i].unit)
            continue;
        int64_t ns = timeout_units[i].ns;
        if (amount > 0 && ns / 1000 > ten_years_us / amount)
            return ten_years_us;
        /* by parts, since 99999999 hours in nanoseconds pass 2^63; parts of a µs count as one */
        return ns >= 1000 ? amount * (ns / 1000) : (amount + 999) / 1000;
    }
    return -1;
}

const char *grpc_timeout_format(int64_t microseconds, char *text, size_t size)
{
    static const struct {
        char unit;
        int64_t us;
    } units[] = {{'u', 1}, {'m', 1000}, {'S', 1000000}, {'H', INT64_C(3600) * 1000000}};
    if (microseconds < 0)
        microseconds = 0;
    if (microseconds > ten_years_us)
        microseconds = ten_years_us;
    size_t i = 0; /* the finest unit whose number has few enough digits */
    while (microseconds / units[i].us > 99999999)
        i++;
    snprintf(text, size, "%lld%c", (long long)(microseconds / units[i].us), units[i].unit);
    return text;
}
