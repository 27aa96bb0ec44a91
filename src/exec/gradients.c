/* The memory of gradients that outlive a pass. */
#include "exec/device/peers.h"
#include "exec/engine.h"

/* Memory of the host for gradients, where the other processes of this node can read it. */
static enum ls_status take_grads(struct ls_engine *e, size_t floats, float **memory)
{
    void *region;
    LS_TRY(e->comm ? ls_comm_region(e->comm, floats * sizeof(float), &region)
                   : ls_region_map(floats * sizeof(float), &region));
    *memory = region;
    e->backend->queue->pin(region, floats * sizeof(float));
    return LS_OK;
}

enum ls_status ls_gradients_open(struct ls_engine *e)
{
    bool own_memory = e->backend->queue->own_memory;
    int most = ls_tree_most_parts(e->tree);
    void *memory = NULL;
    if (e->n_grads == 0)
        return LS_OK;
    if (own_memory)
        LS_TRY(ls_backend_take(e->backend, e->n_grads * sizeof(float), &memory));
    e->kept = memory;
    LS_TRY(ls_peers_open(e));
    if (e->drops_grads) {
        LS_TRY(ls_region_map(e->n_grads * sizeof(float), &memory));
        e->grads = memory;
    } else if (own_memory && e->strategy->no_reduce)
        e->grads = e->kept;
    else
        LS_TRY(take_grads(e, e->n_grads, &e->grads));
    if (!own_memory)
        e->kept = e->grads;
    return most > 1 ? take_grads(e, (size_t)(most - 1) * e->n_grads, &e->side) : LS_OK;
}

/* Memory of take_grads; comm gives its regions back itself. */
static void give_grads(struct ls_engine *e, float *memory, size_t floats)
{
    if (!memory)
        return;
    e->backend->queue->unpin(memory);
    if (!e->comm || e->drops_grads)
        ls_region_unmap(memory, floats * sizeof *memory);
}

void ls_gradients_close(struct ls_engine *e)
{
    bool own_memory = e->backend && e->backend->queue->own_memory;
    if (own_memory)
        ls_backend_give(e->backend, e->kept, e->n_grads * sizeof *e->kept);
    give_grads(e, own_memory && e->grads == e->kept ? NULL : e->grads, e->n_grads);
    give_grads(e, e->side, (size_t)(e->side ? ls_tree_most_parts(e->tree) - 1 : 0) * e->n_grads);
}
