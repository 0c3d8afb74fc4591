#include "folder.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include <setjmp.h>

#include <cmocka.h>

void folder_make(Folder *folder)
{
    strcpy(folder->path, "/tmp/dps-ctl-data-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
}

const char *folder_path(const Folder *folder, const char *name)
{
    static char paths[8][320];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder->path, name);
    return path;
}

size_t folder_count(const Folder *folder)
{
    DIR *directory = opendir(folder->path);
    struct dirent *entry;
    size_t count = 0;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

void folder_remove(Folder *folder)
{
    DIR *directory = opendir(folder->path);
    struct dirent *entry;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(remove(folder_path(folder, entry->d_name)), 0);
    closedir(directory);
    assert_int_equal(rmdir(folder->path), 0);
}

void folder_write(const Folder *folder, const char *name, const void *data, size_t size)
{
    FILE *file = fopen(folder_path(folder, name), "wb");

    assert_non_null(file);
    if (size > 0)
        assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void folder_write_gz(const Folder *folder, const char *name, const void *data, size_t size)
{
    gzFile file = gzopen(folder_path(folder, name), "wb");

    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
}

uint8_t *folder_read(const Folder *folder, const char *name, size_t *size)
{
    FILE *file = fopen(folder_path(folder, name), "rb");
    uint8_t *data;
    long end;

    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    end = ftell(file);
    rewind(file);
    data = malloc((size_t)end + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)end, file), end);
    fclose(file);
    *size = (size_t)end;
    return data;
}

void folder_damage(const Folder *folder, const char *name, size_t stride,
                   void (*try)(void *user, const char *what), void *user)
{
    size_t size;
    uint8_t *data = folder_read(folder, name, &size);
    char what[80];

    for (size_t length = 0; length < size; length++) {
        snprintf(what, sizeof(what), "cut to %zu of %zu bytes", length, size);
        folder_write(folder, name, data, length);
        try(user, what);
    }
    for (size_t i = 0; i < size; i += stride)
        for (int bit = 0; bit < 8; bit++) {
            snprintf(what, sizeof(what), "bit %d of byte %zu flipped", bit, i);
            data[i] ^= (uint8_t)(1U << bit);
            folder_write(folder, name, data, size);
            try(user, what);
            data[i] ^= (uint8_t)(1U << bit);
        }
    folder_write(folder, name, data, size);
    free(data);
}
