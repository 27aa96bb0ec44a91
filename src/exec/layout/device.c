/* Times and prices of a device: nodes are timed by the backend, and what all processes do at once by the clock. */
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "exec/device/peers.h"
#include "exec/layout/layout.h"
#include "exec/node_times.h"

#include <stdio.h>
#include <string.h>

/* Seconds: what takes longer is slow enough to be measured with few bytes. */
#define QUICK_MOVE 1e-4
#define QUICK_PRICE 5e-4
enum {
    FEW = 1 << 20 /* bytes */,
    MANY = 64 << 20 /* bytes: more than a cache holds */,
    HOST = 16 << 20 /* bytes, of which a message takes half */,
    LENT = 2 << 20 /* floats; such memory stays until the process ends */,
    TIMES = 4,
    MARK = 0
};

/* --- processes that share a card ---------------------------------------------------------------------------------- */

struct place {
    int32_t node;
    char bus[24];
};

static bool same_card(const struct place *a, const struct place *b)
{
    return a->node == b->node && strcmp(a->bus, b->bus) == 0;
}

/* How many of the first n processes are on this one's card. */
static int count_sharing(const struct place *all, int n, int rank)
{
    int sharing = 0;
    for (int r = 0; r < n; r++)
        sharing += same_card(&all[r], &all[rank]);
    return sharing;
}

enum ls_status ls_device_share(struct ls_comm *comm, const struct ls_backend *b, struct ls_card_share *share)
{
    int size = comm ? ls_comm_size(comm) : 1, rank = comm ? ls_comm_rank(comm) : 0;
    struct ls_backend_about about = {0};
    *share = (struct ls_card_share){.turns = 1, .sharing = 1, .cards = 1};
    if (!comm)
        return LS_OK;
    b->about(&about);
    struct place mine = {.node = ls_comm_node(comm, rank)}, *all = ls_alloc((size_t)size, sizeof *all);
    if (!all)
        return LS_FAILED;
    snprintf(mine.bus, sizeof mine.bus, "%s", about.bus);
    enum ls_status st = ls_comm_allgather(comm, &mine, sizeof mine, all);
    if (st == LS_OK) {
        share->turn = count_sharing(all, rank, rank);
        share->sharing = count_sharing(all, size, rank);
        share->cards = 0;
    }
    for (int r = 0; st == LS_OK && r < size; r++) {
        int turn = count_sharing(all, r, r);
        share->cards += turn == 0;
        share->turns = turn + 1 > share->turns ? turn + 1 : share->turns;
    }
    ls_free(all);
    return st;
}

double ls_device_limit(const struct ls_backend *b, const struct ls_card_share *share)
{
    size_t now, most;
    double left = b->queue->left ? (double)b->queue->left() : 0;
    b->queue->taken(&now, &most);
    return left > 0 ? left / share->sharing + (double)now : 0;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* Neighbouring updates run as one kernel, whose time the first has: each gets its share by the values that it updates. */
static void spread_updates(const struct ls_graph *g, double *seconds)
{
    for (int n = 0; n < g->n_nodes;) {
        int first = n;
        double all = 0, values = 0;
        for (; n < g->n_nodes && g->nodes[n].phase == LS_UPDATE; n++) {
            all += seconds[n];
            values += (double)ls_shape_count(&g->tensors[g->nodes[n].in[0]].shape);
        }
        for (int i = first; i < n; i++)
            seconds[i] = all * (double)ls_shape_count(&g->tensors[g->nodes[i].in[0]].shape) / values;
        n += n == first;
    }
}

/* All that is enqueued is over. */
static enum ls_status settle(const struct ls_engine *e, const float *memory)
{
    float any;
    LS_TRY(e->backend->queue->fetch(e->train.program, MARK, &any, memory, 1));
    return e->backend->queue->arrived(e->train.program, MARK);
}

typedef enum ls_status moves(struct ls_program *p, float *to, const float *from, size_t count);

static enum ls_status time_moves(const struct ls_engine *e, moves *how, float *to, const float *from, double *a_byte)
{
    double took = 0;
    for (size_t bytes = FEW; bytes <= MANY && took < QUICK_MOVE; bytes *= MANY / FEW) {
        LS_TRY(how(e->train.program, to, from, bytes / sizeof *to));
        LS_TRY(settle(e, to));
        double start = ls_now();
        for (int i = 0; i < TIMES; i++)
            LS_TRY(how(e->train.program, to, from, bytes / sizeof *to));
        LS_TRY(settle(e, to));
        took = ls_now() - start;
        *a_byte = took / (TIMES * (double)bytes);
    }
    return LS_OK;
}

enum ls_status ls_device_times(struct ls_engine *e, double *seconds, double *add, double *copy)
{
    struct ls_run run = {.valid = e->size.batch, .grad_scale = 1.0f / (float)e->size.batch, .stat_weight = 1};
    void *to = NULL, *from = NULL;
    enum ls_status st = ls_time_nodes(e->backend, &e->train, &run, seconds);
    if (st == LS_OK)
        spread_updates(&e->train.graph, seconds);
    if (st == LS_OK)
        st = ls_backend_take(e->backend, MANY, &to);
    if (st == LS_OK)
        st = ls_backend_take(e->backend, MANY, &from);
    if (st == LS_OK)
        st = time_moves(e, e->backend->queue->add, to, from, add);
    if (st == LS_OK)
        st = time_moves(e, e->backend->queue->copy, to, from, copy);
    ls_backend_give(e->backend, to, MANY);
    ls_backend_give(e->backend, from, MANY);
    return st;
}

/* --- sums and messages ---------------------------------------------------------------------------------------------- */

/* Memory of the device, and of the host; memory of the process before, where this one can map it. */
struct ways {
    struct ls_engine *e;
    float *own, *host;
    void *lent, *mapped;
};

/* As many bytes as a process reads and writes for its part of a sum. */
static enum ls_status copy_mapped(const struct ways *w, size_t bytes)
{
    for (size_t left = bytes / sizeof(float); left > 0;) {
        size_t some = left < LENT ? left : LENT;
        LS_TRY(w->e->backend->queue->copy(w->e->train.program, w->own, w->mapped, some));
        left -= some;
    }
    return settle(w->e, w->own);
}

/* All meet before a sum, and behind it. */
static enum ls_status sum_mapped(struct ls_comm *comm, void *context, size_t bytes, struct ls_timing *t)
{
    const struct ways *w = context;
    LS_TRY(ls_comm_barrier(comm));
    double start = ls_now();
    LS_TRY(ls_comm_barrier(comm));
    LS_TRY(copy_mapped(w, bytes));
    LS_TRY(ls_comm_barrier(comm));
    *t = (struct ls_timing){.seconds = ls_now() - start};
    return LS_OK;
}

/* The message says where the values are. */
static enum ls_status message_mapped(struct ls_comm *comm, void *context, size_t bytes, struct ls_timing *t)
{
    const struct ways *w = context;
    LS_TRY(ls_time_messages(comm, w->host, sizeof(uint64_t), t));
    double start = ls_now();
    LS_TRY(copy_mapped(w, bytes));
    t->seconds += ls_now() - start;
    return LS_OK;
}

/* Values to the host, there as the host does it, and back. */
static enum ls_status through_host(const struct ways *w, struct ls_comm *comm, size_t bytes, ls_timed *how,
                                   struct ls_timing *t)
{
    const struct ls_backend_queue *queue = w->e->backend->queue;
    struct ls_program *p = w->e->train.program;
    LS_TRY(ls_comm_barrier(comm));
    double start = ls_now();
    LS_TRY(queue->fetch(p, MARK, w->host, w->own, bytes / sizeof(float)));
    LS_TRY(queue->arrived(p, MARK));
    double fetched = ls_now() - start;
    LS_TRY(how(comm, w->host, bytes, t));
    start = ls_now();
    LS_TRY(queue->send(p, w->own, w->host, bytes / sizeof(float)));
    LS_TRY(settle(w->e, w->own));
    t->seconds += fetched + ls_now() - start;
    return LS_OK;
}

static enum ls_status sum_through_host(struct ls_comm *comm, void *context, size_t bytes, struct ls_timing *t)
{
    return through_host(context, comm, bytes, ls_time_sum, t);
}

static enum ls_status message_through_host(struct ls_comm *comm, void *context, size_t bytes, struct ls_timing *t)
{
    return through_host(context, comm, bytes, ls_time_messages, t);
}

struct offer {
    bool there;
    char ticket[LS_TICKET_ROOM];
};

/* Maps the memory of the process before, if all processes can do so; else w->mapped stays NULL. */
static enum ls_status map_neighbour(struct ls_comm *comm, bool wanted, struct ways *w)
{
    const struct ls_backend_queue *queue = w->e->backend->queue;
    int size = ls_comm_size(comm), before = (ls_comm_rank(comm) + size - 1) % size;
    struct offer mine = {0}, *all = ls_alloc((size_t)size, sizeof *all);
    bool able, *reached = ls_alloc((size_t)size, sizeof *reached), every = true;
    enum ls_status st = all && reached ? LS_OK : LS_FAILED;
    wanted = wanted && queue->lend && ls_comm_local_size(comm) == size;
    if (st == LS_OK && wanted)
        st = ls_backend_take(w->e->backend, LENT * sizeof(float), &w->lent);
    mine.there = st == LS_OK && wanted && queue->lend(w->lent, mine.ticket);
    if (st == LS_OK)
        st = ls_comm_allgather(comm, &mine, sizeof mine, all);
    if (st == LS_OK && all[before].there)
        w->mapped = queue->map(all[before].ticket);
    able = w->mapped != NULL;
    if (st == LS_OK)
        st = ls_comm_allgather(comm, &able, sizeof able, reached);
    for (int r = 0; st == LS_OK && r < size; r++)
        every = every && reached[r];
    if (w->mapped && !every) {
        queue->unmap(w->mapped);
        w->mapped = NULL;
    }
    ls_free(all);
    ls_free(reached);
    return st;
}

static enum ls_status price_quickly(struct ls_comm *comm, ls_timed *how, struct ways *w, size_t many,
                                    struct ls_cost *cost)
{
    double unused;
    LS_TRY(ls_price(comm, how, w, FEW, cost, &unused));
    return cost->alpha + cost->beta * FEW < QUICK_PRICE ? ls_price(comm, how, w, many, cost, &unused) : LS_OK;
}

static enum ls_status price_ways(struct ways *w, struct ls_comm *comm, const struct ls_options *o, double copy,
                                 struct ls_prices *p)
{
    const struct ls_backend *b = w->e->backend;
    bool sums = w->mapped && ls_peers_may_sum(b, comm, o, ls_sync_choose(o, ls_comm_size(comm)), ls_comm_tree(comm));
    LS_TRY(price_quickly(comm, sums ? sum_mapped : sum_through_host, w, sums ? MANY : HOST, &p->sum));
    LS_TRY(price_quickly(comm, w->mapped ? message_mapped : message_through_host, w, w->mapped ? MANY : HOST / 2,
                         &p->message));
    LS_TRY(price_quickly(comm, message_through_host, w, HOST / 2, &p->range)); /* sync/group.c */
    p->sum_work = sums ? copy : 0;
    p->message_work = copy; /* aside, or in place */
    return LS_OK;
}

enum ls_status ls_device_prices(struct ls_engine *e, struct ls_comm *comm, const struct ls_options *o, double copy,
                                struct ls_prices *p)
{
    void *host, *own = NULL;
    struct ways w = {.e = e};
    LS_TRY(ls_comm_region(comm, HOST, &host));
    LS_TRY(ls_backend_take(e->backend, MANY, &own));
    w.host = host;
    w.own = own;
    e->backend->queue->pin(host, HOST);
    enum ls_status st = map_neighbour(comm, strcmp(o->collective, "auto") == 0, &w);
    if (st == LS_OK)
        st = price_ways(&w, comm, o, copy, p);
    if (w.mapped)
        e->backend->queue->unmap(w.mapped);
    e->backend->queue->unpin(host);
    ls_backend_give(e->backend, w.lent, LENT * sizeof(float));
    ls_backend_give(e->backend, own, MANY);
    return st;
}
