/* The graph of one stage: its nodes, the tensors that they use, and what travels. */
#include "graph/ops.h"
#include "parallel/stages.h"

#include <string.h>

struct copy {
    const struct ls_graph *whole;
    const struct ls_stages *s;
    struct ls_graph *part;
    int stage;
    int *made_in;           /* for each tensor the stage that makes it; LS_NONE: no node does */
    int *made_at, *read_at; /* the node that makes it, and the first of this stage that reads it; LS_NONE likewise */
    int *number;            /* of a tensor that travels, from 1; 0: it does not */
    int *id;                /* in the part; LS_NONE: not there */
    bool *here;             /* it is made or has been received */
    bool (*used)[LS_MOST_STAGES]; /* used[t][stage] */
};

static void find_users(struct copy *c)
{
    const struct ls_graph *g = c->whole;
    int numbers = 0;
    for (int t = 0; t < g->n_tensors; t++)
        c->made_in[t] = c->made_at[t] = c->read_at[t] = c->id[t] = LS_NONE;
    for (int n = 0; n < g->n_nodes; n++) {
        int stage = c->s->of_node[n];
        for (int i = 0; i < LS_MAX_IN; i++)
            if (g->nodes[n].in[i] != LS_NONE) {
                int t = g->nodes[n].in[i];
                c->used[t][stage] = true;
                if (stage == c->stage && c->read_at[t] == LS_NONE)
                    c->read_at[t] = n;
            }
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (g->nodes[n].out[i] != LS_NONE) {
                c->used[g->nodes[n].out[i]][stage] = true;
                c->made_in[g->nodes[n].out[i]] = stage;
                c->made_at[g->nodes[n].out[i]] = n;
            }
    }
    for (int t = 0; t < g->n_tensors; t++)
        for (int stage = 0; stage < c->s->n && !c->number[t]; stage++)
            if (c->made_in[t] != LS_NONE && stage != c->made_in[t] && c->used[t][stage])
                c->number[t] = ++numbers;
}

static int id_of(const struct copy *c, int tensor)
{
    return tensor == LS_NONE ? LS_NONE : c->id[tensor];
}

static enum ls_status copy_tensors(struct copy *c)
{
    for (int t = 0; t < c->whole->n_tensors; t++) {
        const struct ls_tensor *from = &c->whole->tensors[t];
        if (!c->used[t][c->stage])
            continue;
        c->id[t] = ls_graph_tensor(c->part, from->name, from->role, from->dtype, from->shape);
        if (c->id[t] == LS_NONE)
            return LS_FAILED;
        struct ls_tensor *to = &c->part->tensors[c->id[t]];
        const char *name = to->name;
        *to = *from;
        to->name = name;
    }
    for (int t = 0; t < c->whole->n_tensors; t++)
        if (c->id[t] != LS_NONE)
            c->part->tensors[c->id[t]].grad = id_of(c, c->whole->tensors[t].grad);
    c->part->act_dtype = c->whole->act_dtype;
    c->part->training = c->whole->training;
    c->part->input = id_of(c, c->whole->input);
    c->part->label = id_of(c, c->whole->label);
    c->part->logits = id_of(c, c->whole->logits);
    c->part->loss = id_of(c, c->whole->loss);
    c->part->label_rank = id_of(c, c->whole->label_rank);
    return LS_OK;
}

static enum ls_status add_node(struct copy *c, const struct ls_node *node)
{
    struct ls_graph *g = c->part;
    struct ls_node *to = &g->nodes[g->n_nodes++];
    *to = *node;
    to->name = ls_arena_strdup(&g->strings, node->name);
    for (int i = 0; i < LS_MAX_IN; i++)
        to->in[i] = id_of(c, node->in[i]);
    for (int i = 0; i < LS_MAX_OUT; i++)
        to->out[i] = id_of(c, node->out[i]);
    return to->name ? LS_OK : LS_FAILED;
}

/* A send or receive of a tensor, beside the node `like`. */
static enum ls_status add_transfer(struct copy *c, const struct ls_op *op, int tensor, int other,
                                   const struct ls_node *like)
{
    struct ls_node n = {.op = op, .name = c->whole->tensors[tensor].name, .phase = like->phase};
    for (int i = 0; i < LS_MAX_IN; i++)
        n.in[i] = LS_NONE;
    for (int i = 0; i < LS_MAX_OUT; i++)
        n.out[i] = LS_NONE;
    n.attr.layer = (uint32_t)c->number[tensor];
    n.attr.size = other;
    (op == &ls_op_send ? n.in : n.out)[0] = tensor;
    return add_node(c, &n);
}

/* Before a node, all that is there by then in the whole graph and is read in this phase: what a backend computes together may
 * depend on that order. */
static enum ls_status receive_before(struct copy *c, int node)
{
    const struct ls_graph *g = c->whole;
    for (int t = 0; t < g->n_tensors; t++) {
        if (c->made_in[t] == LS_NONE || c->made_in[t] == c->stage || c->here[t] || c->made_at[t] > node ||
            c->read_at[t] == LS_NONE || g->nodes[c->read_at[t]].phase != g->nodes[node].phase)
            continue;
        c->here[t] = true;
        LS_TRY(add_transfer(c, &ls_op_receive, t, c->made_in[t], &g->nodes[node]));
    }
    return LS_OK;
}

static enum ls_status copy_node(struct copy *c, int node)
{
    const struct ls_node *n = &c->whole->nodes[node];
    LS_TRY(receive_before(c, node));
    LS_TRY(add_node(c, n));
    for (int i = 0; i < LS_MAX_OUT; i++)
        for (int stage = 0; n->out[i] != LS_NONE && stage < c->s->n; stage++)
            if (stage != c->stage && c->used[n->out[i]][stage])
                LS_TRY(add_transfer(c, &ls_op_send, n->out[i], stage, n));
    return LS_OK;
}

enum ls_status ls_stage_graph(const struct ls_graph *whole, const struct ls_stages *s, int stage, struct ls_graph *part)
{
    enum ls_status st = LS_FAILED;
    size_t tensors = (size_t)whole->n_tensors;
    struct copy c = {.whole = whole, .s = s, .part = part, .stage = stage};
    c.made_in = ls_alloc(tensors, sizeof *c.made_in);
    c.made_at = ls_alloc(tensors, sizeof *c.made_at);
    c.read_at = ls_alloc(tensors, sizeof *c.read_at);
    c.number = ls_alloc(tensors, sizeof *c.number);
    c.id = ls_alloc(tensors, sizeof *c.id);
    c.here = ls_alloc(tensors, sizeof *c.here);
    c.used = ls_alloc(tensors, sizeof *c.used);
    /* Each tensor is received at most once, and sent at most once to each stage. */
    int room = whole->n_nodes + whole->n_tensors * (s->n + 1);
    part->nodes = ls_alloc((size_t)room, sizeof *part->nodes);
    if (!c.made_in || !c.made_at || !c.read_at || !c.number || !c.id || !c.here || !c.used || !part->nodes)
        goto free_lists;
    part->node_room = room;
    find_users(&c);
    LS_TRY_GOTO(free_lists, copy_tensors(&c));
    for (int n = 0; n < whole->n_nodes; n++)
        if (s->of_node[n] == stage)
            LS_TRY_GOTO(free_lists, copy_node(&c, n));
    st = LS_OK;
free_lists:
    ls_free(c.made_in);
    ls_free(c.made_at);
    ls_free(c.read_at);
    ls_free(c.number);
    ls_free(c.id);
    ls_free(c.here);
    ls_free(c.used);
    return st;
}
