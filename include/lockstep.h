/* liblockstep: the communication of Lockstep for other C and C++ programs. A few lines turn a training program for one
 * process into one for many:
 *
 *     struct lockstep *l = lockstep_init(NULL);                 connect; works with any launcher
 *     lockstep_broadcast(l, 0, weights, sizeof weights);        copy the weights of rank 0 to all
 *     lockstep_shard(l, batch, &first, &last);                  this process's samples: first .. last-1
 *     for (each step) {
 *         ...
 *         lockstep_submit(l, 1, grad1, count1, LOCKSTEP_SUM);   start the sum as soon as the gradient is complete
 *         ...
 *         lockstep_submit(l, 0, grad0, count0, LOCKSTEP_SUM);
 *         if (lockstep_wait_all(l) != 0)                        wait: the gradients are now sums over all processes
 *             break;
 *         ...                                                   update the weights
 *     }
 *     return lockstep_finish(l, 0);
 *
 * In a process without a launcher the group has one rank, and these calls do nothing.
 *
 *   L1  The launcher defines the group: mpirun and mpiexec (Open MPI, MPICH), srun, RANK, WORLD_SIZE, MASTER_ADDR and
 *       MASTER_PORT as torchrun sets them, LOCKSTEP_RENDEZVOUS=file:///PATH with LOCKSTEP_NUM_NODES, or the options.
 *   L2  Every rank makes the same calls with the same counts in the same order. Every call is compared. If the calls differ,
 *       or their count, operation, id or root, the call fails on all ranks with a message that names the ranks and their
 *       calls. For lockstep_submit the failure appears when the tensor is waited for.
 *   L3  The order of additions in a sum is fixed; it does not depend on timing or network. Every rank gets the same bits, and
 *       so does every run with the same number of processes.
 *   L4  Functions that return int return 0 or an enum lockstep_status. A failure is printed on standard error, and
 *       lockstep_error returns its message. A failure is permanent: every later call returns the same status at once, and
 *       the other ranks fail too. So it is enough to check lockstep_wait_all in every step.
 *   L5  No call waits for ever: the other ranks report a rank that has ended or is late by more than the deadline.
 *   L6  One thread at a time may use a struct lockstep. The library has one thread for communication; it blocks all
 *       signals. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stddef.h>

#if defined(__GNUC__)
#define LOCKSTEP_API __attribute__((visibility("default")))
#else
#define LOCKSTEP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Return values of calls, suitable as exit codes. */
enum lockstep_status {
    LOCKSTEP_OK = 0,
    LOCKSTEP_FAILED = 1,   /* a failure in this process: out of memory, a system call refused */
    LOCKSTEP_USAGE = 2,    /* a wrong argument, option or variable */
    LOCKSTEP_PEER_LOST = 4 /* another process has ended, failed or missed the deadline */
};

enum lockstep_op {
    LOCKSTEP_SUM,
    LOCKSTEP_MEAN /* over processes: the sum divided by lockstep_size */
};

/* A member that is 0 or NULL is set by the launcher and the LOCKSTEP_* variables; other values take precedence over
 * variables. The names are those of the options of `lockstep train`. */
struct lockstep_options {
    size_t size;            /* sizeof(struct lockstep_options); later versions may add members */
    double deadline;        /* seconds until a late process counts as lost; 0: 60 */
    const char *compress;   /* compression of submitted tensors: "none", "fp16", "bf16", "1bit"; NULL: none */
    int num_nodes;          /* number of processes; 0: from the launcher */
    int rank;               /* of this process, when num_nodes is set; -1: in order of arrival (rendezvous only) */
    const char *master_ip;  /* host of rank 0, for processes without a launcher */
    int master_port;        /* port of rank 0; 0: 29500 */
    const char *rendezvous; /* or "file:///PATH": a folder that all processes can reach */
    const char *token;      /* the shared secret, at least 8 characters */
    int quiet;              /* print no messages on standard error; see lockstep_error */
};

struct lockstep; /* opaque */

/* Connects to the other processes. options may be NULL. After a failure, lockstep_status of the result is not 0,
 * lockstep_error returns the cause, and every other call fails at once. The result then has rank 0 and size 1, so that a
 * program may use both before it checks the status. NULL (out of memory) behaves like such a failure. After lockstep_finish a
 * program may connect again. */
LOCKSTEP_API struct lockstep *lockstep_init(const struct lockstep_options *options);
/* Returns 0, or the status of the first failure. */
LOCKSTEP_API int lockstep_status(const struct lockstep *l);
/* Disconnects and frees l. status is the result of this process. 0: waits for the others, within the deadline, so that no
 * process leaves while another still computes. Otherwise the other ranks fail. Returns status, or if that is 0 the first
 * failure of any call, of lockstep_abort or of the disconnect: a value for exit. Frees the memory of lockstep_alloc. */
LOCKSTEP_API int lockstep_finish(struct lockstep *l, int status);
/* Fails the group with a message: the other ranks report it instead of waiting, and every later call here fails. Any thread
 * may call it. */
LOCKSTEP_API void lockstep_abort(struct lockstep *l, const char *why);
/* Returns the message of the failure, or "". Valid until lockstep_finish. */
LOCKSTEP_API const char *lockstep_error(const struct lockstep *l);
LOCKSTEP_API const char *lockstep_version(void);

LOCKSTEP_API int lockstep_rank(const struct lockstep *l); /* 0 .. size-1 */
LOCKSTEP_API int lockstep_size(const struct lockstep *l);
LOCKSTEP_API int lockstep_local_rank(const struct lockstep *l); /* on this machine */
LOCKSTEP_API int lockstep_local_size(const struct lockstep *l);

/* Splits n items, such as the samples of a batch, evenly among the processes: this one gets first .. last-1. If the shares
 * differ in size, compute a mean over samples as LOCKSTEP_SUM of values divided by the whole batch. */
LOCKSTEP_API void lockstep_shard(const struct lockstep *l, size_t n, size_t *first, size_t *last);

/* Allocates zeroed memory that the other processes of this machine can read: sums in it need no copy. Every rank makes the
 * same calls with the same sizes. About 50 calls are possible: allocate a few large blocks. Returns NULL on failure. */
LOCKSTEP_API void *lockstep_alloc(struct lockstep *l, size_t bytes);

/* --- blocking calls --------------------------------------------------------------------------------------- */

LOCKSTEP_API int lockstep_broadcast(struct lockstep *l, int root, void *data, size_t bytes);
/* Never compressed, independent of `compress`. */
LOCKSTEP_API int lockstep_allreduce(struct lockstep *l, float *data, size_t count, enum lockstep_op op);
LOCKSTEP_API int lockstep_barrier(struct lockstep *l);

/* --- background sums --------------------------------------------------------------------------------------- */

enum { LOCKSTEP_ID_LIMIT = 65536 };

/* Starts the sum of a tensor and returns. id, 0 .. LOCKSTEP_ID_LIMIT-1, identifies a tensor of the program, which always has
 * the same count. The library owns its memory until the tensor is waited for; then it contains the result. Sums are computed
 * in the order of submission. */
LOCKSTEP_API int lockstep_submit(struct lockstep *l, int id, float *data, size_t count, enum lockstep_op op);
/* Waits for one tensor, so that it can be used while other sums continue. Returns at once if it is not submitted. */
LOCKSTEP_API int lockstep_wait(struct lockstep *l, int id);
/* Waits for all tensors: the end of a step. */
LOCKSTEP_API int lockstep_wait_all(struct lockstep *l);

/* Extends the deadline of all ranks by `seconds`, while this process saves or evaluates and the others wait for it. */
LOCKSTEP_API void lockstep_allow(struct lockstep *l, double seconds);

#ifdef __cplusplus
}
#endif

#endif
