#include "exec/shards/worker_memory.h"
#include "exec/shards/params.h"
#include "exec/shards/shards.h"
#include "graph/ops.h"
#include "graph/split.h"

#include <string.h>

/* Bytes of all tensors of a role, as stored. */
static size_t bytes_of_role(const struct ls_engine *e, enum ls_role role)
{
    const struct ls_net *net = ls_engine_net(e);
    size_t all = 0, bytes;
    for (int t = 0; t < net->graph.n_tensors; t++)
        if (net->graph.tensors[t].role == role) {
            e->backend->memory(net->program, t, &bytes);
            all += (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
        }
    return all;
}

/* How many memories of the size of all gradients a worker takes at most. */
static enum ls_status count_gradients(int replicas, int passes, int workers, size_t *copies)
{
    struct ls_tree tree;
    LS_TRY(ls_tree_init(&tree, replicas, workers));
    *copies = 0;
    for (int rank = 0; rank < workers; rank++) {
        size_t own = ls_replicas_gradients(&tree, rank, passes);
        *copies = own > *copies ? own : *copies;
    }
    ls_tree_release(&tree);
    return LS_OK;
}

static size_t bytes_of(const struct ls_tensor *t)
{
    return (size_t)ls_shape_count(&t->shape) * ls_dtype_size(t->dtype);
}

/* Gradients of the rows of split dense layers, of which there is one memory already, and room for what travels. A worker adds
 * the gradients of its whole group (exec/split/sums.h). */
static void add_rows(const struct ls_engine *e, int replicas, size_t copies, struct ls_worker_memory *m)
{
    const struct ls_graph *g = &e->train.graph;
    size_t workers = (size_t)e->mesh.axes[LS_PARALLEL_DENSE].size, rows = 0, lane = 0, levels = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        for (int i = 0; i < 2 && node->op == &ls_op_dense_bwd_weights && node->attr.whole_rows > 0; i++)
            rows += node->out[i] == LS_NONE ? 0 : bytes_of(&g->tensors[node->out[i]]);
        if (node->op != &ls_op_dense || node->attr.whole_rows == 0)
            continue;
        const struct ls_tensor *x = &g->tensors[node->in[0]];
        size_t both =
            bytes_of(&g->tensors[node->out[0]]) + LS_SPLIT_PARTS * (size_t)ls_shape_count(&x->shape) * sizeof(float);
        m->exchanged += workers * bytes_of(x);
        lane = both > lane ? both : lane;
    }
    m->exchanged += 2 * workers * lane;
    while (replicas > 1 << levels)
        levels++;
    m->gradients = m->gradients - copies * rows + (1 + levels + (e->passes > 1)) * rows;
}

enum ls_status ls_worker_memory(const struct ls_engine *e, const struct ls_options *o, int workers,
                                struct ls_worker_memory *memory)
{
    size_t copies;
    struct ls_shards_bytes shards = {0};
    LS_TRY(count_gradients((int)o->replicas, e->passes, workers, &copies));
    *memory = (struct ls_worker_memory){.parameters = bytes_of_role(e, LS_ROLE_PARAM) + bytes_of_role(e, LS_ROLE_STATE),
                                        .all_state = bytes_of_role(e, LS_ROLE_OPTIMIZER),
                                        .gradients = copies * e->n_grads * sizeof(float),
                                        .activations = e->arena_bytes};
    memory->state = memory->all_state;
    if (e->mesh.axes[LS_PARALLEL_DENSE].size > 1)
        add_rows(e, (int)o->replicas, copies, memory);
    if (workers == 1 || strcmp(o->shard, "none") == 0)
        return LS_OK;
    LS_TRY(ls_shards_predict(e, o, workers, &shards));
    memory->state = memory->all_state - shards.all + shards.most;
    memory->parameters = memory->parameters - shards.all_parameters + shards.most_parameters;
    memory->gathered = shards.ring;
    if (ls_params_drop_gradients(e->backend, o, (int)((o->replicas * e->passes + workers - 1) / workers)))
        memory->gradients = shards.gradients;
    return LS_OK;
}

size_t ls_worker_memory_sum(const struct ls_worker_memory *m)
{
    return m->parameters + m->gathered + m->exchanged + m->state + m->gradients + m->activations;
}
