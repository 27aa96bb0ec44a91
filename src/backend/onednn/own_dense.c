/* Large dense layers by our own kernels (kernels/dense.c, dense_bf16.c). Their layout of the weights, f32 in any case,
 * is chosen for them: where vectors have 16 values, 64 rows side by side, which the forward pass and the gradient of
 * the weights use as they are; otherwise, and where inputs would need padding that activations lack, row by row. */
#include "backend/onednn/program.h"
#include "graph/ops.h"

#include <stdio.h>

enum { ROWS = 64 };

static int weights_of(const struct ls_node *n)
{
    return n->op == &ls_op_dense_bwd_weights ? n->out[0] : n->in[1];
}

bool own_dense_fits(const struct ls_program *p, const struct ls_node *n)
{
    struct ls_split_range range;
    bool dense = n->op == &ls_op_dense || n->op == &ls_op_dense_bwd_data || n->op == &ls_op_dense_bwd_weights;
    return dense && p->k.dense.run && (n->op != &ls_op_dense || ls_act_clips(n->attr.act)) &&
           ls_split_range_of(&n->attr, tensor_shape(p, weights_of(n)), &range);
}

/* Weights follow the shape and the layout of what they multiply. */
enum ls_status own_dense_layout(const struct ls_program *p, int src, int64_t rows, struct dnn_md *wei)
{
    const struct ls_shape *s = tensor_shape(p, src);
    int64_t dims[LS_MAX_DIMS] = {rows, s->dim[1], s->dim[2], s->dim[3]};
    bool maps = p->layouts[src].blocked, side_by_side = maps || (s->rank == 2 && s->dim[1] % 16 == 0);
    enum dnn_tag by_rows = !maps ? DNN_PLAIN : p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8;
    return dnn_md_init(wei, s->rank, dims, LS_F32, p->k.block == 16 && side_by_side ? DNN_ROWS_64 : by_rows);
}

static const struct ls_dense_kernel *kernel_of(const struct ls_program *p)
{
    return p->k.dense_amx.run ? &p->k.dense_amx : &p->k.dense;
}

enum ls_status own_dense_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    bool weights = n->op == &ls_op_dense_bwd_weights, data = n->op == &ls_op_dense_bwd_data;
    int src = weights ? n->in[1] : data ? n->out[0] : n->in[0], dst = weights || data ? n->in[0] : n->out[0];
    struct ls_dense *d = &p->execs[node].dense;
    char layout[48];
    *d = (struct ls_dense){.pass = weights ? LS_CONV_WEIGHTS
                                   : data  ? LS_CONV_DATA
                                           : LS_CONV_FORWARD,
                           .threads = p->core.options.threads,
                           .n = tensor_shape(p, dst)->dim[0],
                           .rows = tensor_shape(p, dst)->dim[1],
                           .act = n->attr.act};
    d->inputs = tensor_stored(p, src) / tensor_shape(p, src)->dim[0];
    ls_split_range_of(&n->attr, tensor_shape(p, weights_of(n)), &d->range);
    dnn_md_text(&p->layouts[weights_of(n)].md, layout, sizeof layout);
    d->block = layout[0] == 'A' ? ROWS : 0;
    d->sums = data && n->attr.whole_rows > 0;
    snprintf(p->execs[node].note, sizeof p->execs[node].note, "%s:%s", p->k.dense_amx.run ? "dense amx" : "dense",
             p->k.isa);
    p->core.nodes[node].scratch_bytes = kernel_of(p)->scratch(d);
    return LS_OK;
}

void own_dense_bind(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_dense *d = &p->execs[node].dense;
    bool weights = d->pass == LS_CONV_WEIGHTS;
    d->w = (const float *)tensor_data(p, weights_of(n));
    d->in = tensor_data(p, n->in[weights ? 1 : 0]);
    d->dy = weights ? tensor_data(p, n->in[0]) : NULL;
    d->bias = d->pass == LS_CONV_FORWARD ? (const float *)tensor_data(p, n->in[2]) : NULL;
    d->out = tensor_data(p, n->out[0]);
    d->out_bias = weights ? (float *)tensor_data(p, n->out[1]) : NULL;
    d->scratch = p->core.nodes[node].scratch;
}

void own_dense_run(const struct ls_program *p, int node)
{
    kernel_of(p)->run(&p->execs[node].dense);
}
