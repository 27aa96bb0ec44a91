/* What joins tensors, and what takes them apart. */
#include "backend/onednn/ops/op.h"

#include <string.h>

static enum ls_status run_add(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.add(p->core.g->nodes[node].attr.act, IN(0), IN(1), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_sum(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.add(LS_ACT_NONE, IN(0), IN(1), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

/* Copies `columns` columns of a matrix (N, K), which is stored row by row, to another one. */
static void copy_columns(struct ls_program *p, int from, int64_t from_column, int to, int64_t to_column,
                         int64_t columns)
{
    size_t size = ls_dtype_size(p->core.g->tensors[to].dtype);
    int64_t from_width = tensor_shape(p, from)->dim[1], to_width = tensor_shape(p, to)->dim[1];
    const char *source = (const char *)tensor_data(p, from);
    char *target = (char *)tensor_data(p, to);
    for (int64_t row = 0; row < tensor_shape(p, to)->dim[0]; row++)
        memcpy(target + (size_t)(row * to_width + to_column) * size,
               source + (size_t)(row * from_width + from_column) * size, (size_t)columns * size);
}

static enum ls_status run_concat(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    int64_t to = 0, blocks = tensor_map(p, n->out[0], run).blocks;
    for (int i = 0; i < LS_MAX_IN && n->in[i] != LS_NONE; i++) {
        struct ls_map m = tensor_map(p, n->in[i], run);
        int64_t channels = tensor_shape(p, n->in[i])->dim[1];
        if (tensor_shape(p, n->out[0])->rank == 2)
            copy_columns(p, n->in[i], 0, n->out[0], to, channels);
        else
            p->k.copy_channels(&m, IN(i), 0, OUT(0), blocks, to, channels);
        to += channels;
    }
    return LS_OK;
}

static enum ls_status run_slice(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[0], run);
    int64_t channels = tensor_shape(p, n->out[0])->dim[1];
    if (tensor_shape(p, n->out[0])->rank == 2)
        copy_columns(p, n->in[0], n->attr.offset, n->out[0], 0, channels);
    else
        p->k.copy_channels(&m, IN(0), n->attr.offset, OUT(0), tensor_map(p, n->out[0], run).blocks, 0, channels);
    return LS_OK;
}

const struct kernel ls_onednn_ops_join[] = {
    {"add", prepare_plain, NULL, run_add},
    {"sum", prepare_plain, NULL, run_sum},
    {"concat", prepare_plain, NULL, run_concat},
    {"slice", prepare_plain, NULL, run_slice},
    {0},
};
