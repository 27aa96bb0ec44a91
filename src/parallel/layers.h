/* The layers that layouts divide: each forward node of a training graph with its gradients and the updates of its parameters,
 * what it costs, and what travels if the model is cut before it. */
#ifndef LS_PARALLEL_LAYERS_H
#define LS_PARALLEL_LAYERS_H

#include "graph/graph.h"

struct ls_layer {
    const char *name; /* borrowed from the graph */
    bool can_cut;     /* one tensor goes on from the layers before it */
    bool two_go_on;   /* two do, as within a residual block */
    int trained;      /* tensors of trained parameters */
    /* Seconds of a pass, and of the updates of a step. Where nothing is measured: in proportion to them, without updates. */
    double forward, backward, update;
    /* Bytes: of the tensor that goes on, in one pass; of parameters and state; of gradients; of activations of one pass. */
    size_t crossing, kept, grads, activations;
    /* A dense layer whose rows can be divided (graph/split.h): its rows, and bytes of its inputs and results in one
     * pass, and of a part of the gradient of its inputs. */
    int64_t rows;
    size_t inputs, results, part;
};

struct ls_layers {
    int n;
    struct ls_layer *list; /* owned */
    int *of_node;          /* owned; the layer of each node of the graph */
    bool measured;
};

/* Lists the layers of a graph with backward and update nodes. seconds: of each node, as measured; NULL: the work is estimated
 * from multiply-adds, values written and parameters. */
enum ls_status ls_layers_of(const struct ls_graph *g, const double *seconds, struct ls_layers *layers);
void ls_layers_release(struct ls_layers *layers);

/* Where a backend computes layers together: no cut between two of them. Such pairs may take all places between the residual
 * blocks of a model, so that it may be cut within a block, too, where two tensors go on. joined: a line
 * "LAYER<tab>LAYER" for each pair, in any order; NULL: the backend computes none together. */
void ls_layers_join(struct ls_layers *layers, const char *joined);

/* The work of layers first .. end-1 in a step of so many passes. */
double ls_layers_work(const struct ls_layers *layers, int first, int end, int passes);
/* Sums of those layers; seconds are those of one pass, but for updates. Only the figures that add up are set. */
struct ls_layer ls_layers_sum(const struct ls_layers *layers, int first, int end);

#endif
