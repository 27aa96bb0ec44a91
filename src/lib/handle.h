/* The inside of struct lockstep, for the files of this folder. */
#ifndef LS_LIB_HANDLE_H
#define LS_LIB_HANDLE_H

#include "comm/comm.h"
#include <lockstep.h>
#include <stdatomic.h>

/* A sum larger than this is made in pieces. */
#define LIB_PIECE ((size_t)16 << 20)

struct lib_tensor {
    size_t count; /* of the first submission; all others are alike */
    float *data;  /* borrowed while under way */
    enum lockstep_op op;
    bool known, under_way;
    struct ls_work *pieces; /* owned */
    int n_pieces;
    float *feedback; /* owned; NULL: the codec keeps none */
};

/* What a rank does with all others: `what` of struct ls_call. */
enum lib_what { LIB_SUBMIT, LIB_ALLREDUCE, LIB_BROADCAST, LIB_BARRIER, LIB_ALLOC, LIB_FINISH };

struct lockstep {
    struct ls_comm *comm;         /* owned; NULL only when status says why */
    const struct ls_codec *codec; /* NULL: as f32 */
    struct lib_tensor *tensors;   /* owned; by id */
    int n_tensors;
    uint64_t calls;        /* with all others, so far */
    uint64_t step;         /* wait_alls, so far */
    enum ls_status status; /* L4 */
    char error[1024];
    atomic_int aborted; /* lockstep_abort, from any thread: 0, 1: being written, 2: why is there */
    char why[1024];
};

static inline enum ls_status lib_status(const struct lockstep *l)
{
    if (!l)
        return LS_FAILED;
    return l->status == LS_OK && atomic_load(&l->aborted) == 2 ? LS_FAILED : l->status;
}
/* Remember the first failure and tell the others; what later calls return. */
enum ls_status lib_note(struct lockstep *l, enum ls_status status);
/* The next call, as it is compared with those of the others (L2). id: of a tensor, or the root of a broadcast; amount:
 * floats or bytes. */
struct ls_call lib_call(struct lockstep *l, enum lib_what what, int id, enum lockstep_op op, uint64_t amount);
enum ls_status lib_check_op(enum lockstep_op op);
/* NULL will do for nothing. */
enum ls_status lib_check_data(const char *call, const void *data, size_t amount);
/* data = data / size of the group */
void lib_divide(const struct lockstep *l, float *data, size_t count);
/* A message as a program that uses the library understands it. */
void lib_reword(char *text);
void lib_tensors_release(struct lockstep *l);

#endif
