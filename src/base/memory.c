#include "base/memory.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static atomic_uint_fast64_t calls;

void *ls_alloc(size_t count, size_t size)
{
    size_t bytes;
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - LS_ALIGN) {
        ls_fail(LS_FAILED, "a block of %zu x %zu bytes cannot be addressed", count, size);
        return NULL;
    }
    bytes = (bytes + LS_ALIGN) / LS_ALIGN * LS_ALIGN;
    void *p = aligned_alloc(LS_ALIGN, bytes);
    if (!p) {
        ls_fail(LS_FAILED, "out of memory: %zu bytes were asked for", bytes);
        return NULL;
    }
    return memset(p, 0, bytes);
}

void *ls_realloc(void *old, size_t old_count, size_t count, size_t size)
{
    void *p = ls_alloc(count, size);
    if (p && old) {
        memcpy(p, old, (old_count < count ? old_count : count) * size);
        ls_free(old);
    }
    return p;
}

void ls_free(void *p)
{
    free(p);
}

char *ls_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ls_alloc(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *ls_format(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : ls_alloc((size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

uint64_t ls_memory_calls(void)
{
    return atomic_load(&calls);
}

uint64_t ls_memory_peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

enum ls_status ls_region_map(size_t bytes, void **region)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (bytes == 0)
        bytes = 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return ls_fail(
            LS_FAILED,
            "out of memory: a region of %zu bytes was asked for; a smaller batch, model or tensor needs less", bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    *region = p;
    return LS_OK;
}

void ls_region_unmap(void *region, size_t bytes)
{
    if (region)
        munmap(region, bytes ? bytes : 1);
}

void ls_region_drop(void *memory, size_t bytes)
{
    const uintptr_t page = 4096;
    uintptr_t first = (uintptr_t)memory, end = first + bytes;
    uintptr_t from = (first + page - 1) / page * page, to = end / page * page;
    if (from >= to || madvise((void *)from, to - from, MADV_DONTNEED) != 0) {
        memset(memory, 0, bytes);
        return;
    }
    memset(memory, 0, from - first);
    memset((void *)to, 0, end - to);
}

struct ls_arena_block {
    struct ls_arena_block *next;
    size_t used, size;
};

#define ARENA_BLOCK ((size_t)16384)
#define ARENA_HEAD ((sizeof(struct ls_arena_block) + 15) / 16 * 16)

void *ls_arena_take(struct ls_arena *arena, size_t bytes)
{
    struct ls_arena_block *block = arena->blocks;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 15) / 16 * 16;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
        block = ls_alloc(1, ARENA_HEAD + size);
        if (!block)
            return NULL;
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *p = (char *)block + ARENA_HEAD + block->used;
    block->used += bytes;
    return p;
}

char *ls_arena_strdup(struct ls_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ls_arena_take(arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *ls_arena_format(struct ls_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : ls_arena_take(arena, (size_t)length + 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void ls_arena_release(struct ls_arena *arena)
{
    while (arena->blocks) {
        struct ls_arena_block *next = arena->blocks->next;
        ls_free(arena->blocks);
        arena->blocks = next;
    }
}
