#include "exec/rank_reduce.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>

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
    bool printed = ls_log_last_copy(why, sizeof why);
    ls_log_mute(0);
    return status == LS_PEER_LOST && !printed ? ls_fail(status, "%s", why) : status;
}
