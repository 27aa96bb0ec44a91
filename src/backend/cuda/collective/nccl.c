/* Sums by NCCL. */
#include "backend/cuda/collective/nccl_library.h"
#include "base/log.h"

#include <stdio.h>

struct nccl {
    struct nccl_library lib;
    struct collective *collective; /* borrowed */
    ncclUniqueId id;
    ncclComm_t comm; /* owned */
    struct nccl_result result;
    struct nccl_errand errand;
};

/* "": all went well. */
static void say_error(const struct nccl *n, char why[COLLECTIVE_WHY])
{
    nccl_describe(&n->lib, &n->result, n->comm, why);
}

/* --- errands ---------------------------------------------------------------------------------------------------------- */

static enum ls_status send(struct nccl *n, void (*errand)(void *n))
{
    struct collective *s = n->collective;
    n->result = (struct nccl_result){ncclSuccess, cudaSuccess};
    n->errand = (struct nccl_errand){.run = errand, .context = n, .device = s->device};
    LS_TRY(nccl_run(&n->errand, s->g.check_wait, s->g.context));
    if (n->errand.error != cudaSuccess)
        n->result.cuda = n->errand.error;
    return LS_OK;
}

static void connect(void *nccl)
{
    struct nccl *n = nccl;
    n->result.nccl = n->lib.init(&n->comm, n->collective->g.size, n->id, n->collective->g.rank);
}

static ncclResult_t sum(struct nccl *n, int cut)
{
    const struct collective *s = n->collective;
    float *grads = s->g.grads + s->cuts[cut].first;
    return n->lib.all_reduce(grads, grads, s->cuts[cut].count, ncclFloat32, ncclSum, n->comm, s->sums);
}

/* Connections are made when a sum first needs them. */
static void sum_zeros(void *nccl)
{
    struct nccl *n = nccl;
    for (int cut = 0; cut < n->collective->n_cuts && n->result.nccl == ncclSuccess; cut++)
        n->result.nccl = sum(n, cut);
    n->result.cuda = cudaStreamSynchronize(n->collective->sums);
}

/* --- meeting ---------------------------------------------------------------------------------------------------------- */

static enum ls_status meet(struct nccl *n, char *why, size_t room)
{
    const struct ls_peers_group *g = &n->collective->g;
    struct nccl_word mine, *all = ls_alloc((size_t)g->size, sizeof *all);
    if (!all)
        return LS_FAILED;
    nccl_prepare(&n->lib, n->collective->device, g->rank == 0 ? 1 : 0, &mine);
    enum ls_status st = nccl_meet(g, &mine, all, why, room);
    n->id = all[0].ids[0];
    ls_free(all);
    return st;
}

static enum ls_status agree(struct nccl *n, char *why, size_t room)
{
    return nccl_agree(&n->lib, &n->result, n->comm, &n->collective->g, why, room);
}

enum ls_status nccl_open(struct collective *s, char *why, size_t room)
{
    enum ls_status st = LS_OK;
    struct nccl *n = ls_alloc(1, sizeof *n);
    if (!n)
        return LS_FAILED;
    n->collective = s;
    *why = 0;
    LS_TRY_GOTO(failed, meet(n, why, room));
    if (*why)
        goto failed;
    LS_TRY(send(n, connect));
    LS_TRY_GOTO(failed, agree(n, why, room));
    if (*why)
        goto failed;
    s->nccl = n;
    return LS_OK;
failed:
    ls_free(n); /* a communicator that only some have is left to the end of the process */
    return st;
}

enum ls_status nccl_share(struct collective *s)
{
    char why[COLLECTIVE_WHY];
    LS_TRY(send(s->nccl, sum_zeros));
    LS_TRY(agree(s->nccl, why, sizeof why));
    return *why ? ls_fail(LS_FAILED, "%s", why) : LS_OK;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

enum ls_status nccl_sum(struct collective *s, int cut)
{
    char why[COLLECTIVE_WHY];
    s->nccl->result.nccl = sum(s->nccl, cut);
    say_error(s->nccl, why);
    return *why ? ls_fail(LS_FAILED, "%s", why) : LS_OK;
}

const char *nccl_trouble(const void *collective)
{
    const struct collective *s = collective;
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = s->nccl->lib.async_error(s->nccl->comm, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
        return s->nccl->lib.text(asked != ncclSuccess ? asked : state);
    return NULL;
}

void nccl_close(struct collective *s)
{
    if (!s->nccl)
        return;
    s->nccl->lib.destroy(s->nccl->comm);
    ls_free(s->nccl);
    s->nccl = NULL;
}
