#include "exec/replicas.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

enum op_kind {
    OP_RUN,   /* replica, pass */
    OP_KEEP,  /* put the gradients by at a level; they will be overwritten */
    OP_ADD,   /* gradients = what was put by + gradients */
    OP_FINISH /* the gradients are part number `level` */
};

struct ls_replicas_op {
    enum op_kind kind;
    int level, replica, pass;
    bool totals; /* of KEEP and ADD: totals too (those of passes run on by themselves) */
};

void ls_totals_add(struct ls_totals *sum, const struct ls_totals *more)
{
    sum->loss += more->loss;
    sum->top1 += more->top1;
    sum->top5 += more->top5;
    sum->samples += more->samples;
    sum->stop = more->stop > sum->stop ? more->stop : sum->stop;
}

/* --- the walk as a list ------------------------------------------------------------------------------- */

static void emit(struct ls_replicas *r, struct ls_replicas_op op)
{
    if (op.kind == OP_RUN) {
        r->order[r->n_slices++] = op.replica * r->passes + op.pass;
        r->last_run = r->n_ops;
    }
    r->ops[r->n_ops++] = op;
}

/* R1 */
static void list_replica(struct ls_replicas *r, int replica)
{
    int level = r->levels - 1;
    for (int pass = 0; pass < r->passes; pass++) {
        if (pass > 0)
            emit(r, (struct ls_replicas_op){OP_KEEP, .level = level});
        emit(r, (struct ls_replicas_op){OP_RUN, .replica = replica, .pass = pass});
        if (pass > 0)
            emit(r, (struct ls_replicas_op){OP_ADD, .level = level});
    }
}

/* R2: T(v, s), at depth `level` of the tree. */
static void list_tree(struct ls_replicas *r, int replicas, int v, int s, int level)
{
    if (s >= replicas) {
        list_replica(r, v);
        return;
    }
    list_tree(r, replicas, v, 2 * s, level + 1);
    if (v + s >= replicas)
        return;
    emit(r, (struct ls_replicas_op){OP_KEEP, .level = level, .totals = true});
    list_tree(r, replicas, v + s, 2 * s, level + 1);
    emit(r, (struct ls_replicas_op){OP_ADD, .level = level, .totals = true});
}

static int tree_depth(int replicas)
{
    int depth = 0;
    while ((1 << depth) < replicas)
        depth++;
    return depth;
}

/* --- sums --------------------------------------------------------------------------------------------- */

static float *kept_at(const struct ls_replicas *r, int level)
{
    return r->unfinished + (size_t)level * r->memory.count;
}

static void copy(float *to, const float *from, size_t count)
{
#pragma omp parallel for simd
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
}

static enum ls_status keep(struct ls_replicas *r, int level)
{
    const struct ls_replicas_memory *m = &r->memory;
    if (m->backend->queue)
        return m->backend->queue->copy(m->program, kept_at(r, level), m->grads, m->count);
    copy(kept_at(r, level), m->grads, m->count);
    return LS_OK;
}

static enum ls_status add(struct ls_replicas *r, int level, size_t first, size_t count)
{
    const struct ls_replicas_memory *m = &r->memory;
    const float *kept = kept_at(r, level) + first;
    float *grads = m->grads + first;
    if (m->backend->queue)
        return m->backend->queue->add(m->program, grads, kept, count);
#pragma omp parallel for simd
    for (size_t i = 0; i < count; i++)
        grads[i] = kept[i] + grads[i];
    return LS_OK;
}

/* A part that the next pass would overwrite. */
static enum ls_status put_aside(struct ls_replicas *r, int part)
{
    const struct ls_replicas_memory *m = &r->memory;
    if (m->backend->queue) {
        LS_TRY(m->backend->queue->fetch(m->program, 0, r->parts[part], m->grads, m->count));
        return m->backend->queue->arrived(m->program, 0);
    }
    copy(r->parts[part], m->grads, m->count);
    return LS_OK;
}

enum ls_status ls_replicas_settle(struct ls_replicas *r, size_t first, size_t count)
{
    for (int i = r->last_run + 1; i < r->n_ops; i++)
        if (r->ops[i].kind == OP_ADD)
            LS_TRY(add(r, r->ops[i].level, first, count));
    return LS_OK;
}

enum ls_status ls_replicas_clear(struct ls_replicas *r)
{
    const struct ls_replicas_memory *m = &r->memory;
    if (m->backend->queue)
        return m->backend->queue->clear(m->program, m->grads, m->count);
    memset(m->grads, 0, m->count * sizeof *m->grads);
    return LS_OK;
}

enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context)
{
    struct ls_totals totals = {0};
    for (int i = 0; i < r->n_ops; i++) {
        const struct ls_replicas_op *op = &r->ops[i];
        bool settled = i > r->last_run; /* R5: by the last pass */
        switch (op->kind) {
        case OP_RUN:
            if (op->pass == 0)
                totals = (struct ls_totals){0};
            LS_TRY(pass(context, op->replica, op->pass, i == r->last_run, &totals));
            break;
        case OP_KEEP:
            LS_TRY(keep(r, op->level));
            if (op->totals)
                r->unfinished_totals[op->level] = totals;
            break;
        case OP_ADD:
            if (!settled)
                LS_TRY(add(r, op->level, 0, r->memory.count));
            if (op->totals) {
                struct ls_totals sum = r->unfinished_totals[op->level];
                ls_totals_add(&sum, &totals);
                totals = sum;
            }
            break;
        case OP_FINISH:
            if (!settled)
                LS_TRY(put_aside(r, op->level));
            r->part_totals[op->level] = totals;
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

enum ls_status ls_replicas_init(struct ls_replicas *r, const struct ls_tree *tree, int rank, int passes,
                                const struct ls_replicas_memory *memory)
{
    enum ls_status st = LS_FAILED;
    int first, replicas = tree->replicas, n_parts = ls_tree_parts(tree, rank, &first);
    int leaves = tree->first[rank + 1] - tree->first[rank], slices = leaves * passes;
    *r = (struct ls_replicas){.passes = passes, .n_parts = n_parts, .memory = *memory, .last_run = -1};
    r->levels = tree_depth(replicas) + (passes > 1);
    r->order = ls_alloc((size_t)slices, sizeof *r->order);
    /* A run for each slice, and for each of them at most a keep and an add; an end for each part. */
    r->ops = ls_alloc((size_t)(3 * slices + n_parts), sizeof *r->ops);
    r->parts = ls_alloc((size_t)n_parts, sizeof *r->parts);
    r->part_totals = ls_alloc((size_t)n_parts, sizeof *r->part_totals);
    r->unfinished_totals = ls_alloc((size_t)r->levels, sizeof *r->unfinished_totals);
    if (!r->order || !r->ops || !r->parts || !r->part_totals || !r->unfinished_totals)
        goto failed;
    LS_TRY_GOTO(failed, take_unfinished(r, slices));
    for (int i = 0; i < n_parts; i++) {
        const struct ls_tree_part *part = &tree->parts[first + i];
        r->parts[i] = i < n_parts - 1 ? memory->side + (size_t)i * memory->count : memory->sum;
        list_tree(r, replicas, part->v, part->s, 0);
        emit(r, (struct ls_replicas_op){OP_FINISH, .level = i});
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
    ls_free(r->part_totals);
    ls_free(r->unfinished_totals);
    if (r->unfinished)
        ls_backend_give(r->memory.backend, r->unfinished, r->unfinished_bytes);
    *r = (struct ls_replicas){0};
}
