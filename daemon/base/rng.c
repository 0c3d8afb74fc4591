#include "base/rng.h"

#include <string.h>

/* Multipliers and key increments of Philox4x32, table 2 of the paper. */
enum { ROUNDS = 10 };
static const uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
static const uint32_t increment_0 = 0x9E3779B9, increment_1 = 0xBB67AE85;

void rng_philox4x32(uint32_t counter[4], const uint32_t key[2])
{
    uint32_t key_0 = key[0], key_1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t product_0 = (uint64_t)multiplier_0 * counter[0];
        uint64_t product_1 = (uint64_t)multiplier_1 * counter[2];
        uint32_t next_0 = (uint32_t)(product_1 >> 32) ^ counter[1] ^ key_0;
        uint32_t next_2 = (uint32_t)(product_0 >> 32) ^ counter[3] ^ key_1;
        counter[1] = (uint32_t)product_1;
        counter[3] = (uint32_t)product_0;
        counter[0] = next_0;
        counter[2] = next_2;
        key_0 += increment_0;
        key_1 += increment_1;
    }
}

/* The key has more bits than Philox takes: purpose, a and c are folded into a per-stream key by one
 * Philox call of their own, the step and the block index are the counter. */
static void fold_key(const RngKey *key, uint32_t stream[4])
{
    stream[0] = key->purpose;
    stream[1] = key->a;
    stream[2] = key->c;
    stream[3] = 0x64707321;
    rng_philox4x32(stream, (const uint32_t[2]){(uint32_t)key->seed, (uint32_t)(key->seed >> 32)});
}

static void stream_block(const RngKey *key, const uint32_t stream[4], uint32_t index,
                         uint32_t out[4])
{
    out[0] = index;
    out[1] = (uint32_t)key->b;
    out[2] = (uint32_t)(key->b >> 32);
    out[3] = stream[2];
    rng_philox4x32(out, stream);
}

void rng_block(const RngKey *key, uint32_t index, uint32_t out[4])
{
    uint32_t stream[4];
    fold_key(key, stream);
    stream_block(key, stream, index, out);
}

void rng_words(const RngKey *key, uint64_t first, size_t n, uint32_t *out)
{
    uint32_t stream[4], block[4];
    fold_key(key, stream);
    for (size_t i = 0; i < n;) {
        size_t skip = (first + i) % 4, count = 4 - skip < n - i ? 4 - skip : n - i;
        stream_block(key, stream, (uint32_t)((first + i) / 4), block);
        memcpy(out + i, block + skip, count * sizeof *out);
        i += count;
    }
}

uint32_t rng_word(const RngKey *key, uint64_t index)
{
    uint32_t block[4];
    rng_block(key, (uint32_t)(index / 4), block);
    return block[index % 4];
}

typedef struct WordStream {
    const RngKey *key;
    uint32_t block[4];
    uint64_t next;
} WordStream;

static uint32_t next_word(WordStream *stream)
{
    if (stream->next % 4 == 0)
        rng_block(stream->key, (uint32_t)(stream->next / 4), stream->block);
    return stream->block[stream->next++ % 4];
}

/* Uniform in [0, bound), by rejection of the incomplete last interval. */
static uint64_t below(WordStream *stream, uint64_t bound)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound, value;
    do {
        value = (uint64_t)next_word(stream) << 32;
        value |= next_word(stream);
    } while (value >= limit);
    return value % bound;
}

void rng_permutation(const RngKey *key, uint64_t n, uint64_t *out)
{
    WordStream stream = {.key = key};
    for (uint64_t i = 0; i < n; i++)
        out[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = below(&stream, i), swap = out[i - 1];
        out[i - 1] = out[j];
        out[j] = swap;
    }
}
