/* replay FILE|FOLDER…: runs the fuzzer's entry over each file. A finding is a crash. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        perror(path);
        return -1;
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = size >= 0 ? malloc((size_t)size + 1) : NULL;
    int r = -1;
    if (data && fread(data, 1, (size_t)size, file) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        r = 0;
    }
    free(data);
    fclose(file);
    return r;
}

/* The files run, or -1. */
static int replay(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return replay_file(path) < 0 ? -1 : 1;
    int n = 0;
    const struct dirent *entry;
    while (n >= 0 && (entry = readdir(folder))) {
        char name[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        n = replay_file(name) < 0 ? -1 : n + 1;
    }
    closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
