#include "backend/cuda/ops/conv_pool.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* No bias, no activation, and the same padding on all sides. */
static bool is_plain(const struct linear *l)
{
    return !l->bias && l->conv.act == LS_ACT_NONE && l->pad_b == 1 && l->pad_r == 1;
}

static bool is_op(const struct ls_program *p, int node, const char *name)
{
    return strcmp(p->core.g->nodes[node].op->name, name) == 0;
}

int conv_pool_prepare(struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_graph *g = p->core.g;
    int result = g->nodes[node].out[0];
    if (!is_plain(l) || result == g->logits || ls_graph_readers(g, result) != 1)
        return LS_NONE;
    for (int i = node + 1; i < g->n_nodes; i++) {
        if (!is_op(p, i, "maxpool") || g->nodes[i].in[0] != result)
            continue;
        struct ls_cuda_pool pool = pool_of(p, i, result, g->nodes[i].out[0]);
        if (!ls_cuda_few_pool_can(&l->conv, &pool))
            return LS_NONE;
        p->execs[i].early = node;
        p->core.places[result].unmade = true;
        snprintf(p->execs[node].note, sizeof p->execs[node].note, "own few channels, with pooling");
        snprintf(p->execs[i].note, sizeof p->execs[i].note, "done already");
        return i;
    }
    return LS_NONE;
}

void conv_pool_run(const struct ls_program *p, int node, const struct linear *l, int pool, const void *weights)
{
    const struct ls_node *n = &p->core.g->nodes[node], *after = &p->core.g->nodes[pool];
    ls_cuda_few_pool(stream_of(p), &l->conv, data_of(p, n->in[0]), weights, data_of(p, after->out[0]),
                     (uint8_t *)data_of(p, after->out[1]));
}

enum ls_status conv_pool_weights_prepare(struct ls_program *p, int node, const struct linear *l, bool *together)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    int gradient = n->in[0], back = ls_graph_producer(g, gradient);
    *together = false;
    if (!is_plain(l) || n->out[1] != LS_NONE || back == LS_NONE || !is_op(p, back, "maxpool_bwd") ||
        ls_graph_readers(g, gradient) != 1)
        return LS_OK;
    struct ls_cuda_pool pool = pool_of(p, back, gradient, g->nodes[back].in[0]);
    if (!ls_cuda_few_pool_can(&l->conv, &pool))
        return LS_OK;
    struct linear *kept = ls_alloc(1, sizeof *kept);
    if (!kept)
        return LS_FAILED;
    *kept = *l;
    *together = true;
    p->execs[back].state = kept;
    p->execs[back].twin = node;
    p->execs[node].early = back;
    p->core.nodes[back].scratch_bytes = ls_cuda_few_scratch(&l->conv);
    p->core.places[gradient].unmade = true;
    snprintf(p->execs[back].note, sizeof p->execs[back].note, "own few channels, with pooling");
    snprintf(p->execs[node].note, sizeof p->execs[node].note, "done already");
    return LS_OK;
}

void conv_pool_weights_run(const struct ls_program *p, int pool)
{
    const struct ls_node *back = &p->core.g->nodes[pool], *n = &p->core.g->nodes[p->execs[pool].twin];
    const struct linear *l = p->execs[pool].state;
    ls_cuda_few_pool_bwd_weights(stream_of(p), &l->conv, data_of(p, back->in[0]),
                                 (const uint8_t *)data_of(p, back->in[1]), data_of(p, n->in[1]), floats(p, n->out[0]),
                                 (float *)(void *)p->core.nodes[pool].scratch);
}
