#include "base/rng.h"

/* Multipliers and key increments of Philox4x32, table 2 of the paper. */
enum { ROUNDS = 10 };
static const uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
static const uint32_t increment_0 = 0x9E3779B9, increment_1 = 0xBB67AE85;

static void philox(uint32_t counter[4], uint32_t key_0, uint32_t key_1)
{
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
void rng_block(const RngKey *key, uint32_t index, uint32_t out[4])
{
    uint32_t stream[4] = {key->purpose, key->a, key->c, 0x64707321};
    philox(stream, (uint32_t)key->seed, (uint32_t)(key->seed >> 32));
    out[0] = index;
    out[1] = (uint32_t)key->b;
    out[2] = (uint32_t)(key->b >> 32);
    out[3] = stream[2];
    philox(out, stream[0], stream[1]);
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
