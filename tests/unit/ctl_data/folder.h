/* A directory of files for one test, and hostile variants of a file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct Folder {
    char path[64];
} Folder;

void folder_make(Folder *folder);
void folder_remove(Folder *folder); /* with the files in it */
/* FOLDER/NAME; valid until the next call but seven. */
const char *folder_path(const Folder *folder, const char *name);

void folder_write(const Folder *folder, const char *name, const void *data, size_t size);
/* The same, gzipped. */
void folder_write_gz(const Folder *folder, const char *name, const void *data, size_t size);
/* Reads a file whole; the caller frees it. */
uint8_t *folder_read(const Folder *folder, const char *name, size_t *size);
size_t folder_count(const Folder *folder); /* files in it */

/* Calls try(user) with the file cut to each shorter length, then with each of its bits flipped
 * (every `stride`th byte), and puts it back. */
void folder_damage(const Folder *folder, const char *name, size_t stride,
                   void (*try)(void *user, const char *what), void *user);
