/* A checkpoint as it lies in the tables, and what its parts of the code share. Store thread.
 *
 * A checkpoint is a row of `checkpoints`, a row of `checkpoint_parts` for each piece and the bytes
 * in `checkpoint_chunks`. Each piece has a hash; the row has a checksum over itself and over the
 * names, sizes and hashes of the pieces. All must agree before anything is handed out. */
#pragma once

#include <stdbool.h>

#include "store/db.h"
#include "store/store.h"

enum {
    CHECKPOINT_CHUNK = 4 << 20, /* bytes a row: SQLite holds a row in memory several times over */
    HASH_BYTES = 16,
};

typedef struct Hash {
    uint8_t bytes[HASH_BYTES]; /* XXH3-128, big-endian */
} Hash;

typedef struct StoredPart {
    CheckpointPart part; /* data is NULL until read */
    Hash hash;
    size_t source; /* the part whose chunks these are: itself or one with a lower number */
} StoredPart;

typedef struct StoredCheckpoint {
    CheckpointRecord record;
    Hash checksum;
    StoredPart *parts;
    size_t n;
} StoredCheckpoint;

/* ---- checkpoint_hash.c ----------------------------------------------------------------------- */

typedef struct XXH3_state_s Hasher; /* xxHash's own state, kept out of this header */

Hash hash_bytes(const void *data, size_t bytes);
bool hash_equal(const Hash *a, const Hash *b);
/* Over everything but id, checksum, valid and problem. -ENOMEM */
int checkpoint_checksum(const StoredCheckpoint *checkpoint, Hash *ret);

/* For bytes that come in pieces. -ENOMEM */
int hasher_new(Hasher **ret);
Hasher *hasher_free(Hasher *hasher);
DEFINE_CLEANUP(Hasher, hasher_free);
void hasher_add(Hasher *hasher, const void *data, size_t bytes);
Hash hasher_end(const Hasher *hasher);

/* ---- checkpoint_read.c ----------------------------------------------------------------------- */

/* The row and the list of parts, whose checksum is compared. Free what is in *ret in any case.
 * -ENOENT; -EBADMSG: torn, err says what is wrong; -EIO, -ENOMEM */
int checkpoint_read(Db *db, uint64_t job, uint64_t id, StoredCheckpoint *ret, Error *err);
/* The bytes of every part, with their hashes compared. With keep they stay in the parts, equal ones
 * shared; else they are read piece by piece and forgotten. Errors as above. */
int checkpoint_read_parts(Db *db, StoredCheckpoint *checkpoint, bool keep, Error *err);
void checkpoint_release(StoredCheckpoint *checkpoint);

/* ---- checkpoint_mark.c ----------------------------------------------------------------------- */

/* Logs that the checkpoint is not usable and records so, with an event. */
void checkpoint_mark_invalid(Db *db, const CheckpointRecord *checkpoint, const char *problem);

/* ---- checkpoint_prune.c ---------------------------------------------------------------------- */

/* Deletes what is older than the job's `keep` newest valid checkpoints, of which one is about to be
 * added. Inside the transaction that adds it, so that its pages are used again. */
int checkpoint_prune(Db *db, uint64_t job, unsigned keep, Error *err);
