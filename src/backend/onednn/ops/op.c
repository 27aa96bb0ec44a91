#include "backend/onednn/ops/op.h"

enum ls_status prepare_plain(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] != LS_NONE)
            LS_TRY(place_default(p, n->in[i]));
    for (int i = 0; i < LS_MAX_OUT; i++)
        if (p->core.g->nodes[node].out[i] != LS_NONE)
            LS_TRY(place_default(p, p->core.g->nodes[node].out[i]));
    return LS_OK;
}

enum ls_status window_axes(struct ls_program *p, int node, int map, int pooled)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
    const struct ls_shape *in = tensor_shape(p, map), *out = tensor_shape(p, pooled);
    struct node_exec *s = &p->execs[node];
    LS_TRY(
        ls_axis_window(&s->y, in->dim[2], out->dim[2], a->kernel_h, a->stride_h, a->pad_t, a->pad_b, a->include_pad));
    return ls_axis_window(&s->x, in->dim[3], out->dim[3], a->kernel_w, a->stride_w, a->pad_l, a->pad_r, a->include_pad);
}

struct ls_map map_with_axes(struct ls_program *p, int node, int tensor, const struct ls_run *run)
{
    struct ls_map m = tensor_map(p, tensor, run);
    m.y = &p->execs[node].y;
    m.x = &p->execs[node].x;
    return m;
}
