#include "rpc/tensor_stream.h"

#include "dps.pb-c.h"

void tensor_stream_begin(TensorStream *stream, const ParamInfo *info, const void *data)
{
    size_t element = info->counter ? sizeof(int64_t) : sizeof(float);
    *stream = (TensorStream){.info = info, .data = data, .bytes = (size_t)info->elements * element};
}

static bool send_chunk(TensorStream *stream, Call *call)
{
    Dps__V1__TensorChunk chunk = DPS__V1__TENSOR_CHUNK__INIT;
    size_t left = stream->bytes - stream->sent;
    size_t size = left < TENSOR_CHUNK_BYTES ? left : TENSOR_CHUNK_BYTES;
    chunk.name = (char *)stream->info->name;
    chunk.dtype = stream->info->counter ? DPS__V1__DTYPE__I64 : DPS__V1__DTYPE__F32;
    chunk.n_dims = (size_t)stream->info->shape.ndim;
    chunk.dims = (int64_t *)stream->info->shape.dims;
    chunk.offset = stream->sent;
    chunk.data.data = (uint8_t *)stream->data + stream->sent;
    chunk.data.len = size;
    stream->sent += size;
    return call_send(call, &chunk.base);
}

bool tensor_stream_send(TensorStream *stream, Call *call)
{
    bool room = !call_is_full(call);
    while (room && stream->sent < stream->bytes)
        room = send_chunk(stream, call);
    if (stream->sent < stream->bytes)
        return false;
    stream->data = NULL;
    return true;
}
