/* Bytes of a request stream through framing, decoding and the checks of a tensor. The first byte
 * says how they are cut. */
#include <stdlib.h>
#include <string.h>

#include "dps.pb-c.h"
#include "fuzz.h"
#include "proto/grpc_frame.h"
#include "proto/grpc_status.h"
#include "proto/tensor.h"
#include "rpc/message.h"

enum { LIMIT = 1 << 16 };

static volatile uint8_t last_byte;

static void look_at_tensor(const Dps__V1__Tensor *tensor)
{
    TensorView view;
    char text[512];
    if (!tensor_view(tensor, "x", &view, text, sizeof text)) {
        if (!*text || !grpc_text_is_utf8(text))
            abort();
        return;
    }
    if (view.bytes != tensor->data.len || view.elements < 0 || view.ndim > TENSOR_MAX_DIMS)
        abort();
    if (view.bytes > 0) /* the last byte is there to be read */
        last_byte = ((const uint8_t *)view.data)[view.bytes - 1];
    tensor_format(&view, text, 8);
    tensor_format(&view, text, sizeof text);
}

static void look_at_message(const uint8_t *body, size_t length)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &dps__v1__tensor__descriptor, &dps__v1__train_request__descriptor,
        &dps__v1__job_spec__descriptor, &dps__v1__update_request__descriptor};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Error err;
        ProtobufCMessage *message = NULL;
        if (message_unpack(types[i], body, length, &message, &err) < 0)
            continue;
        if (i == 0)
            look_at_tensor((const Dps__V1__Tensor *)message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    char *text = malloc(length + 1), encoded[600], decoded[600];
    if (!text)
        abort();
    if (length > 0)
        memcpy(text, body, length);
    text[length] = '\0';
    size_t n = grpc_message_encode(text, encoded, sizeof encoded);
    if (n != strlen(encoded))
        abort();
    grpc_message_decode(encoded, decoded, sizeof decoded);
    if (!grpc_text_is_utf8(decoded))
        abort();
    if (grpc_timeout_parse(text, length) < -1)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = data[0] ? data[0] : size;
    GrpcFrameParser parser;
    grpc_frame_init(&parser, LIMIT);
    for (size_t at = 1; at < size;) {
        size_t n = size - at < piece ? size - at : piece, taken = 0;
        GrpcFrameResult result = grpc_frame_parse(&parser, data + at, n, &taken);
        if (parser.capacity > LIMIT || taken > n)
            abort();
        at += taken;
        if (result == GRPC_FRAME_MESSAGE) {
            look_at_message(parser.body, parser.length);
            grpc_frame_next(&parser);
        } else if (result != GRPC_FRAME_MORE) {
            break;
        }
    }
    grpc_frame_free(&parser);
    return 0;
}
