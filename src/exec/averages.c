#include "exec/averages.h"
#include "exec/rank_reduce.h"
#include "exec/shards/shards.h"
#include "graph/ops.h"

#include <math.h>

/* Of one value: what to do with the two of `count` floats each. They are written back as it leaves them. */
typedef void change(float *value, float *average, size_t count);

static void copy(float *value, float *average, size_t count)
{
    for (size_t i = 0; i < count; i++)
        average[i] = value[i];
}

static void swap(float *value, float *average, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float kept = value[i];
        value[i] = average[i];
        average[i] = kept;
    }
}

/* The values of a tensor that are here: all, or those of this process's part (shards.h). */
static size_t count_of(const struct ls_engine *e, int tensor)
{
    const struct ls_tensor *t = &e->train.graph.tensors[tensor];
    return t->apart ? ls_shards_count(e, tensor) : (size_t)ls_shape_count(&t->shape);
}

static enum ls_status get(const struct ls_engine *e, int tensor, float *values)
{
    return e->train.graph.tensors[tensor].apart ? ls_shards_get(e, tensor, values)
                                                : e->backend->read(e->train.program, tensor, values);
}

static enum ls_status put(struct ls_engine *e, int tensor, const float *values)
{
    return e->train.graph.tensors[tensor].apart ? ls_shards_put(e, tensor, values)
                                                : e->backend->write(e->train.program, tensor, values);
}

static enum ls_status change_one(struct ls_engine *e, const struct ls_node *n, change *how)
{
    enum ls_status st = LS_FAILED;
    size_t count = count_of(e, n->in[0]);
    float *value = ls_alloc(2 * count, sizeof *value), *average = value ? value + count : NULL;
    if (!value)
        return LS_FAILED;
    LS_TRY_GOTO(free_values, get(e, n->in[0], value));
    LS_TRY_GOTO(free_values, get(e, n->in[2], average));
    how(value, average, count);
    LS_TRY_GOTO(free_values, put(e, n->in[0], value));
    st = put(e, n->in[2], average);
free_values:
    ls_free(value);
    return st;
}

static enum ls_status change_all(struct ls_engine *e, change *how)
{
    const struct ls_graph *g = &e->train.graph;
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &ls_op_ema)
            LS_TRY(change_one(e, &g->nodes[n], how));
    return LS_OK;
}

enum ls_status ls_averages_begin(struct ls_engine *e)
{
    return change_all(e, copy);
}

enum ls_status ls_averages_swap(struct ls_engine *e)
{
    return change_all(e, swap);
}

static bool are_finite(const float *values, size_t count)
{
    bool finite = true;
    for (size_t i = 0; i < count; i++)
        finite = finite && isfinite(values[i]);
    return finite;
}

static enum ls_status is_finite(struct ls_engine *e, int tensor, bool *finite)
{
    size_t count = count_of(e, tensor);
    float *values = ls_alloc(count, sizeof *values);
    if (!values)
        return LS_FAILED;
    enum ls_status st = get(e, tensor, values);
    *finite = st != LS_OK || are_finite(values, count);
    ls_free(values);
    return st;
}

/* Where every rank has its part of the model, all of them say so when one finds a value. */
static enum ls_status agree(struct ls_engine *e, const char **name)
{
    int64_t most = 0;
    if (!ls_engine_in_parts(e))
        return LS_OK;
    LS_TRY(ls_rank_reduce_most(e->comm, *name != NULL, &most));
    *name = *name || !most ? *name : "a tensor of another rank";
    return LS_OK;
}

enum ls_status ls_averages_check(struct ls_engine *e, const char **name)
{
    const struct ls_graph *g = &e->train.graph;
    bool finite = true;
    *name = NULL;
    for (int n = 0; n < g->n_nodes && !*name; n++) {
        if (g->nodes[n].op != &ls_op_ema)
            continue;
        LS_TRY(is_finite(e, g->nodes[n].in[2], &finite));
        *name = finite ? NULL : g->tensors[g->nodes[n].in[0]].name;
    }
    return agree(e, name);
}
