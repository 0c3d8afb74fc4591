#include "proto/grpc_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char *const names[] = {
    [GRPC_OK] = "OK",
    [GRPC_CANCELLED] = "CANCELLED",
    [GRPC_UNKNOWN] = "UNKNOWN",
    [GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [GRPC_NOT_FOUND] = "NOT_FOUND",
    [GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [GRPC_ABORTED] = "ABORTED",
    [GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [GRPC_INTERNAL] = "INTERNAL",
    [GRPC_UNAVAILABLE] = "UNAVAILABLE",
    [GRPC_DATA_LOSS] = "DATA_LOSS",
    [GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *grpc_status_name(GrpcStatus status)
{
    if ((unsigned)status >= sizeof names / sizeof *names)
        return names[GRPC_UNKNOWN];
    return names[status];
}

/* How many bytes the UTF-8 character at text has (1 … 4), or 0 where there is none: overlong forms,
 * surrogates and what lies past U+10FFFF are none. text is terminated, so no byte past it is read.
 */
static size_t utf8_length(const uint8_t *text)
{
    static const struct {
        uint8_t first_min, first_max, second_min, second_max;
        size_t length;
    } forms[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (text[0] < forms[i].first_min || text[0] > forms[i].first_max)
            continue;
        if (forms[i].length == 1)
            return 1;
        if (text[1] < forms[i].second_min || text[1] > forms[i].second_max)
            return 0;
        for (size_t j = 2; j < forms[i].length; j++)
            if ((text[j] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

bool grpc_text_is_utf8(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    while (*at) {
        size_t length = utf8_length(at);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

static bool is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte <= 0x7e && byte != '%';
}

static size_t put_escaped(char *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < n; i++) {
        *out++ = '%';
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    return 3 * n;
}

size_t grpc_message_encode(const char *text, char *encoded, size_t size)
{
    static const uint8_t replacement[] = {0xef, 0xbf,
                                          0xbd}; /* U+FFFD, for bytes that are no text */
    const uint8_t *at = (const uint8_t *)text;
    size_t used = 0;
    if (size == 0)
        return 0;
    while (*at) {
        size_t length = utf8_length(at);
        const uint8_t *bytes = length ? at : replacement;
        size_t n = length ? length : sizeof replacement;
        bool plain = n == 1 && is_plain(*bytes);
        size_t need = plain ? 1 : 3 * n;
        if (used + need >= size)
            break;
        if (plain)
            encoded[used] = (char)*bytes;
        else
            put_escaped(encoded + used, bytes, n);
        used += need;
        at += length ? length : 1;
    }
    encoded[used] = '\0';
    return used;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

size_t grpc_message_decode(const char *encoded, char *text, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return 0;
    while (*encoded && used + 1 < size) {
        int high = encoded[0] == '%' ? hex_value(encoded[1]) : -1;
        int low = high >= 0 ? hex_value(encoded[2]) : -1;
        if (low >= 0) {
            text[used++] = (char)(high << 4 | low);
            encoded += 3;
        } else { /* the protocol asks to let a malformed escape stand */
            text[used++] = *encoded++;
        }
    }
    text[used] = '\0';
    return used;
}
