/* A backend turns a finished graph into a program and runs it. It never sees a model. */
#ifndef LS_BACKEND_BACKEND_H
#define LS_BACKEND_BACKEND_H

#include "graph/graph.h"

/* What changes from one pass to the next; everything else is frozen in the program. */
struct ls_run {
    uint64_t seed, step;
    uint32_t replica;
    int64_t valid;     /* samples of this batch that count; the rest of the batch is padding */
    float grad_scale;  /* 1 / samples of the whole step: losses hand back gradients times this */
    float stat_weight; /* this replica's share of the step's samples, for BN's running statistics */
    float lr;
};

struct ls_backend_options {
    int threads;        /* >= 1 */
    bool reuse;         /* place activations by liveness (off: each has its own room) */
    bool keep_grads;    /* gradients get memory of their own that outlives the pass: grad_bytes */
    bool tune;          /* measure candidate kernels where the cache has no answer */
    const char *cache;  /* file of measured choices, NULL: none */
    const char *record; /* the choices a run began with (ls_backend.choices), which are binding; NULL: none */
};

/* Parameters and state, shared by the programs of one run (training and evaluation): flat memory whose layout
 * the first program decides and later ones follow. */
struct ls_store;
/* A prepared graph. */
struct ls_program;

/* What a backend computes with on this machine, for people. */
struct ls_backend_about {
    char library[48]; /* "oneDNN 2.6.0" */
    char isa[24];     /* "avx512" */
    char caution[96]; /* "" or what it does without here, and why */
};

struct ls_backend {
    const char *name, *summary;
    /* May try things out; before anything else is asked of the backend. */
    void (*about)(struct ls_backend_about *about);
    /* Can activations be of this type on this machine? NULL: yes; else why not, and what to do. */
    const char *(*refuses)(enum ls_dtype dtype);
    /* Kernels chosen, memory planned, arena not yet there. The graph stays owned by the caller and must outlive
     * the program; prepare may append reorder nodes and tensors to it. */
    enum ls_status (*prepare)(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                              struct ls_program **program);
    void (*release)(struct ls_program *p);
    /* Bytes of activation arena the program needs; programs that never run at once may share one arena. */
    size_t (*arena_bytes)(const struct ls_program *p);
    /* Bytes of all GRAD tensors with keep_grads, else 0. They lie there in the order in which a pass completes them, each
     * at a multiple of LS_ALIGN, so that a range of this memory is a range of time. */
    size_t (*grad_bytes)(const struct ls_program *p);
    /* grads: zeroed at first; NULL where grad_bytes is 0. */
    enum ls_status (*bind)(struct ls_program *p, void *arena, void *grads);
    /* Run the nodes first .. last-1. */
    enum ls_status (*run)(struct ls_program *p, int first, int last, const struct ls_run *run);
    /* Tensor values in plain row-major f32 (i32 for labels and ranks as int32). ACT tensors are readable only
     * where the plan keeps them (reuse off, or last written). */
    enum ls_status (*read)(const struct ls_program *p, int tensor, void *values);
    enum ls_status (*write)(struct ls_program *p, int tensor, const void *values);
    /* Point an INPUT tensor at the caller's memory (plain f32 NCHW images, i32 labels), without a copy. */
    enum ls_status (*input)(struct ls_program *p, int tensor, const void *values);
    /* Physical memory of a tensor in the backend's own layout (gradients for summing), with its bytes. */
    void *(*memory)(const struct ls_program *p, int tensor, size_t *bytes);
    /* How a tensor with two dimensions or more lies in memory as a matrix of dim 0 by the rest, or the other way round:
     * value (i, j) at ((i / block) * cols + j) * block + i % block, the columns in any order. False: not like that. */
    bool (*matrix)(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block);
    /* The kernels chosen where there was a choice, as lines that a later prepare takes as its record; "" when none. */
    const char *(*choices)(const struct ls_program *p);
    /* One line a node for `lockstep plan`: kernel, layouts, offset; text ends without a newline. */
    void (*describe)(const struct ls_program *p, int node, char *text, size_t room);
};

extern const struct ls_backend *const ls_backends[]; /* ends with NULL; the one list with #ifdefs */
const struct ls_backend *ls_backend_find(const char *name);

struct ls_store *ls_store_new(void);
void ls_store_free(struct ls_store *s);

/* Every PARAM and STATE tensor of the program's graph gets its start value (init, from seed); the store is new. */
enum ls_status ls_program_init_params(const struct ls_backend *b, struct ls_program *p, const struct ls_graph *g,
                                      uint64_t seed);

#endif
