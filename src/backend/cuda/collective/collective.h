/* Cards that add up gradients among themselves (ls_backend_peers): what its two ways, NCCL and each other's memory, share. */
#ifndef LS_BACKEND_CUDA_COLLECTIVE_COLLECTIVE_H
#define LS_BACKEND_CUDA_COLLECTIVE_COLLECTIVE_H

#include "backend/cuda/program.h"

struct collective {
    enum ls_peers_kind kind;
    struct ls_peers_group g;
    struct device *device;
    struct ls_peers_cut *cuts; /* owned */
    int n_cuts, end;           /* the pass is nodes 0 .. end-1 */
    cudaStream_t sums;         /* beside the compute stream */
    cudaEvent_t fork, join;    /* from the compute stream to sums, and back */
    struct nccl *nccl;         /* owned; NULL: not so */
    struct ipc_allreduce *ipc; /* owned; likewise */
};

enum { COLLECTIVE_WHY = 192 };
/* Can all? mine: "", or why this rank cannot. why[room]: "", or why not, the same on every rank. */
enum ls_status collective_agree(struct collective *s, const char *mine, char *why, size_t room);

/* In place of a pass without samples. */
enum ls_status collective_skip_pass(struct ls_program *p);

/* nccl.c. open: as ls_backend_peers has it. share: every connection is made that the sums need. sum: of a cut, on s->sums.
 * trouble: what NCCL has met, or NULL. close when all is idle, on every rank. */
bool nccl_there(char *text, size_t room);
enum ls_status nccl_open(struct collective *s, char *why, size_t room);
enum ls_status nccl_share(struct collective *s);
enum ls_status nccl_sum(struct collective *s, int cut);
const char *nccl_trouble(const struct collective *s);
void nccl_close(struct collective *s);

/* ipc_allreduce.c, each other's memory. The same, and a step of its own: what others have recorded must be known before it can be
 * waited for, so that it cannot be one graph. close: together, all ranks do so and are idle. */
enum ls_status ipc_open(struct collective *s, char *why, size_t room);
enum ls_status ipc_share(struct collective *s);
enum ls_status ipc_step(struct ls_program *p, const struct ls_run *run);
void ipc_close(struct collective *s, bool together);

#endif
