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

/* Bytes of a ticket; fetches that may be under way at once. */
enum { LS_TICKET_ROOM = 64, LS_QUEUE_MARKS = 256 };

/* The queue of a backend: copies, sums and results. They and run are executed in the order of the calls, unless a comment
 * says otherwise. read and write wait for what was enqueued before. The host's queue (host_queue.h) has finished every call
 * when it returns, so its waits return at once. Here a device is what computes, also where that is the host. */
struct ls_backend_queue {
    /* 0: run returns when its work is finished, and results are those of the last run. 1: run only enqueues, and the
     * results of a pass can be taken after the next pass is enqueued. */
    int delay;
    bool own_memory; /* the host can neither read nor write the memory of arenas, gradients and parameters */
    /* Allocates zeroed device memory for arenas, gradients and parameters. */
    enum ls_status (*take)(size_t bytes, void **memory);
    /* Frees it, after all enqueued work is finished. bytes: as allocated. */
    void (*give)(void *memory, size_t bytes);
    /* Bytes of device memory that this process has now, and the most that it has had. On the host: all of its memory. */
    void (*taken)(size_t *now, size_t *most);
    /* Bytes of device memory that are free; 0: unknown. NULL: those of the host. */
    size_t (*left)(void);
    /* Pins host memory, so that copies to and from it are fast. Failing is no error: copies are then slower. */
    void (*pin)(void *host, size_t bytes);
    /* Ends that, after all enqueued work is finished: after a failure some of it may still read this memory. */
    void (*unpin)(void *host);
    /* Floats of device memory: to = from; to = other + to; to = 0. */
    enum ls_status (*copy)(struct ls_program *p, float *to, const float *from, size_t count);
    enum ls_status (*add)(struct ls_program *p, float *to, const float *other, size_t count);
    enum ls_status (*clear)(struct ls_program *p, float *to, size_t count);
    /* Copies columns of a matrix in device memory: `bytes` of each row; rows are to_step and from_step bytes apart. */
    enum ls_status (*columns)(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows);
    /* Copies floats to the host, with the values of this point of the queue. Later work may run beside the copy. mark: 0 ..
     * LS_QUEUE_MARKS-1. On the host `host` may be `from`; then nothing is copied. count 0: nothing is copied either, and
     * arrived waits for this point of the queue. */
    enum ls_status (*fetch)(struct ls_program *p, int mark, float *host, const float *from, size_t count);
    /* Waits for the fetch with that mark. */
    enum ls_status (*arrived)(struct ls_program *p, int mark);
    /* Copies floats to the device. `host` must not change until a read, an arrived or results of later work has returned. A
     * later fetch to `host` comes after this copy. */
    enum ls_status (*send)(struct ls_program *p, float *to, const float *host, size_t count);
    /* Like send, for floats first .. first+count-1 of a tensor of the store, as it is stored. Also renews the copy that the
     * backend keeps of them in another type. NULL without own_memory. */
    enum ls_status (*send_values)(struct ls_program *p, int tensor, const float *host, size_t first, size_t count);
    /* The same from device memory. */
    enum ls_status (*copy_values)(struct ls_program *p, int tensor, const float *from, size_t first, size_t count);
    /* Device memory that several processes of this machine use. lend writes a ticket for memory of take, which is then not
     * freed before the process ends. map returns the address for a ticket in another process, for copy and fetch, until
     * unmap. They return false and NULL where that is impossible. All three are NULL, or none. */
    bool (*lend)(void *memory, char ticket[LS_TICKET_ROOM]);
    void *(*map)(const char ticket[LS_TICKET_ROOM]);
    void (*unmap)(void *memory);
    /* Enqueues a copy of the losses and ranks of the pass (`loss` and `rank` of the graph) to the host, into slot 0 or
     * 1. */
    enum ls_status (*ask)(struct ls_program *p, int slot);
    /* Waits for that copy. *loss and *rank are valid until the slot is asked for again. */
    enum ls_status (*results)(struct ls_program *p, int slot, const float **loss, const int32_t **rank);
    /* The backend can take images as bytes, and crop, mirror and normalise them itself (base/crop.h): hold, put, source and
     * crops. All four are NULL, or none.
     *
     * Allocates memory for the stored images of a data set. give frees it. *memory is NULL if that takes more than a
     * quarter of what is free. */
    enum ls_status (*hold)(size_t bytes, void **memory);
    /* Copies into that memory. Returns when the host's bytes are no longer needed. */
    enum ls_status (*put)(void *to, const void *host, size_t bytes);
    /* Sets the form of the images of later passes: crops of the images in `held`, or, with held NULL, of bytes that
     * come with each batch, both as `pixels` says (copied). pixels NULL: planes. No enqueued pass may read the old
     * form. */
    enum ls_status (*source)(struct ls_program *p, const struct ls_pixels *pixels, const void *held);
    /* In place of input: one crop a sample, and the bytes of the images, or NULL where they are held. The next run copies
     * both; they must not change until the results of that pass. */
    enum ls_status (*crops)(struct ls_program *p, const struct ls_crop *crops, const uint8_t *bytes);
    /* A checksum of all parameters that are updated, or of the optimizer's state. NULL: the caller reads the values. */
    enum ls_status (*checksum)(struct ls_program *p, bool optimizer, uint64_t *sum);
    /* The loss scale of the next step. Call them between steps. Without fp16, get returns zeros and set does nothing. */
    enum ls_status (*get_scale)(struct ls_program *p, struct ls_loss_scale *scale);
    enum ls_status (*set_scale)(struct ls_program *p, const struct ls_loss_scale *scale);
    /* Records what the device does while the trace is on, on tracks of its own: about a_step slices a step. Steps that
     * are not recorded run as without a trace. NULL with a delay of 0: the caller times run. */
    enum ls_status (*trace)(struct ls_program *p, struct ls_trace *trace, size_t a_step);
    /* Waits for the device, adds the slices to the trace, and stops recording. Takes any program of this process. May be
     * called again. */
    void (*trace_end)(struct ls_program *p);
};

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
    /* Gathers `bytes` of every rank into all, in the order of ranks. Fails if a rank does not come. */
    enum ls_status (*gather)(void *context, const void *mine, size_t bytes, void *all);
    /* Called again and again while the backend waits for other ranks; seconds: so far. LS_OK: the backend waits on.
     * Otherwise it gives up; the reason is logged. */
    enum ls_status (*check_wait)(void *context, double seconds);
    /* Enqueues what this process adds to a cut before it is summed: the same work in every step. */
    enum ls_status (*settle)(void *context, int cut);
    /* Enqueues the updates of a step, in place of the nodes behind the pass. NULL: these nodes run. */
    enum ls_status (*update)(void *context, const struct ls_run *run);
    void *context;
};

/* Every rank calls open, share, step and close(together) in the same order. */
struct ls_backend_peers {
    /* Connects all ranks. If one of them cannot, none is connected and every rank has the reason in `why`; else why is
     * "". */
    enum ls_status (*open)(struct ls_program *p, enum ls_peers_kind kind, const struct ls_peers_group *group, char *why,
                           size_t room);
    /* Sets the cuts that a step sums (copied). The pass is nodes 0 .. end-1. The gradients are still zero. */
    enum ls_status (*share)(struct ls_program *p, const struct ls_peers_cut *cuts, int n, int end);
    /* Enqueues the last pass of a step, the sums of all cuts over all processes, and the updates. run->valid 0: this
     * process has no samples, and its gradients are zero. scarce: some rank has none. From now on read, results and
     * step fail instead of waiting for a lost process. */
    enum ls_status (*step)(struct ls_program *p, const struct ls_run *run, bool scarce);
    /* For `update` with LS_PEERS_MEMORY. A barrier between the queues of all ranks: what any rank has enqueued before
     * it runs before what any rank enqueues after it. All ranks call it. */
    enum ls_status (*meet)(struct ls_program *p);
    /* Likewise: the address of a rank's kept gradients, for copy. */
    const float *(*reach)(const struct ls_program *p, int rank);
    /* together: all ranks close now, and no step failed. Otherwise close waits for no rank: enqueued work gets a
     * second, and is then left until the process ends. */
    void (*close)(struct ls_program *p, bool together);
    /* Returns whether NCCL is available, and its version, or why not, in text. */
    bool (*nccl)(char *text, size_t room);
};

/* --- messages between devices ------------------------------------------------------------------------------------- */

/* Messages between the devices of two processes, beside what both compute. A process has up to two peers, on side 0 and on
 * side 1; each is on the other side of its peer. Messages from one side arrive in the order in which they were sent, and with as
 * many bytes. A message holds a part of both devices from the first of its calls to the last: until all enqueued work has run,
 * neither process may do what waits for its whole device, such as taking memory or running nodes for the first two times. */
struct ls_backend_wires {
    /* Connects this process with its peers (ranks; LS_NONE: none). All ranks of the group call it; of the group, rank, size, nodes
     * and the callbacks are read. If one cannot, none is connected and every rank has the reason in `why`; else why is "".
     * From then on, waits for the queue fail where a rank is lost. */
    enum ls_status (*open)(struct ls_program *p, const struct ls_peers_group *group, const int peers[2], char *why,
                           size_t room);
    /* Enqueues a message of what `from` has at this point of the queue. `from` may be written again when it is known that the
     * message has arrived. */
    enum ls_status (*send)(struct ls_program *p, int side, const void *from, size_t bytes);
    /* Enqueues the arrival of the next message in `to`, which all work enqueued before has finished with. Later work does not
     * wait for it. At most LS_WIRE_AHEAD are under way from a side. */
    enum ls_status (*receive)(struct ls_program *p, int side, void *to, size_t bytes);
    /* Later work waits for the oldest message from this side that no call of accept has waited for. */
    enum ls_status (*accept)(struct ls_program *p, int side);
    /* When the queue has finished all work: the seconds since the last call that it stood still in accept. */
    double (*waited)(struct ls_program *p);
    /* Gives enqueued work a second, and leaves it then until the process ends. */
    void (*close)(struct ls_program *p);
};
enum { LS_WIRE_AHEAD = 32 };

/* Why CPU backends refuse these types, and what to do. */
#define LS_GPU_DTYPES "tf32 and fp16 are for --backend cuda; use --dtype f32 or bf16"

struct ls_backend {
    const char *name, *summary;
    const struct ls_backend_queue *queue; /* never NULL */
    const struct ls_backend_peers *peers; /* NULL: the host sums over processes */
    const struct ls_backend_wires *wires; /* NULL: the host sends what travels */
    bool measures;                        /* kernels are measured where --tune is left to the backend */
    bool tf32;                            /* --dtype tf32 works */
    bool any_threads;                     /* results do not depend on the number of threads */
    bool dense_1x1;                       /* 1x1 convolutions are better without a stride (ls_graph_fuse) */
    struct ls_split_way split;            /* which large dense layers are divided, and how */
    void (*about)(struct ls_backend_about *about);
    /* Tries in a child process what the processor advertises. Returns a sentence on what fails, or NULL. Call it before
     * prepare. NULL: nothing to try. */
    const char *(*fault)(void);
    /* Lists the GPUs in list[room] and returns their number; 0: none is usable, and why[room_why] says why. NULL: the
     * backend uses no GPU. */
    int (*cards)(struct ls_backend_card *list, int room, char *why, size_t room_why);
    /* Returns why activations cannot be of this type on this machine, and what to do; NULL: they can. */
    const char *(*refuses)(enum ls_dtype dtype);
    /* Returns in a few words why models train faster on this machine with activations of this type, or with f32 values that
     * are multiplied in tf32, than in f32; NULL: they do not. Depends on the hardware alone. NULL: no type is faster. */
    const char *(*faster)(enum ls_dtype dtype, bool tf32);
    /* Chooses kernels and plans memory. The caller owns the graph, which must outlive the program; prepare may insert
     * reorder nodes and tensors into it. */
    enum ls_status (*prepare)(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                              struct ls_program **program);
    void (*release)(struct ls_program *p);
    /* Bytes of the arena of activations. Programs that never run at the same time may share one arena. */
    size_t (*arena_bytes)(const struct ls_program *p);
    /* Bytes of all GRAD tensors with keep_grads, else 0. They lie there in the order in which a pass completes them, each
     * at a multiple of LS_ALIGN, so that a range of this memory is a range of time. */
    size_t (*grad_bytes)(const struct ls_program *p);
    /* grads: zeroed at first; NULL where grad_bytes is 0. */
    enum ls_status (*bind)(struct ls_program *p, void *arena, void *grads);
    /* Runs the nodes first .. last-1. Windows of updates are read before it returns. */
    enum ls_status (*run)(struct ls_program *p, int first, int last, const struct ls_run *run);
    /* Runs the nodes and measures each: seconds[n - first]. NULL: the caller times run. */
    enum ls_status (*profile)(struct ls_program *p, int first, int last, const struct ls_run *run, double *seconds);
    /* Values of a tensor, row-major, as f32; labels and ranks as int32. An ACT tensor can be read only while the plan keeps
     * it: without reuse of memory, or if it was written last. */
    enum ls_status (*read)(const struct ls_program *p, int tensor, void *values);
    enum ls_status (*write)(struct ls_program *p, int tensor, const void *values);
    /* Points an INPUT tensor at the caller's memory: images as f32 NCHW, labels as int32. It must not change until the
     * results of the pass. */
    enum ls_status (*input)(struct ls_program *p, int tensor, const void *values);
    /* The memory of a tensor, as it is stored, and its bytes. */
    void *(*memory)(const struct ls_program *p, int tensor, size_t *bytes);
    /* The number of values of a tensor as it is stored, padding included. Its memory may be longer. */
    size_t (*stored)(const struct ls_program *p, int tensor);
    /* Sets the memory of a tensor that is `apart` (graph.h): of all of it for read and write, or of its windows for run.
     * copy: half as many bytes, for the 16-bit copy of a parameter that passes read; NULL: there is none now.
     * NULL: the backend has no such tensors. */
    void (*point)(struct ls_program *p, int tensor, void *memory, void *copy);
    /* Describes how a tensor with two dimensions or more is stored as a matrix of dim 0 by the rest, or the other way
     * round: value (i, j) is at ((i / block) * cols + j) * block + i % block, with the columns in any order. False: it
     * is stored in another way. */
    bool (*matrix)(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block);
    /* Sums of the squares of an update node's gradient: one, or one for each chunk of rows in this process, where the
     * layer is computed in chunks (graph/split.h). Returns their number; 0: the gradient is not clipped. NULL:
     * --clip-norm needs all gradients in one process. */
    int (*squares)(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]);
    /* With a delay of 1: waits for all gradients of a step, so that `squares` can read them. *overflow: with f16, one
     * of them is not finite. NULL: squares needs no wait. */
    enum ls_status (*inspect)(struct ls_program *p, const struct ls_run *run, bool *overflow);
    /* The chosen kernels, as lines that a later prepare can take as its plan; "" where there was no choice. */
    const char *(*choices)(const struct ls_program *p);
    /* Whether a graph with only one of two nodes would compute other bits: they are computed together, or exchange a
     * tensor in a form of their own. NULL: there are no such nodes. */
    bool (*joined)(const struct ls_program *p, int node, int other);
    /* Writes a line for `lockstep plan`: kernel, layouts, offset. It ends without a newline. */
    void (*describe)(const struct ls_program *p, int node, char *text, size_t room);
};

extern const struct ls_backend *const ls_backends[]; /* ends with NULL */
/* The backend of --backend: "auto" is cuda where there is a GPU and the module was built. Errors are logged. */
enum ls_status ls_backend_open(const char *name, const struct ls_backend **backend);
/* NULL: not built. */
const struct ls_backend *ls_backend_find(const char *name);

/* Zeroed memory from the backend's queue. give takes NULL; bytes: as taken. */
enum ls_status ls_backend_take(const struct ls_backend *b, size_t bytes, void **memory);
void ls_backend_give(const struct ls_backend *b, void *memory, size_t bytes);

/* Memory comes from ls_backend_take. */
struct ls_store *ls_store_new(const struct ls_backend *b);
void ls_store_free(struct ls_store *s);

/* The start values of a kept tensor that is number `number` among the kept tensors of the whole model. needed: they are not
 * all zero, as a store's memory starts. */
bool ls_start_needed(const struct ls_tensor *t);
void ls_start_values(const struct ls_tensor *t, uint64_t number, uint64_t seed, float *values);
/* Sets the start values of all PARAM and STATE tensors of the program's graph. The store is new. */
enum ls_status ls_program_init_params(const struct ls_backend *b, struct ls_program *p, const struct ls_graph *g,
                                      uint64_t seed);

#endif
