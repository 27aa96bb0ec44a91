/* Views of images, and the mean of their logits. The views stay plain, as images are. */
#include "backend/onednn/ops/op.h"

static enum ls_status prepare_views(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_tensor *out = &p->core.g->tensors[n->out[0]];
    struct dnn_md md = {0};
    LS_TRY(dnn_md_init(&md, 4, out->shape.dim, out->dtype, DNN_PLAIN));
    enum ls_status st = place_as(p, n->out[0], &md);
    dnn_md_release(&md);
    return st;
}

/* A kernel that binds reads images as they are. */
static void bind_views(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
}

static enum ls_status run_views(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    (void)run;
    p->k.views(tensor_shape(p, n->in[0]), &n->attr.views, (const float *)(const void *)IN(0), OUT(0));
    return LS_OK;
}

static enum ls_status run_views_mean(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    (void)run;
    p->k.views_mean(ls_shape_count(tensor_shape(p, n->out[0])), &n->attr.views, IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_views[] = {
    {"views", prepare_views, bind_views, run_views},
    {"views_mean", prepare_plain, NULL, run_views_mean},
    {0},
};
