#include "memory.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

#define MAGIC UINT32_C(0xd15ea5ed)

/* Before each block of the daemon. A multiple of 16 bytes. */
typedef struct Block {
    struct Block *next, *prev;
    void *caller;
    uint32_t magic, bytes;
} Block;

static Block list = {.next = &list, .prev = &list};
static size_t blocks, total;

/* ---- the simulation's own ----------------------------------------------------------------------
 */

static void *or_end(void *memory)
{
    if (!memory) {
        fprintf(stderr, "dps_sim: out of memory\n");
        abort();
    }
    return memory;
}

void *sim_allocate(size_t bytes)
{
    return memset(or_end(__real_malloc(bytes ? bytes : 1)), 0, bytes);
}

void *sim_resize(void *memory, size_t bytes)
{
    return or_end(__real_realloc(memory, bytes ? bytes : 1));
}

char *sim_copy_text(const char *text)
{
    size_t bytes = strlen(text ? text : "") + 1;
    return memcpy(sim_allocate(bytes), text ? text : "", bytes);
}

void sim_release(void *memory)
{
    __real_free(memory);
}

/* ---- the daemon's ------------------------------------------------------------------------------
 */

static void link_block(Block *block)
{
    block->next = list.next;
    block->prev = &list;
    list.next->prev = block;
    list.next = block;
    blocks++;
    total += block->bytes;
}

static Block *unlink_block(void *memory)
{
    Block *block = (Block *)memory - 1;
    if (block->magic != MAGIC) {
        fprintf(stderr, "dps_sim: %p is freed and was not allocated by the daemon\n", memory);
        abort();
    }
    block->prev->next = block->next;
    block->next->prev = block->prev;
    block->magic = 0;
    blocks--;
    total -= block->bytes;
    return block;
}

static void *allocate(size_t bytes, void *caller)
{
    Block *block = or_end(__real_malloc(sizeof *block + bytes));
    block->magic = MAGIC;
    block->bytes = (uint32_t)bytes;
    block->caller = caller;
    link_block(block);
    return block + 1;
}

void *__wrap_malloc(size_t bytes)
{
    return allocate(bytes, __builtin_return_address(0));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return memset(allocate(count * size, __builtin_return_address(0)), 0, count * size);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    void *fresh = allocate(bytes, __builtin_return_address(0));
    if (memory) {
        const Block *block = (Block *)memory - 1;
        memcpy(fresh, memory, block->bytes < bytes ? block->bytes : bytes);
        __wrap_free(memory);
    }
    return fresh;
}

char *__wrap_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(allocate(bytes, __builtin_return_address(0)), text, bytes);
}

void __wrap_free(void *memory)
{
    if (memory)
        __real_free(unlink_block(memory));
}

void memory_begin(void)
{
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = __wrap_free};
    cJSON_InitHooks(&hooks);
}

size_t memory_blocks(void)
{
    return blocks;
}

size_t memory_bytes(void)
{
    return total;
}

void memory_describe(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const Block *block = list.next; block != &list && used < size; block = block->next)
        used += (size_t)snprintf(text + used, size - used, "%s%u bytes by %p", used ? ", " : "",
                                 block->bytes, block->caller);
}

void memory_drop_all(void)
{
    while (list.next != &list)
        __real_free(unlink_block(list.next + 1));
}
