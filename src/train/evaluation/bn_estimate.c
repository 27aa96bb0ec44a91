#include "train/evaluation/bn_estimate.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "exec/device/device_dataset.h"
#include "exec/rank_reduce.h"
#include "graph/ops.h"

#include <math.h>
#include <string.h>

/* Inputs and outputs of a bn node (graph/ops/bn.c). */
enum { RUNNING_MEAN = 3, RUNNING_VAR = 4, STAT = 3 };

struct estimate {
    struct ls_engine *engine;
    enum ls_form form;
    struct ls_loader *loader; /* NULL: no batch is this process's */
    int64_t samples, batches; /* of all processes */
    int end;                  /* the forward pass up to the last BN is nodes 0 .. end-1 */
    size_t floats;            /* statistics of all layers: 2 x channels of each */
    double *sums;             /* over the batches so far; owned */
    float *own, *all;         /* of a batch of this process; of one batch of each process; owned */
};

static bool measures(const struct ls_node *n)
{
    return n->op == &ls_op_bn && n->phase == LS_FORWARD && n->out[STAT] != LS_NONE;
}

static size_t stat_floats(const struct ls_graph *g, const struct ls_node *n)
{
    return (size_t)ls_shape_count(&g->tensors[n->out[STAT]].shape);
}

/* One behind the last BN layer that trains; 0: there is none. */
static int measured_end(const struct ls_graph *g)
{
    int end = 0;
    for (int i = 0; i < g->n_nodes; i++)
        end = measures(&g->nodes[i]) ? i + 1 : end;
    return end;
}

enum ls_status ls_bn_estimate_check(const struct ls_engine *e, const struct ls_options *o)
{
    if (o->bn_samples == 0)
        return LS_OK;
    if (measured_end(&e->train.graph) == 0)
        return ls_fail(LS_USAGE,
                       "--bn-samples: no BN layer of %s trains, so there is nothing to estimate; leave it out",
                       o->model);
    if (e->strategy->servers)
        return ls_fail(LS_USAGE,
                       "--bn-samples: with --sync %s%s servers hold the running statistics, and would overwrite the "
                       "estimate; use --sync overlap, allreduce, gather or local, or server without --servers",
                       o->sync, o->servers > 0 ? " --servers" : "");
    return LS_OK;
}

/* --- batches -------------------------------------------------------------------------------------------------- */

static int rank_of(const struct ls_engine *e)
{
    return e->comm ? ls_comm_rank(e->comm) : 0;
}

static int size_of(const struct ls_engine *e)
{
    return e->comm ? ls_comm_size(e->comm) : 1;
}

/* Opens a loader of every size-th batch of the first epoch's order, from batch `rank` on. */
static enum ls_status open_loader(struct estimate *b, const struct ls_task *task, const struct ls_options *o)
{
    const struct ls_engine *e = b->engine;
    int rank = rank_of(e), size = size_of(e), n = 0, most, threads = ls_task_loader_threads(o, e, &most);
    if (rank >= b->batches)
        return LS_OK;
    int *order = ls_alloc((size_t)b->batches, sizeof *order);
    if (!order)
        return LS_FAILED;
    for (int i = rank; i < b->batches; i += size)
        order[n++] = i;
    struct ls_loader_options options = {
        .set = task->train,
        .augment = task->augment,
        .form = b->form,
        .seed = o->seed,
        .shuffle = o->shuffle,
        .on_bad = strcmp(o->on_bad_sample, "skip") == 0 ? LS_BAD_REPLACED : LS_BAD_FAILS,
        .threads = task->loader_threads > 0 ? task->loader_threads : threads,
        .max_threads = most,
        .ring = 3,
        .batch = task->size.batch,
        .parts = b->batches,
        .step = b->samples,
        .order = order,
        .own = n,
        .epoch_samples = b->samples,
        .epochs = 1,
    };
    enum ls_status st = ls_loader_new(&options, &b->loader);
    ls_free(order);
    return st;
}

/* Memory that the statistics of a layer are in may be used again by later nodes: they are read behind their node. */
static enum ls_status run_forward(struct estimate *b, const struct ls_run *run)
{
    const struct ls_engine *e = b->engine;
    const struct ls_graph *g = &e->train.graph;
    float *to = b->own;
    for (int i = 0; i < b->end; i++) {
        const struct ls_node *n = &g->nodes[i];
        if (n->phase != LS_FORWARD)
            continue;
        LS_TRY(e->backend->run(e->train.program, i, i + 1, run));
        if (!measures(n))
            continue;
        LS_TRY(e->backend->read(e->train.program, n->out[STAT], to));
        to += stat_floats(g, n);
    }
    return LS_OK;
}

/* The random choices of a batch (dropout, mixup) go by its number. */
static enum ls_status run_batch(struct estimate *b, int64_t batch, uint64_t seed)
{
    const struct ls_engine *e = b->engine;
    const struct ls_slot *slot;
    if (batch >= b->batches)
        return LS_OK;
    if (ls_interrupted() && !e->comm)
        return LS_INTERRUPTED;
    LS_TRY(ls_loader_next(b->loader, &slot));
    if (!slot)
        return ls_fail(LS_FAILED, "--bn-samples: the data ended before batch %lld", (long long)batch);
    struct ls_run run = {.seed = seed,
                         .step = (uint64_t)batch,
                         .valid = slot->valid,
                         .grad_scale = 1,
                         .stat_weight = 1,
                         .forward_only = true};
    LS_TRY(ls_device_dataset_input(e->backend, &e->train, slot));
    return run_forward(b, &run);
}

/* Adds the batches from `first` on, one of each process, in their order. */
static enum ls_status add_batches(struct estimate *b, int64_t first)
{
    struct ls_comm *comm = b->engine->comm;
    if (comm)
        LS_TRY(ls_comm_allgather(comm, b->own, b->floats * sizeof *b->own, b->all));
    const float *from = comm ? b->all : b->own;
    for (int64_t batch = first; batch < b->batches && batch < first + size_of(b->engine); batch++, from += b->floats)
        for (size_t i = 0; i < b->floats; i++)
            b->sums[i] += (double)from[i];
    return LS_OK;
}

static enum ls_status run_all(struct estimate *b, const struct ls_task *task, const struct ls_options *o,
                              struct ls_console *console)
{
    struct ls_comm *comm = b->engine->comm;
    LS_TRY(ls_rank_reduce_status(comm, open_loader(b, task, o)));
    for (int64_t first = 0; first < b->batches; first += size_of(b->engine)) {
        LS_TRY(ls_rank_reduce_status(comm, run_batch(b, first + rank_of(b->engine), o->seed)));
        LS_TRY(add_batches(b, first));
        ls_console_progress(console, "estimating BN", first, b->batches);
    }
    return LS_OK;
}

/* --- the result ----------------------------------------------------------------------------------------------- */

/* The first layer with a mean that is not finite; NULL: there is none. */
static const char *find_bad(const struct estimate *b)
{
    const struct ls_graph *g = &b->engine->train.graph;
    const double *sums = b->sums;
    for (int i = 0; i < b->end; i++) {
        size_t n = measures(&g->nodes[i]) ? stat_floats(g, &g->nodes[i]) : 0;
        for (size_t c = 0; c < n; c++)
            if (!isfinite((float)(sums[c] / (double)b->batches)))
                return g->nodes[i].name;
        sums += n;
    }
    return NULL;
}

static enum ls_status write_means(struct estimate *b)
{
    const struct ls_engine *e = b->engine;
    const struct ls_graph *g = &e->train.graph;
    size_t at = 0;
    for (size_t i = 0; i < b->floats; i++)
        b->own[i] = (float)(b->sums[i] / (double)b->batches);
    for (int i = 0; i < b->end; i++) {
        const struct ls_node *n = &g->nodes[i];
        if (!measures(n))
            continue;
        size_t floats = stat_floats(g, n);
        LS_TRY(e->backend->write(e->train.program, n->in[RUNNING_MEAN], b->own + at));
        LS_TRY(e->backend->write(e->train.program, n->in[RUNNING_VAR], b->own + at + floats / 2));
        at += floats;
    }
    return LS_OK;
}

/* Data that fills no batch is one batch. */
int64_t ls_bn_estimate_samples(const struct ls_task *task, const struct ls_options *o)
{
    int64_t count = ls_dataset_info(task->train)->count, batch = task->size.batch,
            whole = o->bn_samples / batch * batch;
    return whole > 0 ? whole : batch < count ? batch : count;
}

static enum ls_status begin(struct estimate *b, struct ls_engine *e, const struct ls_task *task,
                            const struct ls_options *o, enum ls_form form)
{
    const struct ls_graph *g = &e->train.graph;
    int64_t samples = ls_bn_estimate_samples(task, o), batch = task->size.batch;
    *b = (struct estimate){.engine = e,
                           .form = form,
                           .samples = samples,
                           .batches = (samples + batch - 1) / batch,
                           .end = measured_end(g)};
    for (int i = 0; i < b->end; i++)
        b->floats += measures(&g->nodes[i]) ? stat_floats(g, &g->nodes[i]) : 0;
    b->sums = ls_alloc(b->floats, sizeof *b->sums);
    b->own = ls_alloc(b->floats, sizeof *b->own);
    b->all = ls_alloc(b->floats * (size_t)size_of(e), sizeof *b->all);
    return b->sums && b->own && b->all ? LS_OK : LS_FAILED;
}

static void end(struct estimate *b)
{
    ls_loader_free(b->loader);
    ls_free(b->sums);
    ls_free(b->own);
    ls_free(b->all);
}

enum ls_status ls_bn_estimate(struct ls_engine *e, const struct ls_task *task, const struct ls_options *o,
                              enum ls_form form, struct ls_console *console, const char **bad)
{
    struct estimate b;
    bool mute = e->comm && rank_of(e) > 0;
    *bad = NULL;
    if (o->bn_samples == 0)
        return LS_OK;
    if (mute)
        ls_log_mute(1);
    enum ls_status st = begin(&b, e, task, o, form);
    st = ls_rank_reduce_status(e->comm, st);
    if (st == LS_OK)
        st = run_all(&b, task, o, console);
    if (mute)
        st = ls_rank_reduce_unmute(st);
    if (st == LS_OK && !(*bad = find_bad(&b)))
        st = write_means(&b);
    end(&b);
    return st;
}
