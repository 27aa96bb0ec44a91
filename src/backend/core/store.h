/* Where parameters and state live: a map from tensor name to memory, shared by the programs of one run. The first program that
 * adds a name decides its bytes and layout; later programs follow. Entries and their memory stay at the same address until the
 * store is freed. */
#ifndef LS_BACKEND_CORE_STORE_H
#define LS_BACKEND_CORE_STORE_H

#include "backend/backend.h"

#define LS_STORE_LAYOUT 1024

struct ls_store_entry {
    struct ls_store_entry *next;
    const char *name; /* owned by the store */
    size_t bytes;
    void *memory; /* owned by the store, the backend's; aligned to LS_ALIGN, zero at first; NULL: elsewhere */
    void (*layout_release)(void *layout);                      /* called when the store is freed; NULL: nothing to do */
    size_t layout_bytes;                                       /* 0: plain row-major f32 */
    char layout[LS_STORE_LAYOUT] __attribute__((aligned(16))); /* a backend's own description of the memory */
};

/* The entry of that name, NULL when there is none. */
struct ls_store_entry *ls_store_find(struct ls_store *s, const char *name);
/* A new entry; the name must not be there yet. */
enum ls_status ls_store_add(struct ls_store *s, const char *name, size_t bytes, struct ls_store_entry **entry);
/* The same without memory: of a tensor that is apart (graph.h), whose layout programs share. */
enum ls_status ls_store_note(struct ls_store *s, const char *name, size_t bytes, struct ls_store_entry **entry);
/* Bytes of all entries together, each rounded up to LS_ALIGN. */
size_t ls_store_bytes(const struct ls_store *s);

#endif
