#include "parallel/layers.h"
#include "base/log.h"
#include "graph/ops.h"
#include "graph/split.h"

#include <string.h>

/* --- work --------------------------------------------------------------------------------------------------------- */

/* An element that is written costs about as much as so many multiply-adds. So does a parameter in each pass: its weights are
 * read, its gradient is written and added to that of other passes. Measured on CPUs with ResNet-18, ResNet-50, VGG11 and
 * MobileNetV2 at 32x32 and 64x64: shares of stages come out within 3 points of the time that they were busy. */
enum { PER_ELEMENT = 24, PER_PARAMETER = 320 };

/* In multiply-adds of one sample, forward and backward. It only has to be in proportion. */
static double estimate(const struct ls_graph *g, const struct ls_node *n, int64_t batch)
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

static void set_estimates(const struct ls_graph *g, struct ls_layers *l)
{
    int64_t batch = g->tensors[g->input].shape.dim[0];
    for (int n = 0; n < l->n; n++) {
        double work = estimate(g, &g->nodes[n], batch);
        l->list[n].forward = work / 3;
        l->list[n].backward = work - work / 3;
    }
}

static void set_seconds(const struct ls_graph *g, const double *seconds, struct ls_layers *l)
{
    for (int n = 0; n < g->n_nodes; n++) {
        struct ls_layer *layer = &l->list[l->of_node[n]];
        *(g->nodes[n].phase == LS_FORWARD    ? &layer->forward
          : g->nodes[n].phase == LS_BACKWARD ? &layer->backward
                                             : &layer->update) += seconds[n];
    }
}

/* --- the layer of a node ------------------------------------------------------------------------------------------ */

/* The forward node that reads one of these values, or LS_NONE. */
static int layer_of_values(const struct ls_graph *g, int n_forward, const struct ls_node *node)
{
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = node->in[i];
        if (t == LS_NONE || (g->tensors[t].role != LS_ROLE_PARAM && g->tensors[t].role != LS_ROLE_STATE))
            continue;
        for (int n = 0; n < n_forward; n++)
            for (int k = 0; k < LS_MAX_IN; k++)
                if (g->nodes[n].in[k] == t)
                    return n;
    }
    return LS_NONE;
}

/* A gradient's layer has its name. A sum of gradients belongs to the earliest layer that makes one of them. */
static int layer_of_backward(const struct ls_graph *g, int n_forward, const int *of_node, int node)
{
    int least = LS_NONE;
    for (int n = 0; n < n_forward; n++)
        if (g->nodes[node].op != &ls_op_sum && strcmp(g->nodes[n].name, g->nodes[node].name) == 0)
            return n;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int maker = g->nodes[node].in[i] == LS_NONE ? LS_NONE : ls_graph_producer(g, g->nodes[node].in[i]);
        if (maker != LS_NONE && (least == LS_NONE || of_node[maker] < least))
            least = of_node[maker];
    }
    return least;
}

static enum ls_status assign(const struct ls_graph *g, struct ls_layers *l)
{
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        l->of_node[n] = n < l->n                   ? n
                        : node->phase == LS_UPDATE ? layer_of_values(g, l->n, node)
                                                   : layer_of_backward(g, l->n, l->of_node, n);
        if (l->of_node[n] == LS_NONE)
            return ls_fail(LS_FAILED, "layer %s: %s belongs to no stage", node->name, node->op->name);
    }
    return LS_OK;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct ls_tensor *t)
{
    return (size_t)ls_shape_count(&t->shape) * ls_dtype_size(t->dtype);
}

/* Counts a tensor for the first layer that reads or writes it. */
static void count_tensor(const struct ls_graph *g, struct ls_layer *layer, int t, bool forward, bool *counted)
{
    if (t == LS_NONE || counted[t])
        return;
    const struct ls_tensor *tensor = &g->tensors[t];
    counted[t] = true;
    if (ls_role_kept(tensor->role))
        layer->kept += bytes_of(tensor);
    else if (tensor->role == LS_ROLE_GRAD)
        layer->grads += bytes_of(tensor);
    else if (tensor->role == LS_ROLE_ACT && forward)
        layer->activations += bytes_of(tensor);
}

static enum ls_status count_bytes(const struct ls_graph *g, struct ls_layers *l)
{
    bool *counted = ls_alloc((size_t)g->n_tensors, sizeof *counted);
    if (!counted)
        return LS_FAILED;
    for (int n = 0; n < g->n_nodes; n++) {
        struct ls_layer *layer = &l->list[l->of_node[n]];
        for (int i = 0; i < LS_MAX_IN; i++)
            count_tensor(g, layer, g->nodes[n].in[i], n < l->n, counted);
        for (int i = 0; i < LS_MAX_OUT; i++)
            count_tensor(g, layer, g->nodes[n].out[i], n < l->n, counted);
    }
    ls_free(counted);
    return LS_OK;
}

static void describe(const struct ls_graph *g, int n, struct ls_layer *layer)
{
    const struct ls_node *node = &g->nodes[n];
    layer->name = node->name;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = node->in[i];
        layer->trained += t != LS_NONE && g->tensors[t].role == LS_ROLE_PARAM && g->tensors[t].grad != LS_NONE &&
                          !g->tensors[t].frozen;
    }
    if (node->op != &ls_op_dense || g->tensors[node->in[0]].role != LS_ROLE_ACT ||
        !ls_split_is_large(&g->tensors[node->in[1]].shape))
        return;
    layer->rows = g->tensors[node->in[1]].shape.dim[0];
    layer->inputs = bytes_of(&g->tensors[node->in[0]]);
    layer->results = bytes_of(&g->tensors[node->out[0]]);
    layer->part = (size_t)ls_shape_count(&g->tensors[node->in[0]].shape) * sizeof(float);
}

/* --- places to cut ------------------------------------------------------------------------------------------------ */

/* The tensors that go on at each layer: made before it, read from it on. Labels travel in any case. */
static enum ls_status find_crossings(const struct ls_graph *g, struct ls_layers *l)
{
    int *last = ls_alloc((size_t)g->n_tensors, sizeof *last), *made = ls_alloc((size_t)g->n_tensors, sizeof *made);
    int *count = ls_alloc((size_t)l->n + 1, sizeof *count);
    enum ls_status st = last && made && count ? LS_OK : LS_FAILED;
    for (int n = 0; st == LS_OK && n < l->n; n++) {
        for (int i = 0; i < LS_MAX_IN; i++)
            if (g->nodes[n].in[i] != LS_NONE)
                last[g->nodes[n].in[i]] = n;
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (g->nodes[n].out[i] != LS_NONE)
                made[g->nodes[n].out[i]] = n + 1;
    }
    for (int t = 0; st == LS_OK && t < g->n_tensors; t++)
        if ((g->tensors[t].role == LS_ROLE_ACT && made[t] > 0) || t == g->input)
            for (int place = made[t]; place <= last[t]; place++) {
                count[place] += t == g->input ? 3 : 1; /* images never go on */
                l->list[place].crossing += bytes_of(&g->tensors[t]);
            }
    for (int place = 1; st == LS_OK && place < l->n; place++)
        *(count[place] == 1 ? &l->list[place].can_cut : &l->list[place].two_go_on) = count[place] <= 2;
    ls_free(last);
    ls_free(made);
    ls_free(count);
    return st;
}

/* --- */

enum ls_status ls_layers_of(const struct ls_graph *g, const double *seconds, struct ls_layers *l)
{
    enum ls_status st;
    *l = (struct ls_layers){.measured = seconds != NULL};
    while (l->n < g->n_nodes && g->nodes[l->n].phase == LS_FORWARD)
        l->n++;
    l->list = ls_alloc((size_t)l->n, sizeof *l->list);
    l->of_node = ls_alloc((size_t)g->n_nodes, sizeof *l->of_node);
    if (!l->list || !l->of_node) {
        st = LS_FAILED;
        goto failed;
    }
    LS_TRY_GOTO(failed, assign(g, l));
    for (int n = 0; n < l->n; n++)
        describe(g, n, &l->list[n]);
    LS_TRY_GOTO(failed, count_bytes(g, l));
    LS_TRY_GOTO(failed, find_crossings(g, l));
    if (seconds)
        set_seconds(g, seconds, l);
    else
        set_estimates(g, l);
    return LS_OK;
failed:
    ls_layers_release(l);
    return st;
}

/* The layer of that name; LS_NONE: there is none. */
static int layer_of(const struct ls_layers *l, const char *name, size_t length)
{
    for (int n = 0; n < l->n; n++)
        if (strncmp(l->list[n].name, name, length) == 0 && !l->list[n].name[length])
            return n;
    return LS_NONE;
}

void ls_layers_join(struct ls_layers *l, const char *joined)
{
    for (int n = 0; joined && n < l->n; n++)
        l->list[n].can_cut |= l->list[n].two_go_on;
    while (joined && *joined) {
        size_t first = strcspn(joined, "\t"), second = strcspn(joined + first + 1, "\n");
        int a = layer_of(l, joined, first), b = layer_of(l, joined + first + 1, second);
        for (int place = (a < b ? a : b) + 1; a != LS_NONE && b != LS_NONE && place <= (a < b ? b : a); place++)
            l->list[place].can_cut = false;
        joined += first + 1 + second + (joined[first + 1 + second] == '\n');
    }
}

void ls_layers_release(struct ls_layers *l)
{
    ls_free(l->list);
    ls_free(l->of_node);
    *l = (struct ls_layers){0};
}

double ls_layers_work(const struct ls_layers *l, int first, int end, int passes)
{
    double work = 0;
    for (int n = first; n < end; n++)
        work += (l->list[n].forward + l->list[n].backward) * passes + l->list[n].update;
    return work;
}

struct ls_layer ls_layers_sum(const struct ls_layers *l, int first, int end)
{
    struct ls_layer sum = {0};
    for (int n = first; n < end; n++) {
        const struct ls_layer *a = &l->list[n];
        sum.trained += a->trained;
        sum.forward += a->forward;
        sum.backward += a->backward;
        sum.update += a->update;
        sum.kept += a->kept;
        sum.grads += a->grads;
        sum.activations += a->activations;
    }
    return sum;
}
