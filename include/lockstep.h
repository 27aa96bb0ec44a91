/* liblockstep: Lockstep's communication for other C and C++ programs. A training program that runs in one process becomes
 * one that runs in many with a handful of lines:
 *
 *     struct lockstep *l = lockstep_init(NULL);                 connect, however the processes were started
 *     lockstep_broadcast(l, 0, weights, sizeof weights);        all begin with rank 0's
 *     lockstep_shard(l, batch, &first, &last);                  its samples of a batch: first .. last-1
 *     for (each step) {
 *         ...
 *         lockstep_submit(l, 1, grad1, count1, LOCKSTEP_SUM);   as soon as it is complete; travels meanwhile
 *         ...
 *         lockstep_submit(l, 0, grad0, count0, LOCKSTEP_SUM);
 *         if (lockstep_wait_all(l) != 0)                        now they are sums over all processes
 *             break;
 *         ...                                                   update the weights
 *     }
 *     return lockstep_finish(l, 0);
 *
 * Alone, in a process that no launcher started, all of this does nothing and costs nothing.
 *
 *   L1  Who is there is found out from the launcher: mpirun and mpiexec (Open MPI, MPICH), srun, torchrun's RANK,
 *       WORLD_SIZE, MASTER_ADDR and MASTER_PORT, LOCKSTEP_RENDEZVOUS=file:///PATH with LOCKSTEP_NUM_NODES, or the options.
 *   L2  Every rank makes the same calls with the same counts in the same order. Every call is compared: where one rank
 *       makes another call, or the same with another count, operation, id or root, the call fails on all ranks with a
 *       message that says which rank called what. For lockstep_submit that shows when the tensor is waited for.
 *   L3  A sum is made in one fixed order of additions, whoever comes first and whatever the network: every rank gets the
 *       same bits, and so does every run with as many processes.
 *   L4  Functions that return int return 0 or an enum lockstep_status. The message has been said on standard error and is
 *       kept for lockstep_error. A failure lasts: every later call returns the same at once, and the others are told. So
 *       a program that looks at lockstep_wait_all in every step has seen them all.
 *   L5  Nothing waits for ever: a rank that is gone, or late by more than the deadline, is named on all the others.
 *   L6  One thread at a time may call into a struct lockstep. The library has a thread of its own for the traffic; it
 *       takes no signals. */
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

/* What calls return, and what a program does well to exit with. */
enum lockstep_status {
    LOCKSTEP_OK = 0,
    LOCKSTEP_FAILED = 1,   /* something here: out of memory, a refused call */
    LOCKSTEP_USAGE = 2,    /* a wrong argument, option or variable */
    LOCKSTEP_PEER_LOST = 4 /* another process has died, failed or did not come in time */
};

enum lockstep_op {
    LOCKSTEP_SUM,
    LOCKSTEP_MEAN /* over processes: the sum divided by lockstep_size */
};

/* All zero but size: as the launcher and the LOCKSTEP_* variables say. What is set here counts more than a variable. The
 * names are those of `lockstep train`'s options. */
struct lockstep_options {
    size_t size;            /* sizeof(struct lockstep_options): later versions may add to it */
    double deadline;        /* seconds a process may be late before it counts as lost; 0: 60 */
    const char *compress;   /* how what is submitted travels: "none", "fp16", "bf16", "1bit"; NULL: none */
    int num_nodes;          /* processes in all; 0: as the launcher says */
    int rank;               /* of this process, when num_nodes is set; -1: in order of arrival (rendezvous only) */
    const char *master_ip;  /* host of rank 0, for processes that nobody else brings together */
    int master_port;        /* where rank 0 listens; 0: 29500 */
    const char *rendezvous; /* or "file:///PATH": a folder that all can reach */
    const char *token;      /* the secret they share, 8 characters or more */
    int quiet;              /* no messages on standard error; lockstep_error has them */
};

struct lockstep; /* opaque */

/* Connect to the others. options may be NULL. When it fails, lockstep_status of what it returns says so, lockstep_error says
 * why, and every other call on it fails at once; it goes by rank 0 of 1, so that a program may compute with both before it
 * looks, and has all of lockstep_shard. NULL (out of memory) is such a one, too. After lockstep_finish a program may
 * connect again. */
LOCKSTEP_API struct lockstep *lockstep_init(const struct lockstep_options *options);
/* 0, or the failure that ended it. */
LOCKSTEP_API int lockstep_status(const struct lockstep *l);
/* The end. status: how this process fared. 0: wait for the others (within the deadline), so that nobody leaves while
 * another still works; else they are told and end, too. Returns status, or when that is 0 the first failure of all calls,
 * lockstep_abort and the end itself: a value for exit. Memory of lockstep_alloc is gone afterwards. */
LOCKSTEP_API int lockstep_finish(struct lockstep *l, int status);
/* This process cannot go on: the others end with this message instead of waiting, and every later call here fails. From
 * any thread. */
LOCKSTEP_API void lockstep_abort(struct lockstep *l, const char *why);
/* The message of the failure; "" when there was none. */
LOCKSTEP_API const char *lockstep_error(const struct lockstep *l);
LOCKSTEP_API const char *lockstep_version(void);

LOCKSTEP_API int lockstep_rank(const struct lockstep *l); /* 0 .. size-1 */
LOCKSTEP_API int lockstep_size(const struct lockstep *l);
LOCKSTEP_API int lockstep_local_rank(const struct lockstep *l); /* among the processes of this machine */
LOCKSTEP_API int lockstep_local_size(const struct lockstep *l);

/* This process's share of n things (the samples of a batch, say), dealt as evenly as can be: first .. last-1. Where
 * shares differ in size a mean over samples is LOCKSTEP_SUM of what was divided by the whole batch. */
LOCKSTEP_API void lockstep_shard(const struct lockstep *l, size_t n, size_t *first, size_t *last);

/* Zeroed memory that the other processes of the machine can read: what is summed there is not copied on the way. Every
 * rank asks for the same sizes in the same order, a few large ones rather than many small ones (some 50 calls are
 * possible). NULL: there is none. */
LOCKSTEP_API void *lockstep_alloc(struct lockstep *l, size_t bytes);

/* --- all at once: returns when it is done here ------------------------------------------------------------- */

LOCKSTEP_API int lockstep_broadcast(struct lockstep *l, int root, void *data, size_t bytes);
/* Always travels as it is, whatever `compress` says. */
LOCKSTEP_API int lockstep_allreduce(struct lockstep *l, float *data, size_t count, enum lockstep_op op);
LOCKSTEP_API int lockstep_barrier(struct lockstep *l);

/* --- as it becomes ready ----------------------------------------------------------------------------------- */

enum { LOCKSTEP_ID_LIMIT = 65536 };

/* Hand over a tensor and go on computing. id, 0 .. LOCKSTEP_ID_LIMIT-1, stands for one tensor of the program, of always the
 * same count. Its memory is the library's until it has been waited for, and then holds the result. Submit what is
 * complete first first: sums are made in the order of submission. */
LOCKSTEP_API int lockstep_submit(struct lockstep *l, int id, float *data, size_t count, enum lockstep_op op);
/* Until that one is there, so that it can be used while others travel; at once when it is not under way. */
LOCKSTEP_API int lockstep_wait(struct lockstep *l, int id);
/* Until all are: the end of a step. */
LOCKSTEP_API int lockstep_wait_all(struct lockstep *l);

/* This process will be busy for so long with something it does alone (saving, evaluating): nobody counts as late
 * meanwhile. */
LOCKSTEP_API void lockstep_allow(struct lockstep *l, double seconds);

#ifdef __cplusplus
}
#endif

#endif
