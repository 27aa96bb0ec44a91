#include "backend/core/store.h"
#include "base/log.h"

#include <assert.h>
#include <string.h>

/* Untouched pages of a chunk cost the host nothing, so a chunk is generous and most models need one to eight. */
#define CHUNK ((size_t)32 << 20)
#define BUCKETS 1024

struct chunk {
    struct chunk *next;
    char *memory;
    size_t used, size;
};

struct ls_store {
    const struct ls_backend *backend; /* whose memory it is */
    struct ls_arena records;          /* entries, their names, and chunks */
    struct ls_store_entry *buckets[BUCKETS];
    struct chunk *chunks;
    size_t bytes;
};

enum ls_status ls_backend_take(const struct ls_backend *b, size_t bytes, void **memory)
{
    return b->queue->take(bytes > 0 ? bytes : 1, memory);
}

void ls_backend_give(const struct ls_backend *b, void *memory, size_t bytes)
{
    if (memory)
        b->queue->give(memory, bytes > 0 ? bytes : 1);
}

struct ls_store *ls_store_new(const struct ls_backend *b)
{
    struct ls_store *s = ls_alloc(1, sizeof *s);
    if (s)
        s->backend = b;
    return s;
}

void ls_store_free(struct ls_store *s)
{
    if (!s)
        return;
    for (int b = 0; b < BUCKETS; b++)
        for (struct ls_store_entry *e = s->buckets[b]; e; e = e->next)
            if (e->layout_release)
                e->layout_release(e->layout);
    for (struct chunk *c = s->chunks; c; c = c->next)
        ls_backend_give(s->backend, c->memory, c->size);
    ls_arena_release(&s->records);
    ls_free(s);
}

/* FNV-1a. */
static size_t bucket_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (size_t)(hash % BUCKETS);
}

struct ls_store_entry *ls_store_find(struct ls_store *s, const char *name)
{
    struct ls_store_entry *e = s->buckets[bucket_of(name)];
    while (e && strcmp(e->name, name) != 0)
        e = e->next;
    return e;
}

static enum ls_status take(struct ls_store *s, size_t bytes, void **memory)
{
    struct chunk *c = s->chunks;
    if (!c || c->size - c->used < bytes) {
        c = ls_arena_take(&s->records, sizeof *c);
        if (!c)
            return LS_FAILED;
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        void *region;
        LS_TRY(ls_backend_take(s->backend, size, &region));
        *c = (struct chunk){.next = s->chunks, .memory = region, .size = size};
        s->chunks = c;
    }
    *memory = c->memory + c->used;
    c->used += bytes;
    return LS_OK;
}

enum ls_status ls_store_note(struct ls_store *s, const char *name, size_t bytes, struct ls_store_entry **entry)
{
    assert(!ls_store_find(s, name));
    struct ls_store_entry *e = ls_arena_take(&s->records, sizeof *e);
    if (!e)
        return LS_FAILED;
    *e = (struct ls_store_entry){.name = ls_arena_strdup(&s->records, name), .bytes = bytes};
    if (!e->name)
        return LS_FAILED;
    size_t bucket = bucket_of(name);
    e->next = s->buckets[bucket];
    s->buckets[bucket] = e;
    *entry = e;
    return LS_OK;
}

enum ls_status ls_store_add(struct ls_store *s, const char *name, size_t bytes, struct ls_store_entry **entry)
{
    void *memory;
    if (bytes > SIZE_MAX - LS_ALIGN)
        return ls_fail(LS_FAILED, "%s: %zu bytes cannot be addressed", name, bytes);
    size_t rounded = (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    LS_TRY(take(s, rounded, &memory));
    LS_TRY(ls_store_note(s, name, bytes, entry));
    (*entry)->memory = memory;
    s->bytes += rounded;
    return LS_OK;
}

size_t ls_store_bytes(const struct ls_store *s)
{
    return s->bytes;
}
