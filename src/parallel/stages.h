/* A training graph cut into stages, one per process of a pipeline.
 *
 * A stage has a run of forward nodes, their backward nodes and the updates of their parameters. Forward nodes are cut
 * only where one tensor goes on, so that little travels. Each stage becomes a graph of its own, in which send and
 * receive nodes stand for what travels (graph/ops/transfer.c).
 *
 *   PAR-3  The nodes of all stages are those of the whole graph, with the same attributes and the same order: a stage computes
 *          the bits that the whole graph would compute. */
#ifndef LS_PARALLEL_STAGES_H
#define LS_PARALLEL_STAGES_H

#include "parallel/layers.h"

enum { LS_MOST_STAGES = 64 };

struct ls_stages {
    int n;
    int *of_node;                      /* owned; the stage of each node of the graph */
    double share[LS_MOST_STAGES];      /* of the work of a pass, estimated */
    const char *first[LS_MOST_STAGES]; /* the layer that the stage begins with; borrowed from the graph */
};

/* Cuts a graph with backward and update nodes. at: names of the layers that stages 1, 2 ... begin with, separated by '+', in
 * `length` bytes; a name also means the layers NAME.anything. NULL: the stages have about equal work, by an estimate. joined:
 * as ls_layers_join has it. LS_USAGE if the graph cannot be cut like that. */
enum ls_status ls_stages_choose(const struct ls_graph *g, int n, const char *at, int length, const char *joined,
                                struct ls_stages *s);
/* Cuts the forward graph `eval` so that its parameters are in the stages that they have in `train`. */
enum ls_status ls_stages_like(const struct ls_stages *s, const struct ls_graph *train, const struct ls_graph *eval,
                              struct ls_stages *like);
void ls_stages_release(struct ls_stages *s);
/* stage_graph.c: makes the graph of one stage. The caller has called ls_graph_init and releases it, also after a failure. */
enum ls_status ls_stage_graph(const struct ls_graph *whole, const struct ls_stages *s, int stage,
                              struct ls_graph *part);

/* --- cuts.c: where to cut ------------------------------------------------------------------------------------------- */

struct ls_cut_rule {
    int stages, passes;   /* passes: of a step, through one pipeline */
    double message, byte; /* seconds that a message takes, and each of its bytes */
    size_t limit;         /* bytes of a process; 0: none */
    int grad_copies;      /* memories of the size of all gradients; 0: 1 */
    double arena;         /* bytes of memory for each byte of activations; 0: 1 */
    double additions;     /* seconds for each byte of gradients, in which those of a step's passes are added */
};

/* Finds the layers that stages begin with, cuts[0 .. stages-1], such that the process or wire that is busy longest is so for as
 * short as possible. Every stage trains something, and fits into the limit unless no cut does. LS_USAGE if the model has too
 * few places. */
enum ls_status ls_cut_evenly(const struct ls_layers *l, const struct ls_cut_rule *rule, int *cuts);
/* The layers that `at` names, as ls_stages_choose has it. */
enum ls_status ls_cut_at(const struct ls_layers *l, int stages, const char *at, int length, int *cuts);
/* The text that ls_cut_at takes for these cuts. Freed by ls_free. */
char *ls_cut_names(const struct ls_layers *l, int stages, const int *cuts);
/* The bytes of a stage of layers first .. end-1, about. */
size_t ls_stage_memory(const struct ls_layers *l, int first, int end, const struct ls_cut_rule *rule, int stage);

/* --- the schedule 1F1B ------------------------------------------------------------------------------------------- */

/* How many passes of a step a stage has under way at once, at most. */
static inline int ls_stage_lanes(int stages, int stage, int passes)
{
    return stages - stage < passes ? stages - stage : passes;
}
/* What a stage does next, when it has begun so many passes and is done with so many: it begins another, or takes the oldest one
 * backward. */
static inline bool ls_stage_begins_next(int lanes, int passes, int begun, int done)
{
    return begun < passes && begun < done + lanes;
}

#endif
