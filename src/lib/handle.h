/* The members of struct lockstep. */
#ifndef LS_LIB_HANDLE_H
#define LS_LIB_HANDLE_H

#include "comm/comm.h"
#include <lockstep.h>
#include <stdatomic.h>

/* Larger sums are split into pieces of this many bytes. */
#define LIB_PIECE ((size_t)16 << 20)

struct lib_tensor {
    size_t count; /* floats; every submission has the same count */
    float *data;  /* borrowed while the sum is in progress */
    enum lockstep_op op;
    bool known, under_way;
    struct ls_work *pieces; /* owned */
    int n_pieces;
    float *feedback; /* owned; error feedback of the codec; NULL: none */
};

/* The collective calls: `what` of struct ls_call. */
enum lib_what { LIB_SUBMIT, LIB_ALLREDUCE, LIB_BROADCAST, LIB_BARRIER, LIB_ALLOC, LIB_FINISH };

struct lockstep {
    struct ls_comm *comm;         /* owned; NULL only if status is a failure */
    const struct ls_codec *codec; /* NULL: uncompressed f32 */
    struct lib_tensor *tensors;   /* owned; indexed by id */
    int n_tensors;
    uint64_t calls;        /* number of collective calls so far */
    uint64_t step;         /* number of lockstep_wait_all calls so far */
    enum ls_status status; /* L4 */
    char error[1024];
    atomic_int aborted; /* set by lockstep_abort in any thread; 0: no, 1: why is being written, 2: why is complete */
    char why[1024];
};

static inline enum ls_status lib_status(const struct lockstep *l)
{
    if (!l)
        return LS_FAILED;
    return l->status == LS_OK && atomic_load(&l->aborted) == 2 ? LS_FAILED : l->status;
}
/* Records the first failure and aborts the other ranks. Returns the status of later calls. */
enum ls_status lib_record(struct lockstep *l, enum ls_status status);
/* Returns the description of the next call, which is compared among the ranks (L2). id: a tensor, or the root of a
 * broadcast; amount: floats or bytes. */
struct ls_call lib_call(struct lockstep *l, enum lib_what what, int id, enum lockstep_op op, uint64_t amount);
enum ls_status lib_check_op(enum lockstep_op op);
/* NULL is valid only for an amount of 0. */
enum ls_status lib_check_data(const char *call, const void *data, size_t amount);
/* Divides data by the number of processes. */
void lib_divide(const struct lockstep *l, float *data, size_t count);
/* Replaces option names in a message by names of settings (setting_names.c). */
void lib_rename_options(char *text);
void lib_tensors_release(struct lockstep *l);

#endif
