/* Tensors that travel between stages (graph/ops/transfer.c): the engine moves them as they are stored. */
#include "backend/onednn/program.h"

static enum ls_status prepare_send(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
    return LS_OK;
}

/* Activations have one layout (DNN-1), so that it is the sender's. */
static enum ls_status prepare_receive(struct ls_program *p, int node)
{
    return place_default(p, p->core.g->nodes[node].out[0]);
}

static void bind_nothing(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
}

static enum ls_status run_nothing(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)p;
    (void)node;
    (void)run;
    return LS_OK;
}

/* With bind, so that a map is sent in the layout that it has (prepare_node). */
const struct kernel ls_onednn_ops_transfer[] = {
    {"send", prepare_send, bind_nothing, run_nothing},
    {"receive", prepare_receive, bind_nothing, run_nothing},
    {0},
};
