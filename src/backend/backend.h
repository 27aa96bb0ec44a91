/* A backend turns a finished graph into a program and runs it. It never sees a model. */
#ifndef LS_BACKEND_BACKEND_H
#define LS_BACKEND_BACKEND_H

#include "base/crop.h"
#include "base/trace.h"
#include "graph/graph.h"
#include "graph/split.h"

/* What changes from one pass to the next; everything else is frozen in the program. */
struct ls_run {
    uint64_t seed, step;
    uint32_t replica;
    int64_t valid;     /* samples of this batch that count; the rest of the batch is padding */
    float grad_scale;  /* 1 / samples of the whole step: gradients of losses are multiplied by it */
    float stat_weight; /* this replica's share of the step's samples, for BN's running statistics */
    float lr;
    bool forward_only;     /* no gradients follow: fp16's loss scale does not count it as a step */
    const double *squares; /* of all gradients, where processes have parts of them (core/clip.h); NULL: they are here */
    bool overflow;         /* f16: another process has a gradient that is not finite */
};

struct ls_backend_options {
    int threads;       /* >= 1 */
    bool reuse;        /* place activations by lifetime (off: they share no memory) */
    bool keep_grads;   /* gradients outlive the pass, in separate memory of grad_bytes */
    bool tune;         /* measure candidate kernels where neither plan nor cache has an answer */
    bool quiet;        /* no messages about progress */
    bool plan_only;    /* only the memory plan counts: prepare tries no kernel, and the program never runs */
    const char *cache; /* file of measured choices, NULL: none */
    /* Kernels to take instead of choosing (lines of ls_backend.choices); NULL: none. With a name, a missing kernel is a
     * warning; with plan_binding it is an error. */
    const char *plan, *plan_name;
    bool plan_binding;
    bool tf32;        /* f32 activations may be multiplied with 10 bits of mantissa (cuda) */
    float loss_scale; /* f16: factor of the gradients of activations; 0: adjusted during training (cuda) */
    bool fast;        /* allow kernels that add in no fixed order (cuda) */
};

/* Parameters and state, shared by the programs of one run (training and evaluation). The first program decides the layout,
 * and later ones follow it. */
struct ls_store;
/* A prepared graph. */
struct ls_program;

/* What a backend computes with on this machine, for people. */
struct ls_backend_about {
    char library[48]; /* "oneDNN 2.6.0" */
    char isa[24];     /* "avx512" */
    char caution[96]; /* "" or what does not work here, and why */
    char bus[24];     /* PCI bus id of the GPU of this process; "": none */
};

/* A GPU that a backend sees. */
struct ls_backend_card {
    char name[96], bus[24];
    int major, minor, multiprocessors; /* compute capability */
    int64_t memory;                    /* bytes */
    bool mine;                         /* this process computes on it */
};

/* The loss scale of fp16, where it is adjusted during training. */
struct ls_loss_scale {
    float scale; /* 0: it is not adjusted */
    int steady;  /* steps since it last changed */
    int skipped; /* steps of this process whose gradients were not finite */
};

enum { LS_TICKET_ROOM = 64 };

/* Every backend has a queue. Everything here and run go by it, in the order of the calls, unless a comment says otherwise;
 * read and write wait for what was enqueued before. On the host (host_queue.h) work is over when its call returns, so that
 * every wait is over at once. */
struct ls_backend_queue {
    /* 0: run returns when its work is over, and results are those of the last run. 1: run only enqueues, and the results of
     * a pass can be taken after the next pass is enqueued. */
    int delay;
    bool own_memory; /* arenas, gradients and parameters lie where the host cannot read or write them */
    /* Zeroed memory for arenas, gradients and parameters. */
    enum ls_status (*take)(size_t bytes, void **memory);
    void (*give)(void *memory, size_t bytes); /* as they were taken; waits for all that was enqueued */
    /* Bytes taken now, and at most so far, by everything in this process; on the host, all of the process's memory. */
    void (*taken)(size_t *now, size_t *most);
    /* Bytes that can still be taken; 0: not known. NULL: those of the host. */
    size_t (*left)(void);
    /* Host memory that copies to and from it are fast with, until it is released; where it cannot be had, nothing. */
    void (*pin)(void *host, size_t bytes);
    void (*unpin)(void *host);
    /* Over floats of the backend's memory: to = from, to = other + to, to = 0. */
    enum ls_status (*copy)(struct ls_program *p, float *to, const float *from, size_t count);
    enum ls_status (*add)(struct ls_program *p, float *to, const float *other, size_t count);
    enum ls_status (*clear)(struct ls_program *p, float *to, size_t count);
    /* Some columns of a matrix of the backend's memory: so many bytes of each row, which lie to_step and from_step bytes apart. */
    enum ls_status (*columns)(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows);
    /* Floats to the host as they are at this point of the queue; runs beside what is enqueued later. arrived waits for the
     * fetch with that mark (0 .. LS_QUEUE_MARKS-1). `host` may be `from` where memory is the host's: nothing is copied. */
    enum ls_status (*fetch)(struct ls_program *p, int mark, float *host, const float *from, size_t count);
    enum ls_status (*arrived)(struct ls_program *p, int mark);
    /* Floats from the host, which must stay until the next read, arrived or results of what was enqueued later; a fetch to
     * the same memory comes after it. */
    enum ls_status (*send)(struct ls_program *p, float *to, const float *host, size_t count);
    /* Like send, for floats first .. first+count-1 of a tensor of the store, in the backend's own layout; copies of them in
     * another type that the backend keeps follow. Only where memory is not the host's; else NULL. */
    enum ls_status (*send_values)(struct ls_program *p, int tensor, const float *host, size_t first, size_t count);
    /* The same from the backend's memory. */
    enum ls_status (*copy_values)(struct ls_program *p, int tensor, const float *from, size_t first, size_t count);
    /* Memory of take that other processes of this machine read in place. lend writes a ticket for them, and the memory stays
     * until the process ends; false: it cannot. map gives the address of such memory in this process, for copy and fetch, until
     * unmap; NULL: it cannot be had. All three are there, or none. */
    bool (*lend)(void *memory, char ticket[LS_TICKET_ROOM]);
    void *(*map)(const char ticket[LS_TICKET_ROOM]);
    void (*unmap)(void *memory);
    /* Losses and ranks of a pass, one read behind: enqueue the fetch of this pass's (`loss` and `rank` of the graph) into
     * `slot` (0 or 1); results waits for that slot and gives them, valid until the slot is asked for again. */
    enum ls_status (*ask)(struct ls_program *p, int slot);
    enum ls_status (*results)(struct ls_program *p, int slot, const float **loss, const int32_t **rank);
    /* Images as bytes, which the backend cuts, mirrors and normalises itself (base/crop.h). All four are there, or all are
     * NULL.
     *
     * Memory for a data set's stored images, to be given back by give; *memory NULL where it would take more than a quarter of
     * what is free. put copies into it and returns when the host's bytes are no longer needed. */
    enum ls_status (*hold)(size_t bytes, void **memory);
    enum ls_status (*put)(void *to, const void *host, size_t bytes);
    /* From now on images come as `pixels` says (copied), cropped out of what is held, or with held NULL out of the bytes
     * that come along; pixels NULL: as planes again. Nothing may be enqueued that still reads the old ones. */
    enum ls_status (*source)(struct ls_program *p, const struct ls_pixels *pixels, const void *held);
    /* Instead of input, for the images of a batch: one crop a sample, and bytes where nothing is held (else NULL). They are
     * copied by the next run, and must stay until the pass's results. */
    enum ls_status (*crops)(struct ls_program *p, const struct ls_crop *crops, const uint8_t *bytes);
    /* A number made of the bits of all parameters that are updated, or of the optimizer's state; NULL: they must be read. */
    enum ls_status (*checksum)(struct ls_program *p, bool optimizer, uint64_t *sum);
    /* What the next step begins with; between steps only. Without fp16, get gives zeros and set does nothing. */
    enum ls_status (*get_scale)(struct ls_program *p, struct ls_loss_scale *scale);
    enum ls_status (*set_scale)(struct ls_program *p, const struct ls_loss_scale *scale);
    /* Record, on tracks of its own, what the device does while the trace is on: about a_step slices a step. trace_end waits
     * for it, adds the slices, and stops; it takes any program of this process and may be called again. Steps that are not
     * recorded run as they do without a trace. NULL: run returns when its work is over. */
    enum ls_status (*trace)(struct ls_program *p, struct ls_trace *trace, size_t a_step);
    void (*trace_end)(struct ls_program *p);
};
#define LS_QUEUE_MARKS 256

/* --- sums over processes ---------------------------------------------------------------------------------------- */

/* How GPUs add the kept gradients of several processes. */
enum ls_peers_kind {
    LS_PEERS_NCCL,  /* NCCL decides the order of additions, for each number of processes; one GPU a process */
    LS_PEERS_MEMORY /* GPUs of one machine read and write each other's memory, in the order of the group */
};

/* A range of the kept gradients that is summed at once. */
struct ls_peers_cut {
    size_t first, count; /* floats */
    int ready;           /* the node that completes it */
};

/* The processes that sum, and their callbacks. Borrowed until close. */
struct ls_peers_group {
    int rank, size;
    const int *nodes; /* the machine of each rank */
    /* The gradients of a rank are its part of the sum. part[to] += part[from], in this order; part[0] becomes the sum. */
    const struct ls_peers_sum {
        int to, from;
    } * sums;
    int n_sums;
    float *grads; /* kept gradients: memory that take gave */
    size_t count;
    /* Gather `bytes` of every rank into all, in the order of ranks. Fails if a rank does not come. */
    enum ls_status (*gather)(void *context, const void *mine, size_t bytes, void *all);
    /* Called now and then while waiting for other ranks, for `seconds` so far. LS_OK: wait on; otherwise give up, with the
     * reason logged. */
    enum ls_status (*check_wait)(void *context, double seconds);
    /* Enqueue what this process adds to a cut before it is summed. The work is the same every time. */
    enum ls_status (*settle)(void *context, int cut);
    /* Enqueue the updates of a step, in place of the nodes behind the pass; NULL: these run. */
    enum ls_status (*update)(void *context, const struct ls_run *run);
    void *context;
};

/* Every rank calls open, share, step and close(together) in the same order. */
struct ls_backend_peers {
    /* Connect all ranks. If one of them cannot, nothing is open and `why` says why, on every rank; else it is "". */
    enum ls_status (*open)(struct ls_program *p, enum ls_peers_kind kind, const struct ls_peers_group *group, char *why,
                           size_t room);
    /* The cuts that a step sums (copied). The pass is nodes 0 .. end-1. The gradients are still zero. */
    enum ls_status (*share)(struct ls_program *p, const struct ls_peers_cut *cuts, int n, int end);
    /* Replaces run for the last pass of a step, the sums of all cuts over all processes, and the updates. With run->valid 0
     * there is no pass, and gradients are zero; scarce: some rank has no samples. From now on read, results and step fail
     * instead of waiting for a lost process. */
    enum ls_status (*step)(struct ls_program *p, const struct ls_run *run, bool scarce);
    /* For update, of LS_PEERS_MEMORY. meet: what any rank has enqueued before it called this comes before what is enqueued behind
     * it; all ranks call it. reach: the kept gradients of a rank, for copy. */
    enum ls_status (*meet)(struct ls_program *p);
    const float *(*reach)(const struct ls_program *p, int rank);
    /* together: all ranks close now, after success. Otherwise wait for no rank: give enqueued work a second, then leave it
     * until the process ends. */
    void (*close)(struct ls_program *p, bool together);
    /* Is NCCL available? text: its version, or why not. */
    bool (*nccl)(char *text, size_t room);
};

/* Why CPU backends refuse these types, and what to do. */
#define LS_GPU_DTYPES "tf32 and fp16 are for --backend cuda; use --dtype f32 or bf16"

/* What works by the contract of a backend, and is refused until somebody has tried it on a device. */
enum ls_untried {
    LS_UNTRIED_SHARD_PARAMETERS = 1,
    LS_UNTRIED_DENSE_EXCHANGE = 2 /* --parallel dense with what workers exchange before an update (exec/clip.h) */
};

struct ls_backend {
    const char *name, *summary;
    const struct ls_backend_queue *queue; /* never NULL */
    const struct ls_backend_peers *peers; /* NULL: the host sums over processes */
    bool measures;                        /* kernels are measured where --tune is left to the backend */
    bool tf32;                            /* --dtype tf32 works */
    bool any_threads;                     /* results do not depend on the number of threads */
    bool dense_1x1;                       /* 1x1 convolutions are better without a stride (ls_graph_fuse) */
    struct ls_split_way split;            /* which large dense layers are divided, and how */
    unsigned untried;                     /* enum ls_untried bits */
    void (*about)(struct ls_backend_about *about);
    /* What the machine advertises and cannot do, found by trying it in a child process: a sentence, or NULL. Call it before
     * prepare. NULL: nothing to try. */
    const char *(*fault)(void);
    /* Lists the GPUs in list[room] and returns their number; 0: none is usable, and why[room_why] says why. NULL: the backend
     * uses no GPU. */
    int (*cards)(struct ls_backend_card *list, int room, char *why, size_t room_why);
    /* Can activations be of this type on this machine? NULL: yes; else why not, and what to do. */
    const char *(*refuses)(enum ls_dtype dtype);
    /* Do models train faster with activations of this type, or with f32 values that are multiplied in tf32, than in f32 on
     * this machine? Why, in a few words; NULL: no. Depends on the hardware alone. NULL: no type is faster. */
    const char *(*faster)(enum ls_dtype dtype, bool tf32);
    /* Choose kernels and plan memory. The caller owns the graph, which must outlive the program; prepare may insert reorder
     * nodes and tensors into it. */
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
    /* Run the nodes first .. last-1. Windows of updates are read before it returns. */
    enum ls_status (*run)(struct ls_program *p, int first, int last, const struct ls_run *run);
    /* Run the nodes again and measure each: seconds[n - first]. NULL: the caller times run. */
    enum ls_status (*profile)(struct ls_program *p, int first, int last, const struct ls_run *run, double *seconds);
    /* Tensor values in plain row-major f32 (i32 for labels and ranks as int32). ACT tensors are readable only
     * where the plan keeps them (reuse off, or last written). */
    enum ls_status (*read)(const struct ls_program *p, int tensor, void *values);
    enum ls_status (*write)(struct ls_program *p, int tensor, const void *values);
    /* Point an INPUT tensor at the caller's memory (plain f32 NCHW images, i32 labels), without a copy; where run only
     * enqueues, it is copied by the next run, and must stay until the pass's results. */
    enum ls_status (*input)(struct ls_program *p, int tensor, const void *values);
    /* Physical memory of a tensor in the backend's own layout (gradients for summing), with its bytes. */
    void *(*memory)(const struct ls_program *p, int tensor, size_t *bytes);
    /* Values of a tensor as they are stored, padding included; its memory may be a little longer. */
    size_t (*stored)(const struct ls_program *p, int tensor);
    /* Gives a tensor that is apart (graph.h) its memory: all of it for read and write, or what its windows hold for run. copy:
     * half as many bytes, for a copy of a parameter in 16 bits, which the backend keeps where passes read one; NULL: it keeps
     * none now. NULL: the backend takes no such tensors. */
    void (*point)(struct ls_program *p, int tensor, void *memory, void *copy);
    /* How a tensor with two dimensions or more lies in memory as a matrix of dim 0 by the rest, or the other way round:
     * value (i, j) at ((i / block) * cols + j) * block + i % block, the columns in any order. False: it does not lie like that. */
    bool (*matrix)(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block);
    /* The squares of the gradient of an update node, added up: one sum, or where its layer is computed in chunks of rows
     * (graph/split.h) one for each chunk that is here. Returns their number; 0: the gradient is not clipped. NULL: --clip-norm
     * needs all gradients in one process. */
    int (*squares)(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]);
    /* Where run only enqueues: waits for all gradients of a step, whose squares `squares` then has. *overflow: with f16, one of
     * them is not finite. NULL: squares takes them as they are. */
    enum ls_status (*inspect)(struct ls_program *p, const struct ls_run *run, bool *overflow);
    /* The kernels that were chosen, as lines that a later prepare takes as its plan; "" where there was no choice. */
    const char *(*choices)(const struct ls_program *p);
    /* Whether two nodes are computed together, or exchange a tensor in a form that only this pair has: a graph with one of them
     * alone computes other bits. NULL: no two are. */
    bool (*joined)(const struct ls_program *p, int node, int other);
    /* One line a node for `lockstep plan`: kernel, layouts, offset; text ends without a newline. */
    void (*describe)(const struct ls_program *p, int node, char *text, size_t room);
};

extern const struct ls_backend *const ls_backends[]; /* ends with NULL */
/* The backend of --backend: "auto" is cuda where there is a GPU and the module was built. Errors are logged. */
enum ls_status ls_backend_open(const char *name, const struct ls_backend **backend);
/* NULL: not built. */
const struct ls_backend *ls_backend_find(const char *name);

/* Zeroed memory for arenas, gradients and parameters, from the backend's queue. give takes NULL, and else the bytes that
 * were taken. */
enum ls_status ls_backend_take(const struct ls_backend *b, size_t bytes, void **memory);
void ls_backend_give(const struct ls_backend *b, void *memory, size_t bytes);

/* Memory comes from ls_backend_take. */
struct ls_store *ls_store_new(const struct ls_backend *b);
void ls_store_free(struct ls_store *s);

/* The start values of a kept tensor that is number `number` among the kept tensors of the whole model. needed: they are not
 * all zero, as a store's memory starts. */
bool ls_start_needed(const struct ls_tensor *t);
void ls_start_values(const struct ls_tensor *t, uint64_t number, uint64_t seed, float *values);
/* Every PARAM and STATE tensor of the program's graph gets its start value (init, from seed); the store is new. */
enum ls_status ls_program_init_params(const struct ls_backend *b, struct ls_program *p, const struct ls_graph *g,
                                      uint64_t seed);

#endif
