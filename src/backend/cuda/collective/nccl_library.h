/* NCCL, loaded at run time, and calls of it that wait for other processes: what sums (nccl.c) and messages (nccl_wires.c) have
 * in common. Only these files see nccl.h. */
#ifndef LS_BACKEND_CUDA_COLLECTIVE_NCCL_LIBRARY_H
#define LS_BACKEND_CUDA_COLLECTIVE_NCCL_LIBRARY_H

#include "backend/cuda/collective/collective.h"

#include <nccl.h>

struct nccl_library {
    __typeof__(&ncclGetVersion) version;
    __typeof__(&ncclGetUniqueId) unique_id;
    __typeof__(&ncclCommInitRank) init;
    __typeof__(&ncclAllReduce) all_reduce;
    __typeof__(&ncclSend) send;
    __typeof__(&ncclRecv) receive;
    __typeof__(&ncclCommGetAsyncError) async_error;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclCommAbort) end;
    __typeof__(&ncclGetErrorString) text;
    __typeof__(&ncclGetLastError) last;
};

/* False: it is not there or too old, and why[room] says what to do. */
bool nccl_load(struct nccl_library *lib, char *why, size_t room);

/* What calls of NCCL came to. */
struct nccl_result {
    ncclResult_t nccl;
    cudaError_t cuda;
};
/* "": all went well. comm: may be NULL. */
void nccl_describe(const struct nccl_library *lib, const struct nccl_result *result, ncclComm_t comm,
                   char why[COLLECTIVE_WHY]);

/* Where a rank computes, as NCCL sees it: its card, and NCCL_HOSTID where that is set. Two ranks of a machine may not compute
 * on the same card of the same host. */
struct nccl_place {
    char bus[24], host[64];
};

/* What ranks tell each other before they connect. */
struct nccl_word {
    char why[COLLECTIVE_WHY]; /* "", or why this rank cannot */
    struct nccl_place place;
    ncclUniqueId ids[2];
};
/* Loads the library, and prepares the word of this rank with so many new ids. */
void nccl_prepare(struct nccl_library *lib, const struct device *d, int n_ids, struct nccl_word *mine);
/* Gathers the words of all ranks. why[room]: "", or the first reason why they cannot connect. */
enum ls_status nccl_meet(const struct ls_peers_group *g, const struct nccl_word *mine, struct nccl_word *all, char *why,
                         size_t room);
/* Do all ranks succeed? As collective_agree. A failure is reported here, too: the others may still be in a call that waits for
 * this rank, and then never learn of it. */
enum ls_status nccl_agree(const struct nccl_library *lib, const struct nccl_result *result, ncclComm_t comm,
                          const struct ls_peers_group *g, char *why, size_t room);

/* A call that may wait for other processes runs in a thread, so that this process can give up on a process that never comes. The
 * caller's memory then belongs to the thread to the end of the process, and the device is lost. */
struct nccl_errand {
    void (*run)(void *context);
    void *context;
    struct device *device; /* borrowed */
    cudaError_t error;     /* of taking the device; run is not called then */
    atomic_bool over;
};
/* check: of struct ls_peers_group. */
enum ls_status nccl_run(struct nccl_errand *errand, enum ls_status (*check)(void *context, double seconds),
                        void *check_context);

#endif
