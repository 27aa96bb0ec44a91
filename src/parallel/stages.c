#include "parallel/stages.h"
#include "base/log.h"

#include <string.h>

static void assign(const struct ls_graph *g, const struct ls_layers *l, const int *cuts, struct ls_stages *s)
{
    double all = ls_layers_work(l, 0, l->n, 1);
    for (int stage = 0; stage < s->n; stage++) {
        int end = stage + 1 < s->n ? cuts[stage + 1] : l->n;
        s->share[stage] = ls_layers_work(l, cuts[stage], end, 1) / all;
        s->first[stage] = l->list[cuts[stage]].name;
    }
    for (int n = 0; n < g->n_nodes; n++)
        for (int stage = 0; stage < s->n && cuts[stage] <= l->of_node[n]; stage++)
            s->of_node[n] = stage;
}

enum ls_status ls_stages_choose(const struct ls_graph *g, int n, const char *at, int length, const char *joined,
                                struct ls_stages *s)
{
    enum ls_status st;
    struct ls_layers layers = {0};
    int cuts[LS_MOST_STAGES] = {0};
    *s = (struct ls_stages){.n = n};
    s->of_node = ls_alloc((size_t)g->n_nodes, sizeof *s->of_node);
    LS_TRY_GOTO(out, s->of_node ? ls_layers_of(g, NULL, &layers) : LS_FAILED);
    ls_layers_join(&layers, joined);
    LS_TRY_GOTO(out, at ? ls_cut_at(&layers, n, at, length, cuts)
                        : ls_cut_evenly(&layers, &(struct ls_cut_rule){.stages = n, .passes = 1}, cuts));
    assign(g, &layers, cuts, s);
    st = LS_OK;
out:
    ls_layers_release(&layers);
    return st;
}

void ls_stages_release(struct ls_stages *s)
{
    ls_free(s->of_node);
    s->of_node = NULL;
}

/* --- evaluation ----------------------------------------------------------------------------------------------------- */

/* The stage of the training graph that has the value, or LS_NONE. */
static int stage_of_name(const struct ls_stages *s, const struct ls_graph *train, const char *name)
{
    int t = ls_graph_find(train, name);
    for (int n = 0; t != LS_NONE && n < train->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (train->nodes[n].in[i] == t)
                return s->of_node[n];
    return LS_NONE;
}

/* Layers without values follow their inputs. The loss is in the last stage, which has the labels. */
static int stage_like(const struct ls_stages *s, const struct ls_graph *train, const struct ls_graph *g,
                      const int *of_node, int node)
{
    int stage = 0;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = g->nodes[node].in[i], maker = t == LS_NONE ? LS_NONE : ls_graph_producer(g, t);
        if (t == LS_NONE)
            continue;
        if (t == g->label)
            return s->n - 1;
        int of_input = ls_role_kept(g->tensors[t].role) ? stage_of_name(s, train, g->tensors[t].name)
                       : maker == LS_NONE               ? LS_NONE
                                                        : of_node[maker];
        stage = of_input > stage ? of_input : stage;
    }
    return stage;
}

enum ls_status ls_stages_like(const struct ls_stages *s, const struct ls_graph *train, const struct ls_graph *eval,
                              struct ls_stages *like)
{
    *like = *s;
    like->of_node = ls_alloc((size_t)eval->n_nodes, sizeof *like->of_node);
    if (!like->of_node)
        return LS_FAILED;
    for (int n = 0; n < eval->n_nodes; n++)
        like->of_node[n] = stage_like(s, train, eval, like->of_node, n);
    return LS_OK;
}
