/* What can be split with which options; memory for the layers. */
#include "exec/split/split.h"
#include "base/log.h"
#include "graph/ops.h"

#include <string.h>

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Does the optimizer update each value by itself? */
static bool by_value(const char *optimizer)
{
    static const struct {
        const char *name;
        bool norms;
    } list[] = {
#define X(name, least, most, norms) {#name, norms},
#include "config/lists/optimizers.def"
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(optimizer, list[i].name) == 0)
            return !list[i].norms;
    return false;
}

enum ls_status ls_split_check(const struct ls_options *o, const struct ls_engine *e)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_DENSE];
    int size = e->comm ? ls_comm_size(e->comm) : 1;
    if (axis->size < 2)
        return LS_OK;
    if (axis->size != size)
        return ls_fail(LS_USAGE, "--parallel %s: dense takes all %d processes; use dense:%d", o->parallel, size, size);
    if (axis->at)
        return ls_fail(LS_USAGE, "--parallel %s: dense splits every large layer; leave out what follows '@'",
                       o->parallel);
    if (axis->size > LS_SPLIT_CHUNKS)
        return ls_fail(LS_USAGE, "--parallel %s: a layer is divided in %d chunks at most; start no more workers",
                       o->parallel, LS_SPLIT_CHUNKS);
    if (strcmp(o->sync, "overlap") != 0 && strcmp(o->sync, "allreduce") != 0)
        return ls_fail(LS_USAGE,
                       "--parallel dense:%d with --sync %s: all workers take part in each step, whose other gradients "
                       "they add at once; use --sync overlap or allreduce",
                       axis->size, o->sync);
    if (e->backend->queue->own_memory)
        return ls_fail(LS_USAGE, "--parallel dense:%d: rows are divided on CPUs only; use --backend onednn",
                       axis->size);
    if (strcmp(o->compress, "none") != 0)
        return ls_fail(
            LS_USAGE,
            "--parallel dense:%d with --compress %s: gradients of split layers do not travel and would not be "
            "compressed, so results would depend on the layout; leave it out",
            axis->size, o->compress);
    if (!by_value(o->optimizer))
        return ls_fail(
            LS_USAGE,
            "--parallel dense:%d with --optimizer %s: it updates a layer as a whole, of which no worker has all "
            "rows; use sgd or adamw",
            axis->size, o->optimizer);
    if (o->bn_samples > 0)
        return ls_fail(LS_USAGE, "--parallel dense:%d with --bn-samples: passes that only measure are not divided",
                       axis->size);
    if (strcmp(o->dtype, "f32") != 0)
        return ls_fail(LS_USAGE,
                       "--parallel dense:%d with --dtype %s: rows of layers have the bits of whole layers in f32 only",
                       axis->size, o->dtype);
    return LS_OK;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

static int next_of(const struct ls_graph *g, int *at, const struct ls_op *op)
{
    return *at < g->n_nodes && g->nodes[*at].op == op ? (*at)++ : LS_NONE;
}

static enum ls_status find_backward(const struct ls_graph *g, const char *name, struct ls_split_nodes *n)
{
    n->out_bwd = n->weights = n->data = n->in_bwd = LS_NONE;
    for (int i = n->out; i < g->n_nodes; i++)
        if (g->nodes[i].op == &ls_op_split_out_bwd && strcmp(g->nodes[i].name, name) == 0)
            n->out_bwd = i;
    if (n->out_bwd == LS_NONE)
        return LS_OK;
    int at = n->out_bwd + 1;
    n->weights = next_of(g, &at, &ls_op_dense_bwd_weights);
    n->data = next_of(g, &at, &ls_op_dense_bwd_data);
    n->in_bwd = next_of(g, &at, &ls_op_split_in_bwd);
    n->end = at;
    if ((n->data == LS_NONE) != (n->in_bwd == LS_NONE) || (n->data == LS_NONE && n->weights == LS_NONE))
        return ls_fail(LS_FAILED, "layer %s: the nodes of its gradient do not follow each other", name);
    return LS_OK;
}

static enum ls_status find_nodes(const struct ls_graph *g, int in, struct ls_split_nodes *n)
{
    *n = (struct ls_split_nodes){.in = in, .dense = in + 1, .out = in + 2};
    if (in + 2 >= g->n_nodes || g->nodes[in + 1].op != &ls_op_dense || g->nodes[in + 2].op != &ls_op_split_out)
        return ls_fail(LS_FAILED, "layer %s: its nodes do not follow each other", g->nodes[in].name);
    return find_backward(g, g->nodes[in].name, n);
}

/* Floats of a tensor as stored: plain, or with channels in blocks. */
static size_t stored_floats(const struct ls_shape *s, size_t bytes)
{
    for (int64_t block = 1; block <= 16; block = block == 1 ? 8 : block * 2) {
        int64_t channels = (s->dim[1] + block - 1) / block * block;
        size_t floats = (size_t)(ls_shape_count(s) / s->dim[1] * channels);
        if ((floats * sizeof(float) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN ==
            (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN)
            return floats;
    }
    return 0;
}

/* Gradients come in this order: in each round those of all workers, in the order of ranks. */
static int list_slices(struct ls_split *s, int *order)
{
    int n = 0;
    s->samples = INT64_MAX;
    for (s->round = 0; s->round < s->rounds; s->round++)
        for (int w = 0; w < s->workers; w++) {
            struct ls_split_slice slice = ls_split_slice_of(s, w);
            if (slice.replica >= 0)
                order[n++] = slice.replica * s->passes + slice.pass;
        }
    return n;
}

static enum ls_status open_sums(struct ls_split *s, struct ls_split_layer *l, const int *order, int n)
{
    struct ls_engine *e = s->engine;
    const struct ls_node *weights = &e->train.graph.nodes[l->train.weights];
    LS_TRY(ls_sums_init(&l->sums, e->tree->replicas, s->passes, order, n));
    for (int i = 0; i < 2; i++) {
        size_t bytes = 0;
        l->grads[i] = weights->out[i];
        if (l->grads[i] == LS_NONE)
            continue;
        l->sums.grads[i] = e->backend->memory(e->train.program, l->grads[i], &bytes);
        l->sums.counts[i] = bytes / sizeof(float);
    }
    return ls_sums_open(&l->sums, e->backend, e->train.program);
}

static enum ls_status open_layer(struct ls_split *s, struct ls_split_layer *l, int in, const int *order, int n)
{
    struct ls_engine *e = s->engine;
    const struct ls_graph *g = &e->train.graph;
    size_t bytes;
    LS_TRY(find_nodes(g, in, &l->train));
    l->rows = g->nodes[l->train.dense].attr.whole_rows;
    l->grads[0] = l->grads[1] = LS_NONE;
    e->backend->memory(e->train.program, g->nodes[in].in[0], &bytes);
    l->inputs = stored_floats(&g->tensors[g->nodes[in].in[0]].shape, bytes);
    if (l->inputs == 0)
        return ls_fail(LS_FAILED, "layer %s: the layout of its inputs is not known", g->nodes[in].name);
    l->x = ls_alloc((size_t)s->workers, sizeof *l->x);
    for (int w = 0; l->x && w < s->workers; w++)
        if (!(l->x[w] = ls_alloc(l->inputs, sizeof **l->x)))
            return LS_FAILED;
    if (!l->x)
        return LS_FAILED;
    return l->train.weights == LS_NONE ? LS_OK : open_sums(s, l, order, n);
}

static enum ls_status open_layers(struct ls_split *s)
{
    const struct ls_graph *g = &s->engine->train.graph, *eval = &s->engine->eval.graph;
    enum ls_status st = LS_OK;
    int *order = ls_alloc((size_t)(s->engine->tree->replicas * s->passes), sizeof *order), at = 0;
    s->layers = ls_alloc((size_t)g->n_nodes, sizeof *s->layers);
    if (!order || !s->layers) {
        st = LS_FAILED;
        goto free_order;
    }
    int n = list_slices(s, order);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == &ls_op_split_in)
            LS_TRY_GOTO(free_order, open_layer(s, &s->layers[s->n_layers++], i, order, n));
    for (int i = 0; i < eval->n_nodes && at < s->n_layers; i++)
        if (eval->nodes[i].op == &ls_op_split_in)
            LS_TRY_GOTO(free_order, find_nodes(eval, i, &s->layers[at++].eval));
free_order:
    ls_free(order);
    return st;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static enum ls_status open_lane(struct ls_split_lane *lane, size_t floats)
{
    lane->send = ls_alloc(floats, sizeof *lane->send);
    lane->receive = ls_alloc(floats, sizeof *lane->receive);
    return lane->send && lane->receive ? LS_OK : LS_FAILED;
}

static enum ls_status open_lanes(struct ls_split *s)
{
    size_t rows = 0, parts = 0, longest = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const struct ls_split_layer *l = &s->layers[i];
        size_t most =
            (size_t)(s->batch * ls_split_chunk(l->rows)) * ((LS_SPLIT_CHUNKS + s->workers - 1) / (size_t)s->workers);
        rows = most > rows ? most : rows;
        parts = LS_SPLIT_PARTS * l->inputs > parts ? LS_SPLIT_PARTS * l->inputs : parts;
        longest = (size_t)(s->batch * l->rows) > longest ? (size_t)(s->batch * l->rows) : longest;
        longest = l->inputs > longest ? l->inputs : longest;
    }
    s->rows = ls_alloc((size_t)s->workers, sizeof *s->rows);
    s->parts = ls_alloc((size_t)s->workers, sizeof *s->parts);
    s->zeros = ls_alloc(longest, sizeof *s->zeros);
    if (!s->rows || !s->parts || !s->zeros)
        return LS_FAILED;
    for (int w = 0; w < s->workers; w++) {
        LS_TRY(open_lane(&s->rows[w], rows));
        LS_TRY(open_lane(&s->parts[w], parts));
    }
    return LS_OK;
}

/* --- */

enum ls_status ls_split_open(struct ls_engine *e, const struct ls_options *o)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_DENSE];
    if (axis->size < 2)
        return LS_OK;
    struct ls_split *s = e->split = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    *s = (struct ls_split){
        .engine = e, .workers = axis->size, .me = axis->place, .batch = e->size.batch, .passes = (int)o->accumulate};
    for (int w = 0; w < s->workers; w++) {
        int slices = (e->tree->first[w + 1] - e->tree->first[w]) * s->passes;
        s->rounds = slices > s->rounds ? slices : s->rounds;
    }
    LS_TRY(open_layers(s));
    return open_lanes(s);
}

static void free_lanes(struct ls_split_lane *lanes, int n)
{
    for (int i = 0; lanes && i < n; i++) {
        ls_free(lanes[i].send);
        ls_free(lanes[i].receive);
    }
    ls_free(lanes);
}

void ls_split_close(struct ls_engine *e)
{
    struct ls_split *s = e->split;
    if (!s)
        return;
    for (int i = 0; i < s->n_layers; i++) {
        for (int w = 0; s->layers[i].x && w < s->workers; w++)
            ls_free(s->layers[i].x[w]);
        ls_free(s->layers[i].x);
        ls_sums_release(&s->layers[i].sums);
    }
    free_lanes(s->rows, s->workers);
    free_lanes(s->parts, s->workers);
    ls_free(s->layers);
    ls_free(s->zeros);
    ls_free(s);
    e->split = NULL;
}
