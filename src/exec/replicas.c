#include "exec/replicas.h"
#include "base/log.h"
#include "base/memory.h"

#include <assert.h>

enum op_kind {
    OP_RUN,   /* replica, pass */
    OP_KEEP,  /* put the gradients by in a memory of `unfinished`; they will be overwritten */
    OP_ADD,   /* gradients = what was put by + gradients */
    OP_JOIN,  /* what was put by = what was put by + gradients: an add and a keep */
    OP_FINISH /* the gradients are part number `at` */
};

struct ls_replicas_op {
    enum op_kind kind;
    int at, replica, pass; /* at: the number of a memory, or of a part */
};

/* --- the walk as a list ------------------------------------------------------------------------------- */

static void emit(struct ls_replicas *r, struct ls_replicas_op op)
{
    if (op.kind == OP_RUN) {
        r->order[r->n_slices++] = op.replica * r->passes + op.pass;
        r->last_run = r->n_ops;
    }
    r->ops[r->n_ops++] = op;
}

/* A sum that is put by is made in the memory of what is added, so that nothing is copied. The two levels change their
 * memories. */
static void emit_keep(struct ls_replicas *r, int level)
{
    struct ls_replicas_op *last = r->n_ops > 0 ? &r->ops[r->n_ops - 1] : NULL;
    if (!last || last->kind != OP_ADD) {
        emit(r, (struct ls_replicas_op){OP_KEEP, .at = r->at[level]});
        return;
    }
    last->kind = OP_JOIN;
    for (int i = 0; i < r->levels; i++)
        if (r->at[i] == last->at) {
            r->at[i] = r->at[level];
            break;
        }
    r->at[level] = last->at;
}

/* EXEC-1 */
static void list_replica(struct ls_replicas *r, int replica)
{
    int level = r->levels - 1;
    for (int pass = 0; pass < r->passes; pass++) {
        if (pass > 0)
            emit_keep(r, level);
        emit(r, (struct ls_replicas_op){OP_RUN, .replica = replica, .pass = pass});
        if (pass > 0)
            emit(r, (struct ls_replicas_op){OP_ADD, .at = r->at[level]});
    }
}

/* EXEC-2: T(v, s), at depth `level` of the tree. */
static void list_tree(struct ls_replicas *r, int replicas, int v, int s, int level)
{
    if (s >= replicas) {
        list_replica(r, v);
        return;
    }
    list_tree(r, replicas, v, 2 * s, level + 1);
    if (v + s >= replicas)
        return;
    emit_keep(r, level);
    list_tree(r, replicas, v + s, 2 * s, level + 1);
    emit(r, (struct ls_replicas_op){OP_ADD, .at = r->at[level]});
}

static int tree_depth(int replicas)
{
    int depth = 0;
    while ((1 << depth) < replicas)
        depth++;
    return depth;
}

/* --- sums --------------------------------------------------------------------------------------------- */

static float *kept_at(const struct ls_replicas *r, int at)
{
    return r->unfinished + (size_t)at * r->memory.count;
}

static enum ls_status keep(struct ls_replicas *r, int at)
{
    const struct ls_replicas_memory *m = &r->memory;
    return m->backend->queue->copy(m->program, kept_at(r, at), m->grads, m->count);
}

static enum ls_status add(struct ls_replicas *r, int at, size_t first, size_t count)
{
    const struct ls_replicas_memory *m = &r->memory;
    return m->backend->queue->add(m->program, m->grads + first, kept_at(r, at) + first, count);
}

static enum ls_status join(struct ls_replicas *r, int at)
{
    const struct ls_replicas_memory *m = &r->memory;
    return m->backend->queue->add(m->program, kept_at(r, at), m->grads, m->count);
}

/* A part that the next pass would overwrite. */
static enum ls_status put_aside(struct ls_replicas *r, int part)
{
    const struct ls_replicas_memory *m = &r->memory;
    LS_TRY(m->backend->queue->fetch(m->program, 0, r->parts[part], m->grads, m->count));
    return m->backend->queue->arrived(m->program, 0);
}

enum ls_status ls_replicas_settle(struct ls_replicas *r, size_t first, size_t count)
{
    for (int i = r->last_run + 1; i < r->n_ops; i++)
        if (r->ops[i].kind == OP_ADD)
            LS_TRY(add(r, r->ops[i].at, first, count));
    return LS_OK;
}

enum ls_status ls_replicas_clear(struct ls_replicas *r)
{
    const struct ls_replicas_memory *m = &r->memory;
    return m->backend->queue->clear(m->program, m->grads, m->count);
}

enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context)
{
    for (int i = 0; i < r->n_ops; i++) {
        const struct ls_replicas_op *op = &r->ops[i];
        bool settled = i > r->last_run; /* EXEC-5: by the last pass */
        switch (op->kind) {
        case OP_RUN:
            LS_TRY(pass(context, op->replica, op->pass, i == r->last_run));
            break;
        case OP_KEEP:
            LS_TRY(keep(r, op->at));
            break;
        case OP_ADD:
            LS_TRY(settled ? LS_OK : add(r, op->at, 0, r->memory.count));
            break;
        case OP_JOIN:
            LS_TRY(join(r, op->at));
            break;
        case OP_FINISH:
            LS_TRY(settled ? LS_OK : put_aside(r, op->at));
        }
    }
    return LS_OK;
}

/* --- made and unmade ---------------------------------------------------------------------------------- */

/* Memory for the sums of every level, where a process has any to make. */
static enum ls_status take_unfinished(struct ls_replicas *r, int slices)
{
    void *memory;
    if (slices <= r->n_parts || r->memory.count == 0)
        return LS_OK;
    if (r->memory.count > SIZE_MAX / sizeof(float) / (size_t)r->levels)
        return ls_fail(LS_FAILED, "%d sums of %zu gradients cannot be addressed", r->levels, r->memory.count);
    size_t bytes = (size_t)r->levels * r->memory.count * sizeof(float);
    LS_TRY(ls_backend_take(r->memory.backend, bytes, &memory));
    r->unfinished = memory;
    r->unfinished_bytes = bytes;
    return LS_OK;
}

size_t ls_replicas_unfinished(int replicas, int passes, size_t count)
{
    return replicas * passes > 1 ? (size_t)(tree_depth(replicas) + (passes > 1)) * count : 0;
}

size_t ls_replicas_gradients(const struct ls_tree *tree, int rank, int passes)
{
    int first, parts = ls_tree_parts(tree, rank, &first), slices = (tree->first[rank + 1] - tree->first[rank]) * passes;
    int unfinished = slices > parts ? tree_depth(tree->replicas) + (passes > 1) : 0;
    return (size_t)(ls_tree_most_parts(tree) + unfinished);
}

enum ls_status ls_replicas_init(struct ls_replicas *r, const struct ls_tree *tree, int rank, int passes,
                                const struct ls_replicas_memory *memory)
{
    enum ls_status st = LS_FAILED;
    int first, replicas = tree->replicas, n_parts = ls_tree_parts(tree, rank, &first);
    int leaves = tree->first[rank + 1] - tree->first[rank], slices = leaves * passes;
    *r = (struct ls_replicas){.passes = passes, .n_parts = n_parts, .memory = *memory, .last_run = -1};
    r->levels = tree_depth(replicas) + (passes > 1);
    assert(r->levels <= LS_REPLICAS_LEVELS);
    for (int i = 0; i < r->levels; i++)
        r->at[i] = i;
    r->order = ls_alloc((size_t)slices, sizeof *r->order);
    /* A run for each slice, and for each of them at most a keep and an add; an end for each part. */
    r->ops = ls_alloc((size_t)(3 * slices + n_parts), sizeof *r->ops);
    r->parts = ls_alloc((size_t)n_parts, sizeof *r->parts);
    if (!r->order || !r->ops || !r->parts)
        goto failed;
    LS_TRY_GOTO(failed, take_unfinished(r, slices));
    for (int i = 0; i < n_parts; i++) {
        const struct ls_tree_part *part = &tree->parts[first + i];
        r->parts[i] = i < n_parts - 1 ? memory->side + (size_t)i * memory->count : memory->sum;
        list_tree(r, replicas, part->v, part->s, 0);
        emit(r, (struct ls_replicas_op){OP_FINISH, .at = i});
    }
    return LS_OK;
failed:
    ls_replicas_release(r);
    return st;
}

void ls_replicas_release(struct ls_replicas *r)
{
    ls_free(r->order);
    ls_free(r->ops);
    ls_free(r->parts);
    if (r->unfinished)
        ls_backend_give(r->memory.backend, r->unfinished, r->unfinished_bytes);
    *r = (struct ls_replicas){0};
}
