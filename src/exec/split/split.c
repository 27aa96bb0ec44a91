/* Rounds, and the nodes of a pass around split layers. */
#include "exec/split/split.h"
#include "base/log.h"
#include "graph/ops.h"

#include <string.h>

/* --- rounds ------------------------------------------------------------------------------------------------------- */

int ls_split_slices(const struct ls_split *s, int worker)
{
    const struct ls_tree *tree = s->engine->tree;
    int rank = s->ranks[worker];
    return (tree->first[rank + 1] - tree->first[rank]) * s->passes;
}

/* The passes of a worker are in the last rounds. */
struct ls_split_slice ls_split_slice_of(const struct ls_split *s, int worker)
{
    const struct ls_tree *tree = s->engine->tree;
    int i = s->round - (s->rounds - ls_split_slices(s, worker));
    if (i < 0)
        return (struct ls_split_slice){.replica = -1};
    int replica = tree->leaves[tree->first[s->ranks[worker]] + i / s->passes], pass = i % s->passes;
    int64_t slices = (int64_t)tree->replicas * s->passes, number = (int64_t)replica * s->passes + pass;
    return (struct ls_split_slice){replica, pass, s->samples / slices + (number < s->samples % slices) > 0};
}

static void find_active(const struct ls_split *s, bool *active)
{
    for (int w = 0; w < s->workers; w++)
        active[w] = ls_split_slice_of(s, w).active;
}

enum ls_status ls_split_serve(struct ls_split *s, const struct ls_run *run)
{
    bool active[LS_SPLIT_CHUNKS];
    struct ls_split_turn t = {.net = &s->engine->train, .active = active, .serves = true, .run = run};
    find_active(s, active);
    for (int i = 0; i < s->n_layers; i++) {
        t.nodes = &s->layers[i].train;
        LS_TRY(ls_split_forward(s, &s->layers[i], &t));
    }
    for (int i = s->n_layers - 1; i >= 0; i--) {
        t.nodes = &s->layers[i].train;
        if (t.nodes->out_bwd != LS_NONE)
            LS_TRY(ls_split_backward(s, &s->layers[i], &t));
    }
    s->round++;
    return LS_OK;
}

enum ls_status ls_split_begin(struct ls_split *s, int64_t samples, const struct ls_run *run)
{
    s->samples = samples;
    s->round = 0;
    for (int left = s->rounds - ls_split_slices(s, s->me); left > 0; left--)
        LS_TRY(ls_split_serve(s, run));
    return LS_OK;
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

/* The layer whose forward or backward nodes begin at a node; NULL: none. */
static struct ls_split_layer *layer_at(struct ls_split *s, bool training, int node, bool *backward)
{
    for (int i = 0; i < s->n_layers; i++) {
        const struct ls_split_nodes *n = training ? &s->layers[i].train : &s->layers[i].eval;
        *backward = training && n->out_bwd == node;
        if (n->in == node || *backward)
            return &s->layers[i];
    }
    return NULL;
}

/* Runs nodes up to `end`, or up to the end of the layer that it is in. */
static enum ls_status run_nodes(struct ls_split *s, struct ls_net *net, int first, int end, const bool *active,
                                bool serves, const struct ls_run *run)
{
    bool training = net == &s->engine->train, backward;
    for (int at = first; at < end;) {
        int next = at;
        struct ls_split_layer *l = NULL;
        while (next < end && !(l = layer_at(s, training, next, &backward)))
            next++;
        if (next > at && !serves)
            LS_TRY(s->engine->backend->run(net->program, at, next, run));
        s->done = at = next;
        if (!l)
            break;
        struct ls_split_turn t = {net, training ? &l->train : &l->eval, active, serves, run};
        LS_TRY(backward ? ls_split_backward(s, l, &t) : ls_split_forward(s, l, &t));
        s->done = at = backward ? t.nodes->end : t.nodes->out + 1;
    }
    return LS_OK;
}

enum ls_status ls_split_run(struct ls_split *s, int first, int end, const struct ls_run *run)
{
    bool active[LS_SPLIT_CHUNKS];
    find_active(s, active);
    if (first > 0 && s->done > first)
        first = s->done;
    LS_TRY(run_nodes(s, &s->engine->train, first, end, active, false, run));
    if (end >= s->engine->train.end)
        s->round++;
    return LS_OK;
}

/* All workers have as many passes of an evaluation; some of the last may have no samples. */
enum ls_status ls_split_evaluate(struct ls_split *s, bool some, const struct ls_run *run)
{
    bool active[LS_SPLIT_CHUNKS];
    for (int w = 0; w < s->workers; w++)
        active[w] = true;
    return run_nodes(s, &s->engine->eval, 0, s->engine->eval.end, active, !some, run);
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

enum ls_status ls_split_graph(const struct ls_engine *e, struct ls_graph *g)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_DENSE];
    int layers;
    if (axis->size < 2)
        return LS_OK;
    const struct ls_split_way *way = &e->backend->split;
    LS_TRY(ls_graph_split(g, way, axis->place, axis->size, &layers));
    return layers > 0 ? LS_OK
                      : ls_fail(LS_USAGE,
                                "--parallel dense:%d: the model has no dense layer with %lld weights or more behind "
                                "another layer; use --parallel data",
                                axis->size, (long long)(way->weights > 0 ? way->weights : LS_SPLIT_WEIGHTS));
}

static bool belongs_to(const char *name, const char *parameter)
{
    size_t n = strlen(parameter);
    return strncmp(name, parameter, n) == 0 && (name[n] == 0 || name[n] == '.');
}

enum ls_status ls_split_rows(const struct ls_engine *e, struct ls_rows *rows)
{
    const struct ls_graph *g = &e->train.graph;
    for (int t = 0; t < e->whole.n_tensors; t++)
        if (ls_role_kept(e->whole.tensors[t].role))
            rows[t] = (struct ls_rows){0, ls_rows_of(&e->whole.tensors[t])};
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_attr *a = &g->nodes[n].attr;
        for (int i = 1; i <= 2 && g->nodes[n].op == &ls_op_dense && a->whole_rows > 0; i++)
            for (int t = 0; g->nodes[n].in[i] != LS_NONE && t < e->whole.n_tensors; t++)
                if (ls_role_kept(e->whole.tensors[t].role) &&
                    belongs_to(e->whole.tensors[t].name, g->tensors[g->nodes[n].in[i]].name))
                    rows[t] = (struct ls_rows){a->first_row, a->out};
    }
    return LS_OK;
}

bool ls_split_exchanges(const struct ls_engine *e, int at)
{
    for (int i = 0; e->split && i < e->split->n_layers; i++) {
        const struct ls_split_nodes *n = &e->split->layers[i].train;
        if (n->in >= at || n->out_bwd >= at)
            return true;
    }
    return false;
}

bool ls_split_owns(const struct ls_engine *e, int tensor)
{
    for (int i = 0; e->split && i < e->split->n_layers; i++)
        if (e->split->layers[i].grads[0] == tensor || e->split->layers[i].grads[1] == tensor)
            return true;
    return false;
}

enum ls_status ls_split_fetch(const struct ls_engine *e, int mark, size_t first, size_t end)
{
    const struct ls_split *s = e->split;
    for (int i = 0; s && i < s->n_side; i++) {
        const struct ls_split_room *side = &s->side[i];
        size_t from = s->mates.first, to = from + side->bytes / sizeof(float) - 1;
        size_t a = first > from ? first : from, b = end < to ? end : to;
        if (a < b)
            LS_TRY(e->backend->queue->fetch(e->train.program, mark, side->host + (a - from), side->here + (a - from),
                                            b - a));
    }
    return LS_OK;
}
