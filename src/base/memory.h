/* Memory allocation. All memory that Lockstep allocates comes from these functions, with overflow-checked sizes. Nothing is
 * allocated inside a training step; a test checks this with ls_memory_calls(). Any thread may call these functions; an
 * arena belongs to one thread at a time. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define LS_ALIGN 64

/* Allocates zeroed memory for count elements of size bytes, aligned to LS_ALIGN; free it with ls_free. Reports an error and
 * returns NULL if memory is exhausted or count * size overflows. */
void *ls_alloc(size_t count, size_t size);
/* Resizes an array from ls_alloc; new elements are zero. On failure returns NULL and the old array stays valid. */
void *ls_realloc(void *old, size_t old_count, size_t count, size_t size);
void ls_free(void *p);
char *ls_strdup(const char *text);
/* printf into new memory. */
char *ls_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the number of allocations since the start of the process. */
uint64_t ls_memory_calls(void);
/* Returns the largest resident set of the process so far, in bytes. */
uint64_t ls_memory_peak(void);

/* Maps a large zeroed region (parameters, activations), on huge pages if the system has them. */
enum ls_status ls_region_map(size_t bytes, void **region);
void ls_region_unmap(void *region, size_t bytes);
/* Makes bytes of a region zero, and gives whole pages of them back to the system until they are written again. */
void ls_region_drop(void *memory, size_t bytes);

/* An arena holds strings and small records that are freed together. Starts as {0}. */
struct ls_arena {
    struct ls_arena_block *blocks; /* owned */
};
void *ls_arena_take(struct ls_arena *arena, size_t bytes);
char *ls_arena_strdup(struct ls_arena *arena, const char *text);
char *ls_arena_format(struct ls_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_arena_release(struct ls_arena *arena);

#endif
