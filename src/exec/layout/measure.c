/* What layouts are compared by: the times of nodes, and what sums and messages cost. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "base/system/free_memory.h"
#include "exec/layout/layout.h"
#include "exec/node_times.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define LONG_ROUND 3.0 /* seconds; after a round that is longer there is no other */
#define ENOUGH 0.1     /* seconds of rounds */
#define SPIN 0.1       /* seconds for which all processes compute at once */
#define QUICK 0.02     /* seconds; sums that take less are measured with more bytes, which no cache holds */
enum { MOST_ROUNDS = 6, ADDED = 4 << 20 /* floats */, SENT = 2 << 20, SUMMED = 4 << 20, MOST_SUMMED = 16 << 20 };

/* --- clocks --------------------------------------------------------------------------------------------------------- */

/* Of this thread alone: processes that share a core do not count for each other. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The share of a core that a thread gets when all processes compute. */
static double core_share(int threads)
{
    double start = ls_now(), cpu = thread_seconds();
#pragma omp parallel num_threads(threads)
    while (ls_now() - start < SPIN)
        ;
    double share = (thread_seconds() - cpu) / (ls_now() - start);
    return share > 0.9 ? 1 : share;
}

/* --- nodes ---------------------------------------------------------------------------------------------------------- */

/* Pages that were never written would all be one page, in the cache. */
static void touch(const struct ls_engine *e)
{
    for (int t = 0; t < e->train.graph.n_tensors; t++) {
        size_t bytes;
        void *memory =
            ls_role_kept(e->train.graph.tensors[t].role) ? e->backend->memory(e->train.program, t, &bytes) : NULL;
        if (memory)
            memset(memory, 0, bytes);
    }
}

static enum ls_status run_rounds(struct ls_engine *e, double *seconds)
{
    struct ls_run run = {.valid = e->size.batch, .grad_scale = 1.0f / (float)e->size.batch, .stat_weight = 1};
    double start = ls_now();
    for (int round = 0; round < MOST_ROUNDS; round++) {
        /* the first touches pages */
        LS_TRY(ls_time_nodes_once(e->backend, &e->train, &run, thread_seconds, round > 1, seconds));
        double took = ls_now() - start;
        if (took > LONG_ROUND || (round > 0 && took > ENOUGH))
            break;
    }
    return LS_OK;
}

/* Adds the times of a part's nodes to those of the same nodes of the whole graph. What a part has besides, such as a reorder,
 * belongs to the node before it. */
static void add_times(const struct ls_graph *part, const double *seconds, const struct ls_graph *whole, bool *taken,
                      double *all)
{
    int at = 0;
    for (int n = 0; n < part->n_nodes; n++) {
        for (int w = 0; w < whole->n_nodes; w++)
            if (!taken[w] && whole->nodes[w].op == part->nodes[n].op && whole->nodes[w].phase == part->nodes[n].phase &&
                strcmp(whole->nodes[w].name, part->nodes[n].name) == 0) {
                taken[at = w] = true;
                break;
            }
        all[at] += seconds[n];
    }
}

/* A measurement under way. */
struct job {
    const struct ls_options *o;
    struct ls_comm *comm; /* NULL: this process measures all parts */
    const struct ls_model_size *size;
    struct ls_measured *m;
    char *choices, *joined; /* owned; kernels of the whole model, and the layers that they compute together */
    double arena, kept;     /* bytes of memory for each of activations, and of parameters and state */
    char *parallel;         /* owned; the parts, as --parallel names them */
    double *seconds;        /* owned; of each node of the whole model */
};

/* What one process measured. */
struct figures {
    int32_t status;
    double share, add, copy, limit;
    char why[128];
};

static enum ls_status time_engine(struct ls_engine *e, const struct ls_graph *whole, double *all, struct figures *f)
{
    enum ls_status st = LS_FAILED;
    const struct ls_graph *g = &e->train.graph;
    size_t values = (size_t)(e->size.batch * e->size.channels * e->size.height * e->size.width);
    float *images = ls_alloc(values, sizeof *images);
    int32_t *labels = ls_alloc((size_t)e->size.batch, sizeof *labels);
    double *seconds = ls_alloc((size_t)g->n_nodes, sizeof *seconds);
    bool *taken = ls_alloc((size_t)whole->n_nodes, sizeof *taken);
    if (!images || !labels || !seconds || !taken)
        goto out;
    if (!e->backend->queue->own_memory)
        touch(e);
    LS_TRY_GOTO(out, g->input == LS_NONE ? LS_OK : e->backend->input(e->train.program, g->input, images));
    LS_TRY_GOTO(out, g->label == LS_NONE ? LS_OK : e->backend->input(e->train.program, g->label, labels));
    LS_TRY_GOTO(out, e->backend->queue->own_memory ? ls_device_times(e, seconds, &f->add, &f->copy)
                                                   : run_rounds(e, seconds));
    add_times(g, seconds, whole, taken, all);
    st = LS_OK;
out:
    ls_free(images);
    ls_free(labels);
    ls_free(seconds);
    ls_free(taken);
    return st;
}

/* Seconds for each byte of gradients that `how` adds to others, or copies. */
static double time_moves(enum ls_status (*how)(struct ls_program *p, float *to, const float *from, size_t count))
{
    float *to = ls_alloc(ADDED, sizeof *to), *from = ls_alloc(ADDED, sizeof *from);
    double took = 0;
    if (from)
        memset(from, 0, ADDED * sizeof *from); /* as in touch */
    for (int i = 0; i < 3 && to && from; i++) {
        double start = thread_seconds();
        if (how(NULL, to, from, ADDED) != LS_OK)
            break;
        double now = thread_seconds() - start;
        took = i < 2 || now < took ? now : took; /* the first touches pages */
    }
    ls_free(to);
    ls_free(from);
    return took / (ADDED * sizeof(float));
}

static enum ls_status price_comm(struct ls_comm *comm, struct ls_prices *p)
{
    void *memory;
    LS_TRY(ls_comm_region(comm, MOST_SUMMED, &memory));
    if (ls_tree_most_parts(ls_comm_tree(comm)) <= LS_TIMED_PARTS) {
        LS_TRY(ls_price(comm, ls_time_sum, memory, SUMMED, &p->sum, &p->sum_work));
        if (p->sum.alpha + p->sum.beta * SUMMED < QUICK)
            LS_TRY(ls_price(comm, ls_time_sum, memory, MOST_SUMMED, &p->sum, &p->sum_work));
    } else
        p->sum = ls_comm_cost(comm, LS_COLLECTIVE_AUTO);
    return ls_price(comm, ls_time_messages, memory, SENT, &p->message, &p->message_work);
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

/* Options that do not change what a pass costs, and do not go with parts, are left out. */
static struct ls_options plain(const struct ls_options *o, char *parallel)
{
    static char none[] = "none", overlap[] = "overlap";
    struct ls_options p = *o;
    p.parallel = parallel;
    p.compress = p.shard = none;
    p.sync = overlap;
    p.clip_norm = 0;
    p.bn_samples = p.servers = 0;
    p.quiet = true;
    return p;
}

/* The kernels of the whole model and its memory, as one process would have them. */
static enum ls_status choose_kernels(struct job *j, const char *plan)
{
    static char data[] = "data";
    struct ls_engine e;
    struct ls_options all = plain(j->o, data);
    LS_TRY(ls_engine_open(&e, &all, NULL, j->size, plan, LS_ENGINE_TRAIN | LS_ENGINE_PREDICT));
    struct ls_layer sum = ls_layers_sum(&j->m->layers, 0, j->m->layers.n);
    j->arena = sum.activations > 0 ? (double)e.arena_bytes / (double)sum.activations : 1;
    j->kept = sum.kept > 0 ? (double)e.store_bytes / (double)sum.kept : 1;
    j->choices = ls_engine_choices(&e);
    j->joined = ls_engine_joined(&e);
    ls_engine_close(&e);
    return j->choices && j->joined ? LS_OK : LS_FAILED;
}

/* The most parts, up to `parts`, that the model can be cut into, and where. */
static int possible_parts(const struct ls_layers *l, int parts, int cuts[LS_MOST_STAGES])
{
    for (int n = parts < LS_MOST_STAGES ? parts : LS_MOST_STAGES; n > 1; n--)
        if (ls_cut_evenly(l, &(struct ls_cut_rule){.stages = n, .passes = 1}, cuts) == LS_OK)
            return n;
    return 1;
}

/* --parallel for the parts; NULL: no memory. */
static char *name_parts(const struct ls_layers *l, int parts)
{
    int cuts[LS_MOST_STAGES];
    parts = possible_parts(l, parts, cuts);
    if (parts == 1)
        return ls_strdup("data");
    char *names = ls_cut_names(l, parts, cuts), *text = names ? ls_format("pipeline:%d@%s", parts, names) : NULL;
    ls_free(names);
    return text;
}

static double memory_limit(const struct ls_comm *comm)
{
    enum { PROGRAM = 64 << 20 };
    double left = ls_free_memory() / (comm ? ls_comm_local_size(comm) : 1), space = ls_free_address_space();
    left = space > 0 && (left == 0 || space < left) ? space : left;
    return left > 2.0 * PROGRAM ? left - PROGRAM : left;
}

/* Measures this process's part, or all of them, each in a program of its own. The log is muted. The last engine stays open;
 * it is all zeros if none was opened. */
static void measure_parts(const struct job *j, struct figures *f, struct ls_engine *e)
{
    struct ls_options part = plain(j->o, j->parallel);
    int parts = ls_mesh_size(j->parallel), own = j->comm ? ls_comm_rank(j->comm) % parts : 0;
    enum ls_status st = LS_OK;
    for (int i = own; i < (j->comm ? own + 1 : parts) && st == LS_OK; i++) {
        unsigned uses = LS_ENGINE_TRAIN | LS_ENGINE_MEASURE | LS_ENGINE_RANK * (unsigned)i;
        ls_engine_close(e);
        st = ls_engine_open(e, &part, NULL, j->size, j->choices, uses);
        if (st == LS_OK)
            st = time_engine(e, &j->m->whole, j->seconds, f);
    }
    f->status = (int32_t)st;
    if (st != LS_OK)
        snprintf(f->why, sizeof f->why, "%s", ls_log_last());
}

/* The times of all parts; where several processes measured the same one, their mean. */
static enum ls_status gather_times(struct ls_comm *comm, int parts, int n, double *seconds)
{
    int size = ls_comm_size(comm);
    double *all = ls_alloc((size_t)size * (size_t)n, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, seconds, (size_t)n * sizeof *all, all) : LS_FAILED;
    for (int i = 0; i < n && st == LS_OK; i++) {
        seconds[i] = 0;
        for (int r = 0; r < size; r++) {
            int same = size / parts + (r % parts < size % parts);
            seconds[i] += all[(size_t)r * (size_t)n + (size_t)i] / same;
        }
    }
    ls_free(all);
    return st;
}

static enum ls_status gather_figures(struct ls_comm *comm, const struct figures *own, struct ls_measured *m)
{
    int size = comm ? ls_comm_size(comm) : 1;
    struct ls_prices *p = &m->prices;
    struct figures *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = all ? LS_OK : LS_FAILED;
    if (st == LS_OK && comm)
        st = ls_comm_allgather(comm, own, sizeof *own, all);
    else if (st == LS_OK)
        all[0] = *own;
    for (int r = 0; r < size && st == LS_OK; r++) {
        if (all[r].status != LS_OK && !*m->why)
            snprintf(m->why, sizeof m->why, "%s", *all[r].why ? all[r].why : "a part of the model could not be run");
        p->cores += all[r].share * p->processes / size;
        p->add += all[r].add / size;
        p->copy += all[r].copy / size;
        if (all[r].limit > 0 && (p->limit == 0 || all[r].limit < (double)p->limit))
            p->limit = (size_t)all[r].limit;
    }
    ls_free(all);
    return st;
}

/* On a CPU all measure at once: the times are those of the processor. */
static enum ls_status measure_on_cpu(const struct job *j)
{
    const struct ls_options *o = j->o;
    struct figures own = {0};
    struct ls_engine e = {0};
    const struct ls_backend *b;
    int threads = o->threads > 0 ? (int)o->threads : ls_engine_cores();
    double cores = (double)ls_engine_cores() / (threads * j->m->prices.processes);
    LS_TRY(ls_backend_open(o->backend, &b));
    LS_TRY(j->comm ? ls_comm_barrier(j->comm) : LS_OK);
    own.share = j->comm ? core_share(threads) : fmin(1, cores);
    bool muted = ls_log_mute(true);
    measure_parts(j, &own, &e);
    ls_engine_close(&e);
    ls_log_mute(muted);
    own.limit = memory_limit(j->comm);
    own.add = own.status == LS_OK ? time_moves(b->queue->add) : 0;
    own.copy = own.status == LS_OK ? time_moves(b->queue->copy) : 0;
    LS_TRY(gather_figures(j->comm, &own, j->m));
    return j->comm && !*j->m->why ? price_comm(j->comm, &j->m->prices) : LS_OK;
}

/* The engines stay open until sums and messages are measured, too. */
static enum ls_status measure_on_device(const struct job *j)
{
    enum ls_status st;
    struct figures own = {0};
    struct ls_engine e = {0};
    struct ls_card_share share;
    struct ls_prices *prices = &j->m->prices;
    const struct ls_backend *b;
    LS_TRY(ls_backend_open(j->o->backend, &b));
    LS_TRY(ls_device_share(j->comm, b, &share));
    for (int turn = 0; turn < share.turns; turn++) {
        bool muted = ls_log_mute(true);
        if (turn == share.turn)
            measure_parts(j, &own, &e);
        ls_log_mute(muted);
        LS_TRY_GOTO(close_engine, j->comm ? ls_comm_barrier(j->comm) : LS_OK);
    }
    own.limit = ls_device_limit(b, &share);
    own.share = j->comm ? (double)share.cards / ls_comm_size(j->comm) : 1;
    prices->cards = j->comm ? share.cards : prices->processes;
    LS_TRY_GOTO(close_engine, gather_figures(j->comm, &own, j->m));
    st = j->comm && !*j->m->why ? ls_device_prices(&e, j->comm, j->o, prices->copy, prices) : LS_OK;
close_engine:
    ls_engine_close(&e);
    return st;
}

/* Rank 0 chooses kernels for the whole model, and all have what it found. */
static enum ls_status share_kernels(struct job *j, const char *plan)
{
    struct {
        int32_t status;
        double arena, kept;
    } found = {.status = LS_OK};
    if (!j->comm || ls_comm_rank(j->comm) == 0) {
        bool muted = ls_log_mute(true);
        found.status = (int32_t)choose_kernels(j, plan);
        found.arena = j->arena;
        found.kept = j->kept;
        ls_log_mute(muted);
    }
    if (j->comm)
        LS_TRY(ls_comm_broadcast(j->comm, 0, &found, sizeof found));
    j->m->prices.arena = found.arena;
    j->kept = found.kept;
    if (found.status != LS_OK) {
        snprintf(j->m->why, sizeof j->m->why, "no kernels could be chosen");
        return LS_OK;
    }
    LS_TRY(j->comm ? ls_engine_share_text(j->comm, &j->choices) : LS_OK);
    return j->comm ? ls_engine_share_text(j->comm, &j->joined) : LS_OK;
}

/* With the kernels of the whole model: cuts the model into parts, and measures them. */
static enum ls_status measure(struct job *j, const struct ls_backend *b, int parts)
{
    struct ls_measured *m = j->m;
    bool device = b->queue->own_memory;
    if (b->joined) {
        m->joined = j->joined;
        j->joined = NULL;
        ls_layers_join(&m->layers, m->joined);
    }
    bool muted = ls_log_mute(true);
    j->parallel = name_parts(&m->layers, parts);
    ls_log_mute(muted);
    j->seconds = ls_alloc((size_t)m->whole.n_nodes, sizeof *j->seconds);
    if (!j->parallel || !j->seconds)
        return LS_FAILED;
    LS_TRY(device ? measure_on_device(j) : measure_on_cpu(j));
    if (j->comm)
        LS_TRY(gather_times(j->comm, ls_mesh_size(j->parallel), m->whole.n_nodes, j->seconds));
    if (!*m->why) {
        ls_layers_release(&m->layers);
        LS_TRY(ls_layers_of(&m->whole, j->seconds, &m->layers));
        ls_layers_join(&m->layers, m->joined);
    }
    for (int n = 0; device && n < m->layers.n; n++)
        m->layers.list[n].kept = (size_t)(j->kept * (double)m->layers.list[n].kept);
    return LS_OK;
}

enum ls_status ls_layout_measure(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                                 const char *plan, int parts, struct ls_measured *m)
{
    enum ls_status st;
    struct job j = {.o = o, .comm = comm, .size = size, .m = m, .arena = 1, .kept = 1};
    const struct ls_backend *b;
    *m = (struct ls_measured){.prices = {.processes = comm ? ls_comm_size(comm) : parts,
                                         .replicas = (int)o->replicas,
                                         .accumulate = (int)o->accumulate,
                                         .overlap = strcmp(o->sync, "overlap") == 0}};
    ls_graph_init(&m->whole);
    LS_TRY_GOTO(release, ls_backend_open(o->backend, &b));
    LS_TRY_GOTO(release, ls_engine_graph(o, b, size, &m->whole));
    LS_TRY_GOTO(release, ls_layers_of(&m->whole, NULL, &m->layers));
    LS_TRY_GOTO(release, share_kernels(&j, plan));
    st = *m->why ? LS_OK : measure(&j, b, parts);
release:
    ls_free(j.choices);
    ls_free(j.joined);
    ls_free(j.parallel);
    ls_free(j.seconds);
    if (st != LS_OK)
        ls_measured_release(m);
    return st;
}

void ls_measured_release(struct ls_measured *m)
{
    ls_free(m->joined);
    ls_layers_release(&m->layers);
    ls_graph_release(&m->whole);
}
