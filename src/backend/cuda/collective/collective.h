/* Sums of gradients among the GPUs of several processes (struct ls_backend_peers): what NCCL (nccl.c) and direct memory access
 * (ipc_allreduce.c) have in common. */
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
    struct device_watch watch;
    struct nccl *nccl;         /* owned; NULL: not so */
    struct ipc_allreduce *ipc; /* owned; likewise */
};

enum { COLLECTIVE_WHY = 192 };
/* Do all ranks succeed? mine: "", or why this rank cannot. why[room]: "", or the reason of the first rank that cannot, the
 * same text on every rank. */
enum ls_status collective_agree(const struct ls_peers_group *g, const char *mine, char *why, size_t room);

/* What is enqueued on `to` from now on runs behind what is enqueued on `from`. */
enum ls_status collective_follow(cudaStream_t from, cudaEvent_t event, cudaStream_t to);

/* Instead of a pass, for a rank without samples: gradients are 0. */
enum ls_status collective_skip_pass(struct ls_program *p);

/* The sum of so many floats of a cut is enqueued (timeline.h). */
struct mark;
void collective_end_mark(struct ls_program *p, struct mark *mark, int cut, size_t count);

/* nccl.c. open: as in struct ls_backend_peers. share: make every connection that the sums need. sum: of one cut, on s->sums.
 * trouble: an error that NCCL reported, or NULL. close: on every rank, when all are idle. */
bool nccl_there(char *text, size_t room);
enum ls_status nccl_open(struct collective *s, char *why, size_t room);
enum ls_status nccl_share(struct collective *s);
enum ls_status nccl_sum(struct collective *s, int cut);
const char *nccl_trouble(const void *collective);
void nccl_close(struct collective *s);
/* nccl_wires.c */
extern const struct ls_backend_wires ls_cuda_wires;

/* ipc_allreduce.c. The same functions, and its own step: an event of another process must be recorded before this one can
 * wait for it, so a step cannot be one graph. close: with `together`, all ranks close now and are idle. */
enum ls_status ipc_open(struct collective *s, char *why, size_t room);
enum ls_status ipc_share(struct collective *s);
enum ls_status ipc_step(struct ls_program *p, const struct ls_run *run);
enum ls_status ipc_meet(struct ls_program *p);
const float *ipc_reach(const struct ls_program *p, int rank);
void ipc_close(struct collective *s, bool together);

#endif
