/* A request's headers, as far as gRPC asks for them. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/http2_internal.h"
#include "proto/grpc_frame.h"

enum { HEADER_OVERHEAD = 32 }; /* RFC 9113, 6.5.2: a header counts its bytes and 32 */

static void take_method(Request *request, const char *value, size_t length)
{
    request->post = length == 4 && memcmp(value, "POST", 4) == 0;
}

static void take_path(Request *request, const char *value, size_t length)
{
    free(request->path);
    request->path = strndup(value, length);
    request->no_memory = !request->path;
}

/* application/grpc, application/grpc+proto, with parameters or without; not grpc-web, grpc+json. */
static void take_content_type(Request *request, const char *value, size_t length)
{
    static const char base[] = "application/grpc";
    static const char proto[] = "+proto";
    size_t used = sizeof base - 1;
    if (length < used || strncasecmp(value, base, used) != 0)
        return;
    if (length - used >= sizeof proto - 1 &&
        strncasecmp(value + used, proto, sizeof proto - 1) == 0)
        used += sizeof proto - 1;
    request->grpc = length == used || value[used] == ';' || value[used] == ' ';
}

static void take_timeout(Request *request, const char *value, size_t length)
{
    request->timeout_us = grpc_timeout_parse(value, length);
    if (request->timeout_us >= 0)
        return;
    size_t n = length < sizeof request->bad_timeout ? length : sizeof request->bad_timeout - 1;
    memcpy(request->bad_timeout, value, n);
    request->bad_timeout[n] = '\0';
    if (n == 0)
        strcpy(request->bad_timeout, "nothing"); /* NOLINT: fits */
}

static const struct {
    const char *name;
    void (*take)(Request *request, const char *value, size_t length);
} known[] = {
    {":method", take_method},
    {":path", take_path},
    {"content-type", take_content_type},
    {"grpc-timeout", take_timeout},
};

void stream_header(Stream *stream, const char *name, size_t name_length, const char *value,
                   size_t value_length)
{
    Request *request = &stream->request;
    request->header_bytes += name_length + value_length + HEADER_OVERHEAD;
    if (request->header_bytes > stream->http2->limits->header_bytes) {
        request->too_large = true;
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == name_length && memcmp(known[i].name, name, name_length) == 0)
            known[i].take(request, value, value_length);
}
