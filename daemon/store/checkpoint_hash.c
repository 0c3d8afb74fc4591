#include <string.h>
#include <xxhash.h>

#include "store/checkpoint.h"

static Hash from_xxh(XXH128_hash_t value)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, value);
    Hash hash;
    memcpy(hash.bytes, canonical.digest, sizeof hash.bytes);
    return hash;
}

Hash hash_bytes(const void *data, size_t bytes)
{
    return from_xxh(XXH3_128bits(data, bytes));
}

bool hash_equal(const Hash *a, const Hash *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

int hasher_new(Hasher **ret)
{
    Hasher *hasher = XXH3_createState();
    if (!hasher)
        return -ENOMEM;
    XXH3_128bits_reset(hasher);
    *ret = hasher;
    return 0;
}

Hasher *hasher_free(Hasher *hasher)
{
    XXH3_freeState(hasher);
    return NULL;
}

void hasher_add(Hasher *hasher, const void *data, size_t bytes)
{
    XXH3_128bits_update(hasher, data, bytes);
}

Hash hasher_end(const Hasher *hasher)
{
    return from_xxh(XXH3_128bits_digest(hasher));
}

/* Little-endian, so that the sum does not depend on the machine. */
static void add_number(Hasher *hasher, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    hasher_add(hasher, bytes, sizeof bytes);
}

/* With its length, so that no two lists of texts read the same. */
static void add_text(Hasher *hasher, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    add_number(hasher, length);
    if (length)
        hasher_add(hasher, text, length);
}

int checkpoint_checksum(const StoredCheckpoint *checkpoint, Hash *ret)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    int r = hasher_new(&hasher);
    if (r < 0)
        return r;
    const CheckpointRecord *record = &checkpoint->record;
    add_number(hasher, record->job);
    add_number(hasher, record->round);
    add_number(hasher, record->step);
    add_number(hasher, record->created_ms);
    add_number(hasher, record->bytes);
    add_text(hasher, record->meta);
    add_number(hasher, checkpoint->n);
    for (size_t i = 0; i < checkpoint->n; i++) {
        const StoredPart *stored = &checkpoint->parts[i];
        add_text(hasher, stored->part.name);
        add_number(hasher, stored->part.bytes);
        add_number(hasher, stored->source);
        hasher_add(hasher, stored->hash.bytes, sizeof stored->hash.bytes);
    }
    *ret = hasher_end(hasher);
    return 0;
}
