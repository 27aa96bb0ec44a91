/* Hierarchical allreduce: each process sums its range of the node's parts through shared memory, the processes with the
 * same local number on all nodes sum these ranges over messages, and the node shares the result. The traffic between
 * nodes is that of one process per node.
 *
 * The result has the tree's bits when node m has the places m, m + nodes, m + 2 nodes, ...: its sum is then the subtree
 * T(m, nodes). */
#include "comm/group.h"

enum ls_status ls_hier_run(struct ls_comm *c, struct ls_work *w)
{
    size_t first, last, count = w->bytes / sizeof(float);
    struct ls_work within = {.kind = LS_WORK_SCATTER, .data = w->data, .bytes = w->bytes, .parts = w->parts};
    float *data = w->data;
    if (!c->hier_exact) {
        ls_parts_sum(c, w);
        within.parts = NULL;
    }
    if (c->node.size > 1) {
        LS_TRY(ls_shm_collective_run(c, &within));
        w->last_rank = within.last_rank;
        w->last_wait = within.last_wait;
    } else if (w->parts) {
        ls_parts_sum(c, w);
    }
    ls_range(count, c->node.size, c->node.me, &first, &last);
    if (c->across.halving) {
        LS_TRY(ls_halving_sum(c, &c->across, data + first, data + first, last - first));
        LS_TRY(ls_halving_share(c, &c->across, data + first, last - first));
    } else {
        struct ls_work between = {
            .kind = LS_WORK_ALLREDUCE, .data = data + first, .bytes = (last - first) * sizeof(float)};
        LS_TRY(ls_direct_sum(c, &c->across, &between));
        LS_TRY(ls_direct_share(c, &c->across, &between, -1));
    }
    if (c->node.size == 1)
        return LS_OK;
    within.kind = LS_WORK_COLLECT;
    within.parts = NULL;
    return ls_shm_collective_run(c, &within);
}
