/* Sends one large float or int64 tensor after the other as TensorChunks, as fast as the client
 * takes them. Loop thread; lives inside its call's state. */
#pragma once

#include "model/graph.h"
#include "rpc/call.h"

/* Data bytes of a chunk: with its name and dims it stays under 1 MiB. */
enum { TENSOR_CHUNK_BYTES = (1 << 20) - 4096 };

typedef struct TensorStream {
    const ParamInfo *info;
    const void *data; /* NULL: between two tensors */
    size_t bytes, sent;
} TensorStream;

/* Begins a tensor; data must live until it is sent. */
void tensor_stream_begin(TensorStream *stream, const ParamInfo *info, const void *data);
/* Sends chunks until the tensor is out (true) or the client's queue is full (false: go on when the
 * call is writable). */
bool tensor_stream_send(TensorStream *stream, Call *call);
