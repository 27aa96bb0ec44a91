/* What the programs of all backends have in common: where each tensor and each node's scratch lies.
 *
 * The struct ls_program of a backend begins with a struct ls_program_core. So the functions of this header take any
 * program, and several of them stand in the backend's table (struct ls_backend) as they are.
 *
 *   CORE-1  PARAM, STATE and OPTIMIZER tensors lie in the store. The first program that places a tensor decides its
 *           bytes and its layout; later programs take both from the store. A tensor that is apart has bytes and a
 *           layout, and its memory from ls_program_point.
 *   CORE-2  Kept gradients have memory of their own, one after the other in the order in which a pass completes them.
 *   CORE-3  INPUT tensors have no memory here: they point at what the caller hands over.
 *   CORE-4  All other tensors, and scratch, share the arena by lifetime (graph/plan.h). The scratch of updates of kept
 *           gradients is theirs alone: they may run before the pass has ended (SYNC-2). */
#ifndef LS_BACKEND_CORE_PROGRAM_H
#define LS_BACKEND_CORE_PROGRAM_H

#include "backend/backend.h"
#include "backend/core/store.h"
#include "backend/core/tune_cache.h"
#include "graph/plan.h"

/* Where a tensor lies. */
struct ls_place {
    size_t bytes;  /* as stored */
    char *data;    /* in the store: set when placed; INPUT: by the backend's input; else by bind */
    bool placed;   /* bytes and layout are decided */
    bool unmade;   /* no node writes or reads it after all: it gets no memory */
    int span;      /* in the arena; LS_NONE: it does not lie there */
    size_t offset; /* in the memory of kept gradients */
};

/* Memory of a node in the arena. */
struct ls_node_memory {
    size_t scratch_bytes;
    int scratch_until;  /* last node during which the scratch is used; LS_NONE: this one */
    bool scratch_apart; /* the backend itself provides the scratch */
    size_t keep_bytes;  /* memory that this node fills and node keep_until reads */
    int keep_until;
    int scratch_span, keep_span;
    char *scratch, *keep; /* set by bind; keep: also for node keep_until */
};

struct ls_program_core {
    struct ls_backend_options options;
    struct ls_graph *g;           /* borrowed */
    struct ls_store *store;       /* borrowed */
    struct ls_place *places;      /* one a tensor; owned */
    struct ls_node_memory *nodes; /* one a node; owned */
    int place_room, node_room;
    struct ls_span *spans; /* owned */
    int n_spans;
    size_t arena_bytes, grad_bytes;
    struct ls_tune_cache tune; /* while preparing */
    char *choices;             /* owned */
};

static inline struct ls_program_core *ls_core_of(const struct ls_program *p)
{
    return (struct ls_program_core *)(uintptr_t)p;
}

void ls_program_init(struct ls_program *p, const struct ls_backend_options *options, struct ls_graph *g,
                     struct ls_store *store);
void ls_program_release(struct ls_program *p); /* what the core owns, not p itself */

/* Make places and nodes as long as the graph's lists, which may have grown. */
enum ls_status ls_program_reserve(struct ls_program *p);
/* A node was inserted at `at` into the graph of n_nodes nodes: the memory of later nodes moves up. */
enum ls_status ls_program_insert_node(struct ls_program *p, int at);

bool ls_program_keeps(const struct ls_program *p, int tensor); /* a kept gradient */

/* Give a tensor that has no place yet so many bytes. A tensor of the store gets its entry there, made with `extra`
 * more bytes when it is new (*fresh); *entry is NULL for other tensors. */
enum ls_status ls_program_place(struct ls_program *p, int tensor, size_t bytes, size_t extra,
                                struct ls_store_entry **entry, bool *fresh);

/* How a backend differs from the others in planning. */
struct ls_plan_rules {
    size_t align; /* of every span */
    /* Adjust first and last use of tensors, and the nodes' memory. NULL: nothing to adjust. */
    void (*adjust)(struct ls_program *p, int *first, int *last);
    /* May the node's result lie on its input where the graph allows it? NULL: yes. */
    bool (*in_place)(const struct ls_program *p, int node);
};
enum ls_status ls_program_plan(struct ls_program *p, const struct ls_plan_rules *rules);
/* Kept gradients alone, for a backend that plans nothing else. */
void ls_program_place_grads(struct ls_program *p);

/* The kernel of a node, found by the name of its op in the backend's lists (NULL behind the last one). A kernel is a struct
 * of so many bytes that begins with `const char *op`; a list ends with a NULL op. It is an error when there is none. */
enum ls_status ls_kernel_find(const char *backend, const struct ls_node *node, const void *const *lists, size_t bytes,
                              const void **kernel);

/* For struct ls_backend. bind sets every address that the core knows. */
size_t ls_program_arena_bytes(const struct ls_program *p);
size_t ls_program_grad_bytes(const struct ls_program *p);
void ls_program_bind(struct ls_program *p, void *arena, void *grads);
void *ls_program_memory(const struct ls_program *p, int tensor, size_t *bytes);
void ls_program_point(struct ls_program *p, int tensor, void *memory, void *copy);
const char *ls_program_choices(const struct ls_program *p);
/* "OFFSET+BYTES in place" of a tensor in the arena; "" elsewhere. */
const char *ls_program_where(const struct ls_program *p, int tensor, char text[64]);

#endif
