/* The allocation gateway: every byte Lockstep takes itself comes through here, with overflow-checked sizes.
 * Nothing is allocated inside a training step; ls_memory_calls() lets a test prove it. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define LS_ALIGN 64

/* Zeroed memory for count elements of size bytes, aligned to LS_ALIGN; NULL (with the error said) when there is
 * none or count * size overflows. Free with ls_free. */
void *ls_alloc(size_t count, size_t size);
/* Grow or shrink an ls_alloc'ed array; new elements are zero. On failure the old array stays valid. */
void *ls_realloc(void *old, size_t old_count, size_t count, size_t size);
void ls_free(void *p);
char *ls_strdup(const char *text);
/* printf into new memory. */
char *ls_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* How often the gateway was asked for memory since the start. */
uint64_t ls_memory_calls(void);
/* The process's largest resident set so far, in bytes. */
uint64_t ls_memory_peak(void);

/* Large zeroed regions on huge pages where the system has them (parameters, activations). */
enum ls_status ls_region_map(size_t bytes, void **region);
void ls_region_unmap(void *region, size_t bytes);

/* Strings and small records that live and die together. */
struct ls_arena {
    struct ls_arena_block *blocks; /* owned */
};
void *ls_arena_take(struct ls_arena *arena, size_t bytes);
char *ls_arena_strdup(struct ls_arena *arena, const char *text);
char *ls_arena_format(struct ls_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_arena_release(struct ls_arena *arena);

#endif
