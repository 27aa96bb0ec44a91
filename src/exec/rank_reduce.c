#include "exec/rank_reduce.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>

enum ls_status ls_rank_reduce_init(struct ls_rank_reduce *a, struct ls_comm *comm, const struct ls_tree *tree)
{
    *a = (struct ls_rank_reduce){.comm = comm, .tree = tree, .most = ls_tree_most_parts(tree)};
    a->totals = ls_alloc((size_t)a->most, sizeof *a->totals);
    a->all = ls_alloc((size_t)(a->most * tree->size), sizeof *a->all);
    a->parts = ls_alloc((size_t)tree->n_parts, sizeof *a->parts);
    return a->totals && a->all && a->parts ? LS_OK : LS_FAILED;
}

void ls_rank_reduce_release(struct ls_rank_reduce *a)
{
    ls_free(a->totals);
    ls_free(a->all);
    ls_free(a->parts);
    *a = (struct ls_rank_reduce){0};
}

enum ls_status ls_rank_reduce_step(struct ls_rank_reduce *a, const struct ls_replicas *r, struct ls_totals *totals)
{
    if (!a->comm) {
        *totals = r->part_totals[0];
        return LS_OK;
    }
    for (int i = 0; i < r->n_parts; i++)
        a->totals[i] = r->part_totals[i];
    LS_TRY(ls_comm_allgather(a->comm, a->totals, (size_t)a->most * sizeof *a->totals, a->all));
    for (int rank = 0; rank < a->tree->size; rank++) {
        int first, n = ls_tree_parts(a->tree, rank, &first);
        for (int i = 0; i < n; i++)
            a->parts[first + i] = a->all[rank * a->most + i];
    }
    for (int i = 0; i < a->tree->n_sums; i++)
        ls_totals_add(&a->parts[a->tree->sums[i].to], &a->parts[a->tree->sums[i].from]);
    *totals = a->parts[0];
    return LS_OK;
}

enum ls_status ls_rank_reduce_most(struct ls_comm *comm, int64_t value, int64_t *most)
{
    *most = value;
    if (!comm)
        return LS_OK;
    enum ls_status st = LS_FAILED;
    int64_t *all = ls_alloc((size_t)ls_comm_size(comm), sizeof *all);
    if (all)
        st = ls_comm_allgather(comm, &value, sizeof value, all);
    for (int rank = 0; st == LS_OK && rank < ls_comm_size(comm); rank++)
        *most = all[rank] > *most ? all[rank] : *most;
    ls_free(all);
    return st;
}

enum ls_status ls_rank_reduce_totals(struct ls_comm *comm, struct ls_totals *totals)
{
    struct ls_totals sum = {0};
    enum ls_status st = LS_FAILED;
    struct ls_totals *all = ls_alloc(comm ? (size_t)ls_comm_size(comm) : 0, sizeof *all);
    if (!comm || !all) {
        ls_free(all);
        return comm ? LS_FAILED : LS_OK;
    }
    st = ls_comm_allgather(comm, totals, sizeof *totals, all);
    for (int rank = 0; st == LS_OK && rank < ls_comm_size(comm); rank++)
        ls_totals_add(&sum, &all[rank]);
    if (st == LS_OK)
        *totals = sum;
    ls_free(all);
    return st;
}

enum ls_status ls_rank_reduce_status(struct ls_comm *comm, enum ls_status status)
{
    struct word {
        int64_t status;
        char why[1016];
    } mine = {.status = status}, *all;
    if (!comm)
        return status;
    if (status != LS_OK)
        ls_log_last_copy(mine.why, sizeof mine.why);
    all = ls_alloc((size_t)ls_comm_size(comm), sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    for (int rank = 0; st == LS_OK && rank < ls_comm_size(comm); rank++) {
        st = (enum ls_status)all[rank].status;
        if (st != LS_OK && rank > 0)
            ls_fail(st, "rank %d (%s): %s", rank, ls_comm_host(comm, rank), all[rank].why);
        else if (st != LS_OK && ls_comm_rank(comm) > 0)
            ls_fail(st, "%s", all[rank].why);
    }
    ls_free(all);
    return st;
}

enum ls_status ls_rank_reduce_unmute(enum ls_status status)
{
    char why[1024];
    ls_log_last_copy(why, sizeof why);
    ls_log_mute(0);
    return status == LS_PEER_LOST ? ls_fail(status, "%s", why) : status;
}
