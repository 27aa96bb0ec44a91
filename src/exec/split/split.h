/* --parallel data:D,dense:N: the rows of large dense layers are divided among the N workers of a group (graph/split.h), so that
 * their gradients do not travel within it; between groups they do. Everything else is data parallel.
 *
 * The workers of a group run their passes in rounds. In a round, each worker's rows see the samples of all workers, one worker after the
 * other: inputs go to all workers, and results come back. A worker that has fewer passes than others, or no samples, only
 * serves the others in that round. The last passes of all workers are in the last round.
 *
 * Where run only enqueues, the host waits for values before it sends them, and the queue has the work of a layer for the next
 * worker meanwhile.
 *
 *   SPLIT-3  Results do not depend on the number of workers: rows are computed from one replica's samples at a time, gradients
 *            of inputs are added along the tree of SPLIT-1, and gradients of rows along the tree of EXEC-2: the subtrees that
 *            lie within the group here, the rest among the workers of all groups that have the same rows.
 *   SPLIT-4  A layer posts receives into a room of the host only when the queue is past all that was enqueued before: earlier
 *            values of that room are in the backend's memory then. */
#ifndef LS_EXEC_SPLIT_SPLIT_H
#define LS_EXEC_SPLIT_SPLIT_H

#include "exec/engine.h"
#include "exec/split/sums.h"
#include "graph/split.h"

/* Values that travel: in the backend's memory, and in the host's, where messages begin and end. Where the backend's memory is
 * the host's, both are the same. */
struct ls_split_room {
    float *here, *host; /* owned */
    size_t bytes;       /* of each */
};

/* The nodes of a layer in a program, LS_NONE where there is none. An evaluation may have several views of each sample. */
struct ls_split_nodes {
    int64_t batch;                      /* rows of its inputs and results */
    size_t inputs;                      /* values of a worker's inputs, as stored */
    int in, dense, out;                 /* forward */
    int out_bwd, weights, data, in_bwd; /* backward */
    int end;                            /* behind the last of backward */
};

struct ls_split_layer {
    struct ls_split_nodes train, eval;
    int64_t rows;            /* of all workers */
    int64_t columns;         /* of all rows' results, as stored: with padding */
    struct ls_split_room *x; /* owned; the inputs of each worker, from forward to backward */
    struct ls_sums sums;     /* of the gradients of the rows */
    int grads[2];            /* tensors: weights and bias, or LS_NONE */
};

/* Messages with each worker: a result or its gradient (rows), the gradient of inputs (parts of it, f32). */
struct ls_split_lane {
    struct ls_split_room send, receive;
    struct ls_work sent, received;
};

struct ls_split {
    struct ls_engine *engine;   /* borrowed */
    int workers, me;            /* of this group */
    int *ranks;                 /* owned; of the workers */
    struct ls_sync_group mates; /* those of all groups that have the same rows */
    int *mate_ranks;            /* owned */
    struct ls_tree tree;        /* of the replicas over the groups */
    struct ls_split_room *side; /* owned; this process's sums but the last, where it has several */
    float **parts_beside;       /* owned; the host's memory of side: mates.parts */
    int n_side;
    size_t size;                   /* bytes of an activation */
    struct ls_split_layer *layers; /* owned; in the order of forward */
    int n_layers;
    struct ls_split_lane *rows, *parts; /* owned; one a worker */
    struct ls_split_room zeros;         /* as long as the longest inputs or results */
    /* the step under way */
    int rounds, round, passes;
    int64_t samples;
    int done; /* nodes before it have run */
};

/* Splits the graph of a program, forward only, before its gradients. LS_USAGE if no layer can be split. */
enum ls_status ls_split_graph(const struct ls_engine *e, struct ls_graph *g);
/* LS_USAGE, with the reason, where options do not go with it. Reads the mesh and the backend of the engine alone. */
enum ls_status ls_split_check(const struct ls_options *o, const struct ls_engine *e);
/* The rows of each tensor of the whole graph that are here. */
enum ls_status ls_split_rows(const struct ls_engine *e, struct ls_rows *rows);
/* When the programs have their memory. */
enum ls_status ls_split_open(struct ls_engine *e, const struct ls_options *o);
void ls_split_close(struct ls_engine *e);

/* With several groups: whose gradients of rows are summed; otherwise NULL. */
const struct ls_sync_group *ls_split_mates(const struct ls_engine *e);

/* Is this the gradient of rows that are here alone? */
bool ls_split_owns(const struct ls_engine *e, int tensor);
/* Fetches the sums of this process that lie beside these floats of the kept gradients, for mates. */
enum ls_status ls_split_fetch(const struct ls_engine *e, int mark, size_t first, size_t end);

/* Exchanges follow in a pass that has run the nodes before `at`. Until they are over, no sum over all workers may begin: a
 * worker that serves comes to sums after its last exchange, and communication goes on with one sum at a time. */
bool ls_split_exchanges(const struct ls_engine *e, int at);

/* A step over so many samples begins: serves the rounds in which this worker has no pass. */
enum ls_status ls_split_begin(struct ls_split *s, int64_t samples, const struct ls_run *run);
/* Runs nodes of the training program's pass, or all of an evaluation. */
enum ls_status ls_split_run(struct ls_split *s, int first, int end, const struct ls_run *run);
enum ls_status ls_split_evaluate(struct ls_split *s, bool some, const struct ls_run *run);
/* A round in which this worker has no values of its own: no pass, or one without samples. */
enum ls_status ls_split_serve(struct ls_split *s, const struct ls_run *run);

/* exchange.c: a layer's nodes for the samples of all workers that have some. net: of training, or of evaluation. */
struct ls_split_turn {
    struct ls_net *net;
    const struct ls_split_nodes *nodes;
    const bool *active; /* of each worker: it has samples */
    bool serves;        /* this worker has no values of its own: where it is active, zeros */
    const struct ls_run *run;
};
enum ls_status ls_split_forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t);
enum ls_status ls_split_backward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t);

/* Passes of a worker in a step. */
int ls_split_slices(const struct ls_split *s, int worker);
/* What a worker computes in a round. */
struct ls_split_slice {
    int replica, pass; /* replica -1: nothing */
    bool active;       /* it has samples */
};
struct ls_split_slice ls_split_slice_of(const struct ls_split *s, int worker);

#endif
