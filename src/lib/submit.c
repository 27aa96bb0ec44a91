/* Sums that run in the background while the program computes. */
#include "base/log.h"
#include "base/memory.h"
#include "lib/handle.h"

#include <stdio.h>

enum { PIECE_COUNT = LIB_PIECE / sizeof(float) };

/* Ids are small, so tensors are in a table indexed by id. */
static enum ls_status grow(struct lockstep *l, int id)
{
    int n = l->n_tensors > 0 ? l->n_tensors : 16;
    while (n <= id)
        n *= 2;
    if (n == l->n_tensors)
        return LS_OK;
    struct lib_tensor *more = ls_realloc(l->tensors, (size_t)l->n_tensors, (size_t)n, sizeof *more);
    if (!more)
        return LS_FAILED;
    l->tensors = more;
    l->n_tensors = n;
    return LS_OK;
}

/* Allocates the memory for all submissions of a tensor. */
static enum ls_status meet(struct lockstep *l, struct lib_tensor *t, size_t count)
{
    bool feedback = l->codec && l->codec->feedback && ls_comm_size(l->comm) > 1;
    t->count = count;
    t->n_pieces = count > PIECE_COUNT ? (int)((count + PIECE_COUNT - 1) / PIECE_COUNT) : 1;
    t->pieces = ls_alloc((size_t)t->n_pieces, sizeof *t->pieces);
    t->feedback = feedback ? ls_alloc(ls_comm_feedback(l->comm, count), sizeof *t->feedback) : NULL;
    t->known = t->pieces && (t->feedback || !feedback);
    return t->known ? LS_OK : LS_FAILED;
}

static enum ls_status check(struct lockstep *l, int id, const float *data, size_t count, enum lockstep_op op)
{
    LS_TRY(lib_check_op(op));
    LS_TRY(lib_check_data("lockstep_submit", data, count));
    if (id < 0 || id >= LOCKSTEP_ID_LIMIT)
        return ls_fail(LS_USAGE, "lockstep_submit: tensor %d; ids are 0 to %d", id, LOCKSTEP_ID_LIMIT - 1);
    if (count > SIZE_MAX / sizeof(float) / 4 || count / PIECE_COUNT > INT32_MAX / 2)
        return ls_fail(LS_USAGE, "lockstep_submit: tensor %d of %zu floats cannot be addressed", id, count);
    LS_TRY(grow(l, id));
    const struct lib_tensor *t = &l->tensors[id];
    if (t->under_way)
        return ls_fail(LS_USAGE,
                       "lockstep_submit: tensor %d is already submitted; wait for it before submitting it again", id);
    if (t->known && t->count != count)
        return ls_fail(LS_USAGE,
                       "lockstep_submit: tensor %d had %zu floats and has %zu now; use another id for another tensor",
                       id, t->count, count);
    return LS_OK;
}

/* A sum may exceed the range of the codec's type, so with a codec the mean divides first. */
static void post(struct lockstep *l, int id, float *data, enum lockstep_op op)
{
    struct lib_tensor *t = &l->tensors[id];
    float *feedback = t->feedback;
    const struct ls_call call = lib_call(l, LIB_SUBMIT, id, op, t->count);
    t->data = data;
    t->op = op;
    t->under_way = true;
    if (op == LOCKSTEP_MEAN && l->codec)
        lib_divide(l, data, t->count);
    for (int i = 0; i < t->n_pieces; i++) {
        size_t first = (size_t)i * PIECE_COUNT, left = t->count - first;
        size_t count = left < PIECE_COUNT ? left : PIECE_COUNT;
        t->pieces[i] = (struct ls_work){.kind = LS_WORK_ALLREDUCE,
                                        .data = data + first,
                                        .bytes = count * sizeof(float),
                                        .codec = l->codec,
                                        .codec_state = feedback,
                                        .call = call,
                                        .step = l->step,
                                        .bucket = id};
        ls_comm_post(l->comm, &t->pieces[i]);
        if (feedback)
            feedback += ls_comm_feedback(l->comm, count);
    }
}

int lockstep_submit(struct lockstep *l, int id, float *data, size_t count, enum lockstep_op op)
{
    enum ls_status st = lib_status(l);
    if (st != LS_OK)
        return (int)st;
    ls_comm_position(l->comm, l->step, id, LS_STAGE_COMPUTE);
    LS_TRY_GOTO(out, check(l, id, data, count, op));
    if (!l->tensors[id].known)
        LS_TRY_GOTO(out, meet(l, &l->tensors[id], count));
    post(l, id, data, op);
out:
    return (int)lib_record(l, st);
}

/* Waits for all pieces, even after a failure: afterwards the memory belongs to the program again. */
static enum ls_status settle(struct lockstep *l, struct lib_tensor *t)
{
    enum ls_status st = LS_OK;
    for (int i = 0; i < t->n_pieces; i++) {
        enum ls_status piece = ls_comm_wait(l->comm, &t->pieces[i]);
        st = st == LS_OK ? piece : st;
    }
    t->under_way = false;
    if (st == LS_OK && t->op == LOCKSTEP_MEAN && !l->codec)
        lib_divide(l, t->data, t->count);
    return lib_record(l, st);
}

int lockstep_wait(struct lockstep *l, int id)
{
    if (!l || id < 0 || id >= l->n_tensors || !l->tensors[id].under_way)
        return (int)lib_status(l);
    ls_comm_position(l->comm, l->step, id, LS_STAGE_REDUCE);
    settle(l, &l->tensors[id]);
    ls_comm_position(l->comm, l->step, id, LS_STAGE_COMPUTE);
    return (int)lib_status(l);
}

int lockstep_wait_all(struct lockstep *l)
{
    if (!l || !l->comm)
        return (int)lib_status(l);
    ls_comm_position(l->comm, l->step, -1, LS_STAGE_REDUCE);
    for (int id = 0; id < l->n_tensors; id++)
        if (l->tensors[id].under_way)
            settle(l, &l->tensors[id]);
    ls_comm_position(l->comm, ++l->step, -1, LS_STAGE_COMPUTE);
    return (int)lib_status(l);
}

void lib_tensors_release(struct lockstep *l)
{
    for (int id = 0; id < l->n_tensors; id++) {
        ls_free(l->tensors[id].pieces);
        ls_free(l->tensors[id].feedback);
    }
    ls_free(l->tensors);
    l->tensors = NULL;
    l->n_tensors = 0;
}
