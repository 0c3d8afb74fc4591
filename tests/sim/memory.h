/* The memory of the simulated daemon: every malloc, calloc, realloc, strdup and free of the program
 * comes here (the linker's --wrap), so that a kill can take all of it away, and an orderly end is
 * seen to have left nothing. What the simulation itself keeps comes from sim_allocate. */
#pragma once

#include <stddef.h>

/* Zeroed; ends the program where there is none. */
void *sim_allocate(size_t bytes);
void *sim_resize(void *memory, size_t bytes);
char *sim_copy_text(const char *text);
void sim_release(void *memory);

/* Once, before anything else: cJSON's memory is the daemon's, too. */
void memory_begin(void);
/* What the daemon has now. */
size_t memory_blocks(void);
size_t memory_bytes(void);
/* Tells of blocks that are still there: their sizes and who asked for them. */
void memory_describe(char *text, size_t size);
/* The process is gone. */
void memory_drop_all(void);
