/* Measures what an allreduce costs: alpha from a small one, beta from the difference to a larger one. */
#include "base/system/clock.h"
#include "comm/group.h"

enum { SMALL = 4096, LARGE = 512 << 10, WARM = 2, TIMES = 3 };

static enum ls_status time_one(struct ls_comm *c, float *const *parts, size_t bytes, double *least)
{
    *least = 1e9;
    for (int i = 0; i < WARM + TIMES; i++) {
        struct ls_work w = {
            .kind = LS_WORK_ALLREDUCE, .data = parts[0], .bytes = bytes, .parts = parts, .step = 0, .bucket = -1};
        double start = ls_now();
        LS_TRY(ls_comm_do(c, &w));
        double took = ls_now() - start;
        if (i >= WARM && took < *least)
            *least = took;
    }
    return LS_OK;
}

static bool available(const struct ls_comm *c, enum ls_collective algorithm)
{
    switch (algorithm) {
    case LS_COLLECTIVE_TREE:
    case LS_COLLECTIVE_RING:
        return true;
    case LS_COLLECTIVE_HIER:
        return c->nodes > 1 && c->hier;
    case LS_COLLECTIVE_MPI: /* where the library is in use anyway, because it may restrict threads */
        return c->transport->allreduce && !c->may_help;
    case LS_COLLECTIVE_AUTO:
        break;
    }
    return false;
}

static enum ls_status measure(struct ls_comm *c, float *const *parts)
{
    size_t large = c->o.max_bytes < LARGE ? c->o.max_bytes / 64 * 64 : LARGE;
    for (int algorithm = LS_COLLECTIVE_TREE; algorithm < LS_ALGORITHMS; algorithm++) {
        double little = 0, much = 0;
        if (!available(c, (enum ls_collective)algorithm) || large <= SMALL)
            continue;
        c->force = (enum ls_collective)algorithm;
        LS_TRY(time_one(c, parts, SMALL, &little));
        LS_TRY(time_one(c, parts, large, &much));
        c->cost[algorithm].beta = much > little ? (much - little) / (double)(large - SMALL) : 0;
        c->cost[algorithm].alpha = little - c->cost[algorithm].beta * SMALL;
        if (c->cost[algorithm].alpha < 0)
            c->cost[algorithm].alpha = 0;
    }
    return LS_OK;
}

enum ls_status ls_cost_measure(struct ls_comm *c)
{
    void *memory;
    float *parts[LS_MAX_PARTS];
    LS_TRY(ls_comm_region(c, LARGE, &memory));
    for (int i = 0; i < 64; i++)
        parts[i] = memory;
    enum ls_status st = c->all.most_parts <= 64 ? measure(c, parts) : LS_OK;
    c->force = LS_COLLECTIVE_AUTO;
    LS_TRY(st);
    return ls_comm_broadcast(c, 0, c->cost, sizeof c->cost);
}

struct ls_cost ls_comm_cost(const struct ls_comm *c, enum ls_collective algorithm)
{
    if (algorithm == LS_COLLECTIVE_AUTO)
        algorithm = ls_comm_choice(c, c->o.max_bytes);
    if (algorithm == LS_COLLECTIVE_HIER && c->nodes == 1)
        algorithm = LS_COLLECTIVE_TREE;
    return c->cost[algorithm];
}

enum ls_collective ls_comm_choice(const struct ls_comm *c, size_t bytes)
{
    enum ls_collective asked = c->o.collective;
    bool hier = c->nodes > 1 && c->hier;
    if (asked == LS_COLLECTIVE_HIER)
        return hier ? asked : LS_COLLECTIVE_TREE;
    if (asked != LS_COLLECTIVE_AUTO)
        return asked;
    if (!hier || !c->hier_exact)
        return LS_COLLECTIVE_TREE;
    const struct ls_cost *t = &c->cost[LS_COLLECTIVE_TREE], *h = &c->cost[LS_COLLECTIVE_HIER];
    double n = (double)bytes;
    return h->alpha + n * h->beta < t->alpha + n * t->beta ? LS_COLLECTIVE_HIER : LS_COLLECTIVE_TREE;
}

bool ls_comm_exact(const struct ls_comm *c, enum ls_collective algorithm)
{
    if (c->size == 1)
        return true;
    if (algorithm == LS_COLLECTIVE_HIER)
        return c->nodes == 1 || !c->hier || c->hier_exact;
    return algorithm == LS_COLLECTIVE_AUTO || algorithm == LS_COLLECTIVE_TREE;
}
