#include "parallel/stages.h"
#include "base/log.h"
#include "graph/ops.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* Where forward nodes may be cut. Place p is before node p. */
struct places {
    const struct ls_graph *g;
    int n;        /* forward nodes: places 0 .. n; 0 and n are the ends of the graph */
    bool *can;    /* owned; one tensor goes on from there */
    double *work; /* owned; of the nodes before the place */
    int *trained; /* owned; trained parameters before the place */
};

/* --- the work of a layer --------------------------------------------------------------------------------------- */

/* An element that is written costs about as much as so many multiply-adds. So does a parameter in each pass: its weights are
 * read, its gradient is written and added to that of other passes. Measured on CPUs with ResNet-18, ResNet-50, VGG11 and
 * MobileNetV2 at 32x32 and 64x64: shares of stages come out within 3 points of the time that they were busy. */
enum { PER_ELEMENT = 24, PER_PARAMETER = 320 };

/* In multiply-adds of one sample, forward and backward. It only has to be in proportion. */
static double work_of(const struct ls_graph *g, const struct ls_node *n, int64_t batch)
{
    double work = n->op->macs ? (double)n->op->macs(g, n) : 0;
    for (int i = 0; i < LS_MAX_OUT; i++)
        if (n->out[i] != LS_NONE)
            work += PER_ELEMENT * (double)ls_shape_count(&g->tensors[n->out[i]].shape) / (double)batch;
    work *= 3;
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] != LS_NONE && g->tensors[n->in[i]].role == LS_ROLE_PARAM)
            work += PER_PARAMETER * (double)ls_shape_count(&g->tensors[n->in[i]].shape) / (double)batch;
    return work;
}

static int trained_by(const struct ls_graph *g, const struct ls_node *n)
{
    int count = 0;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = n->in[i];
        count += t != LS_NONE && g->tensors[t].role == LS_ROLE_PARAM && g->tensors[t].grad != LS_NONE &&
                 !g->tensors[t].frozen;
    }
    return count;
}

/* --- places ------------------------------------------------------------------------------------------------------ */

static void release_places(struct places *p)
{
    ls_free(p->can);
    ls_free(p->work);
    ls_free(p->trained);
}

/* The tensors that go on at each place: made before it, read from it on. Labels travel in any case. */
static enum ls_status find_crossings(struct places *p)
{
    const struct ls_graph *g = p->g;
    int *last = ls_alloc((size_t)g->n_tensors, sizeof *last), *made = ls_alloc((size_t)g->n_tensors, sizeof *made);
    int *count = ls_alloc((size_t)p->n + 1, sizeof *count);
    enum ls_status st = last && made && count ? LS_OK : LS_FAILED;
    for (int n = 0; st == LS_OK && n < p->n; n++) {
        for (int i = 0; i < LS_MAX_IN; i++)
            if (g->nodes[n].in[i] != LS_NONE)
                last[g->nodes[n].in[i]] = n;
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (g->nodes[n].out[i] != LS_NONE)
                made[g->nodes[n].out[i]] = n + 1;
    }
    for (int t = 0; st == LS_OK && t < g->n_tensors; t++)
        if ((g->tensors[t].role == LS_ROLE_ACT && made[t] > 0) || t == g->input)
            for (int place = made[t]; place <= last[t]; place++)
                count[place] += t == g->input ? 2 : 1; /* images never go on */
    for (int place = 1; st == LS_OK && place < p->n; place++)
        p->can[place] = count[place] == 1;
    ls_free(last);
    ls_free(made);
    ls_free(count);
    return st;
}

static enum ls_status find_places(const struct ls_graph *g, struct places *p)
{
    *p = (struct places){.g = g};
    while (p->n < g->n_nodes && g->nodes[p->n].phase == LS_FORWARD)
        p->n++;
    p->can = ls_alloc((size_t)p->n + 1, sizeof *p->can);
    p->work = ls_alloc((size_t)p->n + 1, sizeof *p->work);
    p->trained = ls_alloc((size_t)p->n + 1, sizeof *p->trained);
    if (!p->can || !p->work || !p->trained)
        return LS_FAILED;
    int64_t batch = g->tensors[g->input].shape.dim[0];
    for (int n = 0; n < p->n; n++) {
        p->work[n + 1] = p->work[n] + work_of(g, &g->nodes[n], batch);
        p->trained[n + 1] = p->trained[n] + trained_by(g, &g->nodes[n]);
    }
    return find_crossings(p);
}

/* --- cuts -------------------------------------------------------------------------------------------------------- */

/* Cuts such that the stage with the most work has as little as possible. Every stage trains something. */
static enum ls_status cut_evenly(const struct places *p, int stages, int *cuts)
{
    size_t row = (size_t)p->n + 1;
    double *most = ls_alloc((size_t)(stages + 1) * row, sizeof *most); /* most[s][p]: s stages before place p */
    int *from = ls_alloc((size_t)(stages + 1) * row, sizeof *from);
    enum ls_status st = most && from ? LS_OK : LS_FAILED;
    for (size_t i = 0; st == LS_OK && i < (size_t)(stages + 1) * row; i++)
        most[i] = i == 0 ? 0 : DBL_MAX;
    for (int s = 1; st == LS_OK && s <= stages; s++)
        for (int end = 1; end <= p->n; end++)
            for (int begin = 0; begin < end && (p->can[end] || end == p->n); begin++) {
                double before = most[(size_t)(s - 1) * row + (size_t)begin], here = p->work[end] - p->work[begin];
                double worst = before > here ? before : here, *best = &most[(size_t)s * row + (size_t)end];
                if (before == DBL_MAX || p->trained[end] == p->trained[begin] || worst >= *best)
                    continue;
                *best = worst;
                from[(size_t)s * row + (size_t)end] = begin;
            }
    if (st == LS_OK && most[(size_t)stages * row + (size_t)p->n] == DBL_MAX) {
        int places = 1;
        for (int place = 1; place < p->n; place++)
            places += p->can[place] && p->trained[place] > 0 && p->trained[place] < p->trained[p->n];
        st = ls_fail(LS_USAGE, "pipeline:%d: this model has too few places where it can be cut (at most %d stages)",
                     stages, places);
    }
    for (int s = stages, place = p->n; st == LS_OK && s > 0; s--)
        cuts[s - 1] = place = from[(size_t)s * row + (size_t)place];
    ls_free(most);
    ls_free(from);
    return st;
}

static bool is_layer(const char *layer, const char *name, int length)
{
    return strncmp(layer, name, (size_t)length) == 0 && (layer[length] == 0 || layer[length] == '.');
}

/* Names of layers before which the model can be cut, as many as fit. */
static void list_places(const struct places *p, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int place = 1; place < p->n && used < room; place++)
        if (p->can[place] && p->trained[place] > 0 && p->trained[place] < p->trained[p->n])
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", p->g->nodes[place].name);
    if (used >= room)
        memcpy(text + room - 4, "...", 4);
}

static enum ls_status cut_before(const struct places *p, const char *name, int length, int *place)
{
    char names[256];
    for (*place = 0; *place < p->n && !is_layer(p->g->nodes[*place].name, name, length);)
        ++*place;
    if (*place > 0 && *place < p->n && p->can[*place])
        return LS_OK;
    list_places(p, names, sizeof names);
    return ls_fail(LS_USAGE, "pipeline: %s before '%.*s'; possible are: %s",
                   *place == p->n ? "there is no place" : "the model cannot be cut", length, name, names);
}

static enum ls_status cut_at(const struct places *p, int stages, const char *at, int length, int *cuts)
{
    const char *end = at + length;
    int n = 1;
    cuts[0] = 0;
    for (const char *name = at; name < end; n++) {
        const char *plus = memchr(name, '+', (size_t)(end - name));
        int of_name = (int)((plus ? plus : end) - name);
        if (n < stages) {
            LS_TRY(cut_before(p, name, of_name, &cuts[n]));
            if (p->trained[cuts[n]] <= p->trained[cuts[n - 1]])
                return ls_fail(LS_USAGE,
                               "pipeline: a stage that ends before '%.*s' would train nothing; name layers in their "
                               "order, with trained parameters between them",
                               of_name, name);
        }
        name += of_name + (plus != NULL);
    }
    if (n != stages)
        return ls_fail(LS_USAGE, "pipeline:%d: %d layers are named, but %d stages begin at %d of them", stages, n - 1,
                       stages, stages - 1);
    if (p->trained[p->n] <= p->trained[cuts[n - 1]])
        return ls_fail(LS_USAGE, "pipeline:%d: the last stage would train nothing", stages);
    return LS_OK;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* The stage of the forward node that reads one of these values, or LS_NONE. */
static int stage_of_values(const struct ls_graph *g, int n_forward, const int *of_node, const struct ls_node *node)
{
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = node->in[i];
        if (t == LS_NONE || (g->tensors[t].role != LS_ROLE_PARAM && g->tensors[t].role != LS_ROLE_STATE))
            continue;
        for (int n = 0; n < n_forward; n++)
            for (int k = 0; k < LS_MAX_IN; k++)
                if (g->nodes[n].in[k] == t)
                    return of_node[n];
    }
    return LS_NONE;
}

/* A gradient's layer has its name. A sum of gradients belongs to the earliest stage that makes one of them. */
static int stage_of_backward(const struct ls_graph *g, int n_forward, const int *of_node, int node)
{
    int least = LS_NONE;
    for (int n = 0; n < n_forward; n++)
        if (g->nodes[node].op != &ls_op_sum && strcmp(g->nodes[n].name, g->nodes[node].name) == 0)
            return of_node[n];
    for (int i = 0; i < LS_MAX_IN; i++) {
        int maker = g->nodes[node].in[i] == LS_NONE ? LS_NONE : ls_graph_producer(g, g->nodes[node].in[i]);
        if (maker != LS_NONE && (least == LS_NONE || of_node[maker] < least))
            least = of_node[maker];
    }
    return least;
}

static enum ls_status assign(const struct places *p, struct ls_stages *s, const int *cuts)
{
    const struct ls_graph *g = p->g;
    for (int n = 0, stage = 0; n < p->n; n++) {
        while (stage + 1 < s->n && n >= cuts[stage + 1])
            stage++;
        s->of_node[n] = stage;
    }
    for (int n = p->n; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        s->of_node[n] = node->phase == LS_UPDATE ? stage_of_values(g, p->n, s->of_node, node)
                                                 : stage_of_backward(g, p->n, s->of_node, n);
        if (s->of_node[n] == LS_NONE)
            return ls_fail(LS_FAILED, "layer %s: %s belongs to no stage", node->name, node->op->name);
    }
    for (int stage = 0; stage < s->n; stage++) {
        int end = stage + 1 < s->n ? cuts[stage + 1] : p->n;
        s->share[stage] = (p->work[end] - p->work[cuts[stage]]) / p->work[p->n];
        s->first[stage] = g->nodes[cuts[stage]].name;
    }
    return LS_OK;
}

enum ls_status ls_stages_choose(const struct ls_graph *g, int n, const char *at, int length, struct ls_stages *s)
{
    enum ls_status st;
    struct places p = {0};
    int cuts[LS_MOST_STAGES] = {0};
    *s = (struct ls_stages){.n = n};
    if (n > LS_MOST_STAGES)
        return ls_fail(LS_USAGE, "pipeline:%d: at most %d stages are possible", n, LS_MOST_STAGES);
    s->of_node = ls_alloc((size_t)g->n_nodes, sizeof *s->of_node);
    LS_TRY_GOTO(out, s->of_node ? find_places(g, &p) : LS_FAILED);
    LS_TRY_GOTO(out, at ? cut_at(&p, n, at, length, cuts) : cut_evenly(&p, n, cuts));
    st = assign(&p, s, cuts);
out:
    release_places(&p);
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
