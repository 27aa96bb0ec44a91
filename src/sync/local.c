/* Local SGD. Every worker updates with the gradients that it computed. Every H steps all parameters and momenta
 * become their mean. With block momentum (BMUF) the difference between the mean and the last common parameters is a
 * step with momentum:
 *     change = momentum * change + (mean - common);    common = common + change */
#include "sync/sync.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

struct local {
    uint64_t since; /* steps since all workers were equal */
    float *common;  /* owned; all parameters, then all changes; NULL without block momentum */
    size_t count;   /* floats of all parameters */
    bool begun;     /* common holds the initial parameters */
};

/* Only parameters have block momentum. Momenta and running statistics are plain means, because with block momentum a
 * variance could become negative. */
static bool has_momentum(const struct ls_sync_values *values)
{
    return !values->optimizer && !values->running;
}

static enum ls_status open(struct ls_sync *s)
{
    if (strcmp(s->o->compress, "none") != 0)
        return ls_fail(LS_USAGE, "--compress %s: with --sync local no gradients travel that it could make smaller",
                       s->o->compress);
    struct local *l = s->state = ls_alloc(1, sizeof *l);
    if (!l)
        return LS_FAILED;
    for (int b = 0; b < s->n_buckets; b++)
        for (int v = 0; v < s->buckets[b].n_values; v++)
            l->count += has_momentum(&s->buckets[b].values[v]) ? s->buckets[b].values[v].count : 0;
    if (s->o->block_momentum <= 0)
        return LS_OK;
    l->common = ls_alloc(2 * l->count, sizeof *l->common);
    return l->common ? LS_OK : LS_FAILED;
}

/* Runs before the first update. A checkpoint, if any, is loaded, and all workers are equal. */
static enum ls_status begin(struct ls_sync *s)
{
    struct local *l = s->state;
    float *to = l->common;
    l->begun = true;
    for (int b = 0; to && b < s->n_buckets; b++) {
        LS_TRY(s->fetch_values(s->context, b, LS_PART_MODEL));
        LS_TRY(s->values_arrived(s->context));
        for (int v = 0; v < s->buckets[b].n_values; v++) {
            const struct ls_sync_values *values = &s->buckets[b].values[v];
            if (!has_momentum(values))
                continue;
            memcpy(to, values->memory, values->count * sizeof *to);
            to += values->count;
        }
    }
    return LS_OK;
}

static void close(struct ls_sync *s)
{
    struct local *l = s->state;
    if (l)
        ls_free(l->common);
}

/* values = common + change, with change as above. */
static void block_step(const struct ls_sync *s, float *common, float *change, float *values, size_t count)
{
    float momentum = (float)s->o->block_momentum;
    for (size_t i = 0; i < count; i++) {
        change[i] = momentum * change[i] + (values[i] - common[i]);
        values[i] = common[i] = common[i] + change[i];
    }
}

static void scale(const struct ls_sync_values *values, float by)
{
#pragma omp parallel for simd
    for (size_t i = 0; i < values->count; i++)
        values->memory[i] *= by;
}

/* Every value becomes its mean over all workers. While one bucket is scaled, those before it are summed. */
static enum ls_status take_means(struct ls_sync *s)
{
    float share = 1.0f / (float)ls_comm_size(s->comm);
    for (int b = 0; b < s->n_buckets; b++) {
        LS_TRY(s->fetch_values(s->context, b, LS_PART_ALL));
        LS_TRY(s->values_arrived(s->context));
        for (int v = 0; v < s->buckets[b].n_values; v++)
            scale(&s->buckets[b].values[v], share);
        ls_sync_post_values(s, b, LS_PART_ALL, (struct ls_work){.kind = LS_WORK_ALLREDUCE, .step = s->step});
    }
    return ls_sync_wait_values(s);
}

static enum ls_status average(struct ls_sync *s)
{
    struct local *l = s->state;
    float *common = l->common;
    LS_TRY(take_means(s));
    for (int b = 0; common && b < s->n_buckets; b++) {
        for (int v = 0; v < s->buckets[b].n_values; v++) {
            const struct ls_sync_values *values = &s->buckets[b].values[v];
            if (!has_momentum(values))
                continue;
            block_step(s, common, common + l->count, values->memory, values->count);
            common += values->count;
        }
    }
    s->wrote = LS_PART_ALL;
    l->since = 0;
    return LS_OK;
}

static enum ls_status finish(struct ls_sync *s)
{
    struct local *l = s->state;
    if (!l->begun)
        LS_TRY(begin(s));
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(ls_sync_update(s, b));
    s->outcome.differ = ++l->since < (uint64_t)s->o->local_steps;
    return s->outcome.differ ? LS_OK : average(s);
}

static enum ls_status collect(struct ls_sync *s)
{
    const struct local *l = s->state;
    return l->since > 0 ? average(s) : LS_OK;
}

const struct ls_sync_ops ls_sync_local = {
    .name = "local",
    .summary = "each worker updates on its own; every --local-steps all take the mean",
    .cut = LS_CUT_NONE,
    .local_mean = true,
    .no_reduce = true,
    .after_pass = true,
    .works_on_values = true,
    .open = open,
    .finish = finish,
    .collect = collect,
    .close = close,
};
