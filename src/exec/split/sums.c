#include "exec/split/sums.h"
#include "base/memory.h"

static int part_of(const struct ls_sums *s, int replica)
{
    int part = 0;
    while (s->tree.parts[part].v != replica)
        part++;
    return part;
}

/* --- gradients, or before there is memory only the count of buffers ----------------------------------------------- */

static size_t floats_of(const struct ls_sums *s)
{
    return s->counts[0] + s->counts[1];
}

static float *take_buffer(struct ls_sums *s)
{
    if (s->program)
        return s->spare[--s->n_spare];
    if (s->n_spare > 0)
        s->n_spare--;
    else
        s->n_buffers++;
    return NULL;
}

static void give_buffer(struct ls_sums *s, float *buffer)
{
    if (s->program)
        s->spare[s->n_spare] = buffer;
    s->n_spare++;
}

typedef enum ls_status move(struct ls_program *program, float *to, const float *from, size_t count);

/* buffer = gradients, or buffer += gradients */
static enum ls_status from_grads(struct ls_sums *s, float *buffer, move *how)
{
    for (int i = 0; s->program && i < 2; i++) {
        if (s->counts[i] > 0)
            LS_TRY(how(s->program, buffer, s->grads[i], s->counts[i]));
        buffer += s->counts[i];
    }
    return LS_OK;
}

/* The same, the other way. The buffer is given back. */
static enum ls_status to_grads(struct ls_sums *s, float *buffer, move *how)
{
    const float *from = buffer;
    for (int i = 0; s->program && i < 2; i++) {
        if (s->counts[i] > 0)
            LS_TRY(how(s->program, s->grads[i], from, s->counts[i]));
        from += s->counts[i];
    }
    give_buffer(s, buffer);
    return LS_OK;
}

static bool is_last(const struct ls_sums *s)
{
    return s->came == s->n_slices;
}

static enum ls_status clear(struct ls_sums *s)
{
    for (int i = 0; s->program && i < 2; i++)
        if (s->counts[i] > 0)
            LS_TRY(s->backend->queue->clear(s->program, s->grads[i], s->counts[i]));
    return LS_OK;
}

/* Sum number k: the last one takes the place of the gradients. */
static enum ls_status put_result(struct ls_sums *s, int k)
{
    const struct ls_backend_queue *q = s->program ? s->backend->queue : NULL;
    int part = part_of(s, s->results[k]);
    bool here = part == s->here;
    if (k + 1 == s->n_results)
        return here ? LS_OK : to_grads(s, s->slot[part], q ? q->copy : NULL);
    const float *sum = s->slot[part];
    for (int i = 0; q && i < 2; i++) {
        if (s->counts[i] > 0)
            LS_TRY(q->copy(s->program, s->aside[2 * k + i], here ? s->grads[i] : sum, s->counts[i]));
        sum += here ? 0 : s->counts[i];
    }
    if (!here)
        give_buffer(s, s->slot[part]);
    return LS_OK;
}

/* All sums are complete, and the next step can begin. */
static enum ls_status finish(struct ls_sums *s)
{
    for (int k = 0; k < s->n_results; k++) /* the last at last: it overwrites another that is in its place */
        LS_TRY(put_result(s, k));
    s->came = 0;
    s->here = -1;
    for (int part = 0; part < s->tree.n_parts; part++) {
        s->slot[part] = NULL;
        s->arrived[part] = false;
    }
    for (int i = 0; i < s->tree.n_sums; i++)
        s->done[i] = false;
    return LS_OK;
}

/* --- the tree ----------------------------------------------------------------------------------------------------- */

/* A sum can be made when both sides have arrived and what stands before it for either side is made. */
static bool can_add(const struct ls_sums *s, int sum)
{
    const struct ls_tree_sum *this = &s->tree.sums[sum];
    if (s->done[sum] || !s->arrived[this->to] || !s->arrived[this->from])
        return false;
    for (int i = 0; i < sum; i++) {
        const struct ls_tree_sum *other = &s->tree.sums[i];
        if (!s->done[i] && (other->to == this->to || other->to == this->from))
            return false;
    }
    return true;
}

/* One of the two is where gradients come. There the last sum of a step is made, and others in the buffer of the other one: a+b
 * and b+a have the same bits. */
static enum ls_status add_here(struct ls_sums *s, const struct ls_tree_sum *sum)
{
    move *add = s->program ? s->backend->queue->add : NULL;
    int other = sum->to == s->here ? sum->from : sum->to;
    float *buffer = s->slot[other];
    s->slot[other] = NULL;
    s->here = is_last(s) ? sum->to : -1;
    if (is_last(s))
        return to_grads(s, buffer, add);
    s->slot[sum->to] = buffer;
    return from_grads(s, buffer, add);
}

static enum ls_status add_slots(struct ls_sums *s, const struct ls_tree_sum *sum)
{
    if (s->program)
        LS_TRY(s->backend->queue->add(s->program, s->slot[sum->to], s->slot[sum->from], floats_of(s)));
    give_buffer(s, s->slot[sum->from]);
    s->slot[sum->from] = NULL;
    return LS_OK;
}

static enum ls_status add_up(struct ls_sums *s)
{
    for (int i = 0; i < s->tree.n_sums; i++) {
        const struct ls_tree_sum *sum = &s->tree.sums[i];
        if (!can_add(s, i))
            continue;
        LS_TRY(sum->to == s->here || sum->from == s->here ? add_here(s, sum) : add_slots(s, sum));
        s->done[i] = true;
    }
    return LS_OK;
}

/* The passes of a replica that came before are in its slot. */
static enum ls_status add_pass(struct ls_sums *s, int part, bool first)
{
    move *add = s->program ? s->backend->queue->add : NULL;
    if (!first && !is_last(s))
        return from_grads(s, s->slot[part], add);
    s->here = part;
    return first ? LS_OK : to_grads(s, s->slot[part], add);
}

/* The next gradients come where these are. */
static enum ls_status set_aside(struct ls_sums *s)
{
    int part = s->here;
    if (part < 0)
        return LS_OK;
    s->here = -1;
    s->slot[part] = take_buffer(s);
    return from_grads(s, s->slot[part], s->program ? s->backend->queue->copy : NULL);
}

enum ls_status ls_sums_take(struct ls_sums *s, int replica, int pass, bool has_samples)
{
    int part = part_of(s, replica);
    if (!has_samples)
        LS_TRY(clear(s));
    s->came++;
    LS_TRY(add_pass(s, part, pass == 0));
    if (pass == s->passes - 1) {
        s->arrived[part] = true;
        LS_TRY(add_up(s));
    }
    return is_last(s) ? finish(s) : set_aside(s);
}

/* --- made and unmade ---------------------------------------------------------------------------------------------- */

enum ls_status ls_sums_init(struct ls_sums *s, int replicas, int passes, const int *order, int n,
                            const struct ls_tree_part *results, int n_results)
{
    *s = (struct ls_sums){.passes = passes, .n_slices = n, .n_results = n_results, .here = -1};
    LS_TRY(ls_tree_init(&s->tree, replicas, replicas));
    s->slot = ls_alloc((size_t)s->tree.n_parts, sizeof *s->slot);
    s->spare = ls_alloc((size_t)s->tree.n_parts, sizeof *s->spare);
    s->arrived = ls_alloc((size_t)s->tree.n_parts, sizeof *s->arrived);
    s->done = ls_alloc((size_t)s->tree.n_sums + 1, sizeof *s->done);
    s->results = ls_alloc((size_t)n_results, sizeof *s->results);
    s->aside = ls_alloc(2 * (size_t)n_results, sizeof *s->aside);
    if (!s->slot || !s->spare || !s->arrived || !s->done || !s->results || !s->aside)
        return LS_FAILED;
    for (int k = 0; k < n_results; k++)
        s->results[k] = results[k].v;
    for (int i = 0; i < n; i++) /* without memory: how many buffers it takes */
        LS_TRY(ls_sums_take(s, order[i] / passes, order[i] % passes, true));
    s->n_spare = 0;
    return LS_OK;
}

enum ls_status ls_sums_open(struct ls_sums *s, const struct ls_backend *b, struct ls_program *p)
{
    size_t floats = floats_of(s);
    void *memory;
    LS_TRY(ls_backend_take(b, (size_t)s->n_buffers * floats * sizeof(float), &memory));
    s->memory = memory;
    s->backend = b;
    s->program = p;
    for (int i = 0; i < s->n_buffers; i++)
        s->spare[s->n_spare++] = s->memory + (size_t)i * floats;
    return LS_OK;
}

void ls_sums_release(struct ls_sums *s)
{
    if (s->memory)
        ls_backend_give(s->backend, s->memory, (size_t)s->n_buffers * floats_of(s) * sizeof(float));
    ls_tree_release(&s->tree);
    ls_free(s->slot);
    ls_free(s->spare);
    ls_free(s->arrived);
    ls_free(s->done);
    ls_free(s->results);
    ls_free(s->aside);
    *s = (struct ls_sums){0};
}
