/* A whole file as bytes: mapped, or inflated into memory when it is gzipped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest inflated file: what a machine that feeds trainers may be asked to hold. A plain file is
 * mapped and has no such limit. */
#define FILE_MAX_INFLATED ((size_t)8 << 30)

typedef struct File {
    const uint8_t *data; /* NULL when empty */
    size_t size;
    bool mapped;
} File;

/* Maps a regular file. -ENOENT, or what the system said. */
int file_map(const char *path, File *ret, char *problem, size_t size);

/* Inflates a gzipped file, of several members too. -EINVAL: not gzip, or corrupt or cut off at the
 * byte that is named; -EFBIG: more than `limit` bytes. */
int file_inflate(const char *path, size_t limit, File *ret, char *problem, size_t size);

/* Unmaps or frees, and empties *file. */
void file_close(File *file);
