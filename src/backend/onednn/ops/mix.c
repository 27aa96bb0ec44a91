/* Mixup and cutmix. The mixed images stay plain, as images are: oneDNN computes a first convolution, of one or three
 * channels, fast only from plain images. */
#include "backend/core/mix.h"
#include "backend/onednn/ops/op.h"
#include "base/log.h"

static enum ls_status prepare_mix(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_tensor *out = &p->core.g->tensors[n->out[0]];
    struct dnn_md md = {0};
    if (p->core.g->tensors[n->in[0]].role != LS_ROLE_INPUT)
        return ls_fail(LS_USAGE, "layer %s: mix takes the images of a batch, and nothing computed from them", n->name);
    LS_TRY(dnn_md_init(&md, 4, out->shape.dim, out->dtype, DNN_PLAIN));
    enum ls_status st = place_as(p, n->out[0], &md);
    dnn_md_release(&md);
    return st;
}

/* A kernel that binds reads images as they are. */
static void bind_mix(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
}

static enum ls_status run_mix(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map map = tensor_map(p, n->in[0], run);
    struct ls_mix mix = ls_mix_of_run(&n->attr.mix, run);
    p->k.mix(&map, tensor_shape(p, n->in[0])->dim[1], &mix, (const float *)IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_mix[] = {
    {"mix", prepare_mix, bind_mix, run_mix},
    {0},
};
