#define _GNU_SOURCE
#include "base/system/clock.h"
#include "cmd/doctor/doctor.h"
#include "report/stats.h"
#include "report/formats/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BULK_BYTES ((size_t)4 << 20)
#define SMALL_SECONDS 0.02 /* that small messages of a pair may take, and large ones */
#define BULK_SECONDS 0.05
enum {
    TAG = 7,
    LEAST = 5, /* repetitions, after one that counts for nothing */
    LEAST_BULK = 2,
    MOST = 64,
    ROUNDS = 63,  /* of a tournament: with more than 64 ranks not every pair meets */
    APART = 8,    /* up to so many ranks one pair after the other, so that none disturbs another */
    SHOWN = 15,   /* pairs of a table */
    CLOCKS = 128, /* hosts whose clocks are compared */
};

/* --- one pair ------------------------------------------------------------------------------------------------ */

enum order { ORDER_END, ORDER_SMALL, ORDER_BULK };

static enum ls_status message(struct ls_comm *comm, enum ls_work_kind kind, int peer, void *data, size_t bytes)
{
    struct ls_work w = {.kind = kind, .peer = peer, .tag = TAG, .data = data, .bytes = bytes, .bucket = -1};
    return ls_comm_do(comm, &w);
}

static int64_t wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The partner's side: answers each request with its clock until the request to end. */
static enum ls_status follow(struct ls_comm *comm, int leader, void *bulk)
{
    for (;;) {
        int64_t order, now;
        LS_TRY(message(comm, LS_WORK_RECEIVE, leader, &order, sizeof order));
        if (order == ORDER_BULK)
            LS_TRY(message(comm, LS_WORK_RECEIVE, leader, bulk, BULK_BYTES));
        if (order == ORDER_END)
            return LS_OK;
        now = wall_clock();
        LS_TRY(message(comm, LS_WORK_SEND, leader, &now, sizeof now));
    }
}

static enum ls_status ask(struct ls_comm *comm, int peer, int64_t order, void *bulk, int64_t *answer)
{
    LS_TRY(message(comm, LS_WORK_SEND, peer, &order, sizeof order));
    if (order == ORDER_BULK)
        LS_TRY(message(comm, LS_WORK_SEND, peer, bulk, BULK_BYTES));
    return order == ORDER_END ? LS_OK : message(comm, LS_WORK_RECEIVE, peer, answer, sizeof *answer);
}

static enum ls_status lead_small(struct ls_comm *comm, int peer, struct ls_pair *pair, struct ls_skew *skew)
{
    double times[MOST], start = ls_now(), least = HUGE_VAL;
    struct ls_stats stats;
    int n = -1; /* the first counts for nothing */
    while (n < MOST && (n < LEAST || ls_now() - start < SMALL_SECONDS)) {
        int64_t there, before = wall_clock();
        double begun = ls_now();
        LS_TRY(ask(comm, peer, ORDER_SMALL, NULL, &there));
        double took = ls_now() - begun;
        if (n >= 0)
            times[n] = took;
        if (n++ >= 0 && took < least) {
            least = took;
            skew->offset = 1e-9 * (double)(there - before) - took / 2;
            skew->error = took / 2;
        }
    }
    LS_TRY(ls_stats_of(times, n, &stats));
    pair->latency = stats.median / 2;
    return LS_OK;
}

static enum ls_status lead_bulk(struct ls_comm *comm, int peer, void *bulk, struct ls_pair *pair)
{
    double start = ls_now(), least = HUGE_VAL;
    for (int n = 0; n < MOST && (n < LEAST_BULK || ls_now() - start < BULK_SECONDS); n++) {
        int64_t there;
        double begun = ls_now();
        LS_TRY(ask(comm, peer, ORDER_BULK, bulk, &there));
        least = fmin(least, ls_now() - begun);
    }
    least -= least > 4 * pair->latency ? 2 * pair->latency : 0; /* the answer's way, and the order's */
    pair->bandwidth = (double)BULK_BYTES / least;
    return LS_OK;
}

static enum ls_status lead(struct ls_comm *comm, int peer, void *bulk, struct ls_pair *pair)
{
    struct ls_skew skew;
    *pair = (struct ls_pair){.a = ls_comm_rank(comm), .b = peer};
    LS_TRY(lead_small(comm, peer, pair, &skew));
    LS_TRY(lead_bulk(comm, peer, bulk, pair));
    return ask(comm, peer, ORDER_END, NULL, NULL);
}

/* --- all pairs ----------------------------------------------------------------------------------------------- */

/* A round-robin tournament: in each round each rank has one partner, and after n - 1 rounds (n even) it has had all. */
static int partner_of(int rank, int round, int n)
{
    int even = n + n % 2, last = even - 1, partner;
    if (rank == last)
        partner = round;
    else if (rank == round)
        partner = last;
    else
        partner = (2 * round - rank + 2 * last) % last;
    return partner < n ? partner : -1; /* odd: one pauses */
}

static enum ls_status play(struct ls_comm *comm, int partner, void *bulk, struct ls_pair *pair)
{
    int me = ls_comm_rank(comm);
    if (partner < 0)
        return LS_OK;
    return me < partner ? lead(comm, partner, bulk, pair) : follow(comm, partner, bulk);
}

static enum ls_status play_round(struct ls_comm *comm, int round, void *bulk, struct ls_pair *pair)
{
    int n = ls_comm_size(comm), me = ls_comm_rank(comm);
    if (n > APART)
        LS_TRY(play(comm, partner_of(me, round, n), bulk, pair));
    for (int a = 0; a < n && n <= APART; a++) {
        int b = partner_of(a, round, n);
        if (b < a)
            continue;
        if (me == a || me == b)
            LS_TRY(play(comm, me == a ? b : a, bulk, pair));
        LS_TRY(ls_comm_barrier(comm));
    }
    return ls_comm_barrier(comm);
}

/* Rank 0 with the first rank of each other host. */
static enum ls_status compare_clocks(struct ls_comm *comm, struct ls_pairs *p)
{
    int me = ls_comm_rank(comm), n = ls_comm_size(comm), hosts = 0;
    p->skews = ls_alloc(CLOCKS, sizeof *p->skews);
    if (!p->skews)
        return LS_FAILED;
    for (int r = 1; r < n; r++) {
        struct ls_pair pair;
        if (ls_comm_local_rank(comm, r) != 0 || ls_comm_node(comm, r) == ls_comm_node(comm, 0) || hosts++ >= CLOCKS)
            continue;
        if (me == r)
            LS_TRY(follow(comm, 0, NULL));
        if (me != 0)
            continue;
        struct ls_skew *skew = &p->skews[p->n_skews++];
        skew->rank = r;
        LS_TRY(lead_small(comm, r, &pair, skew));
        LS_TRY(ask(comm, r, ORDER_END, NULL, NULL));
    }
    return LS_OK;
}

static int slowest_first(const void *a, const void *b)
{
    const struct ls_pair *x = a, *y = b;
    return (x->bandwidth > y->bandwidth) - (x->bandwidth < y->bandwidth);
}

static enum ls_status share_out(struct ls_comm *comm, const struct ls_pair *mine, int rounds, struct ls_pairs *p)
{
    int n = ls_comm_size(comm), kept = 0;
    p->list = ls_alloc((size_t)n * (size_t)rounds, sizeof *p->list);
    if (!p->list)
        return LS_FAILED;
    LS_TRY(ls_comm_allgather(comm, mine, (size_t)rounds * sizeof *mine, p->list));
    for (int i = 0; i < n * rounds; i++)
        if (p->list[i].a >= 0)
            p->list[kept++] = p->list[i];
    p->n = kept;
    p->possible = n * (n - 1) / 2;
    qsort(p->list, (size_t)kept, sizeof *p->list, slowest_first);
    return LS_OK;
}

enum ls_status ls_pairs_measure(struct ls_comm *comm, struct ls_pairs *p)
{
    int n = ls_comm_size(comm), rounds = n + n % 2 - 1 < ROUNDS ? n + n % 2 - 1 : ROUNDS;
    enum ls_status st = LS_FAILED;
    *p = (struct ls_pairs){0};
    void *bulk = ls_alloc(BULK_BYTES, 1);
    struct ls_pair *mine = ls_alloc((size_t)rounds, sizeof *mine);
    if (!bulk || !mine)
        goto free_memory;
    for (int i = 0; i < rounds; i++)
        mine[i].a = -1;
    for (int i = 0; i < rounds; i++)
        LS_TRY_GOTO(free_memory, play_round(comm, i, bulk, &mine[i]));
    LS_TRY_GOTO(free_memory, compare_clocks(comm, p));
    st = share_out(comm, mine, rounds, p);
free_memory:
    ls_free(bulk);
    ls_free(mine);
    return st;
}

void ls_pairs_release(struct ls_pairs *p)
{
    ls_free(p->list);
    ls_free(p->skews);
    *p = (struct ls_pairs){0};
}

/* --- findings ---------------------------------------------------------------------------------------------- */

static bool is_between(const struct ls_processes *processes, const struct ls_pair *pair)
{
    return processes->all[pair->a].node != processes->all[pair->b].node;
}

static void check_kind(struct ls_findings *f, const struct ls_processes *processes, const struct ls_pairs *p,
                       bool between)
{
    const struct ls_pair *slowest = NULL;
    double *bandwidth = ls_alloc((size_t)p->n + 1, sizeof *bandwidth);
    struct ls_stats stats;
    int n = 0;
    for (int i = 0; bandwidth && i < p->n; i++)
        if (is_between(processes, &p->list[i]) == between) {
            slowest = slowest ? slowest : &p->list[i];
            bandwidth[n++] = p->list[i].bandwidth;
        }
    bool known = n > 0 && ls_stats_of(bandwidth, n, &stats) == LS_OK;
    ls_free(bandwidth);
    if (!known)
        return;
    const char *topic = between ? "network" : "memory path";
    bool lame = n > 2 && slowest->bandwidth < 0.5 * stats.median, thin = between && stats.median < 0.5e9;
    ls_find(f, lame || thin ? LS_HEALTH_WARNING : LS_HEALTH_OK, topic, "",
            "%.3g GB/s is usual; the slowest pair is ranks %d (%s) and %d (%s) with %.3g GB/s and %.3g us",
            1e-9 * stats.median, slowest->a, processes->all[slowest->a].host, slowest->b,
            processes->all[slowest->b].host, 1e-9 * slowest->bandwidth, 1e6 * slowest->latency);
    if (lame)
        ls_advise(f, between ? "Look at cable, switch port and link speed (ethtool) of these two hosts."
                             : "See whether these ranks share cores, or lie on different sockets.");
    else if (thin)
        ls_advise(f, "Gradients will take longer than computing: try --compress, or a faster network (UCX_NET_DEVICES, "
                     "OMPI_MCA_btl_tcp_if_include).");
}

static void check_clocks(struct ls_findings *f, const struct ls_processes *processes, const struct ls_pairs *p)
{
    int off = 0;
    double most = 0;
    for (int i = 0; i < p->n_skews; i++) {
        const struct ls_skew *s = &p->skews[i];
        double sure = fabs(s->offset) - s->error;
        most = fmax(most, fabs(s->offset));
        if (sure < 0.1)
            continue;
        off++;
        ls_find(f, LS_HEALTH_WARNING, "clock", processes->all[s->rank].host, "%.3f s %s of that of rank 0",
                fabs(s->offset), s->offset > 0 ? "ahead" : "behind");
        ls_advise(f, "Let chrony or ntpd set it: times in logs of different hosts do not fit together.");
    }
    if (p->n_skews > 0 && off == 0)
        ls_find(f, LS_HEALTH_OK, "clock", "", "hosts agree to within %.3g ms", 1000 * most);
}

void ls_check_pairs(struct ls_findings *f, const struct ls_processes *processes, const struct ls_pairs *p)
{
    check_kind(f, processes, p, false);
    check_kind(f, processes, p, true);
    check_clocks(f, processes, p);
}

/* --- output ------------------------------------------------------------------------------------------------------- */

enum ls_status ls_pairs_print(const struct ls_processes *processes, const struct ls_pairs *p, FILE *out)
{
    static const char *const headings[] = {"ranks", "hosts", "8 B, us", "4 MiB, GB/s"};
    struct ls_table t;
    ls_table_init(&t, "llrr", headings);
    for (int i = 0; i < p->n && i < SHOWN; i++) {
        const struct ls_pair *x = &p->list[i];
        ls_table_row(&t);
        ls_table_cell(&t, "%d - %d", x->a, x->b);
        if (is_between(processes, x))
            ls_table_cell(&t, "%s - %s", processes->all[x->a].host, processes->all[x->b].host);
        else
            ls_table_cell(&t, "%s", processes->all[x->a].host);
        ls_table_cell(&t, "%.1f", 1e6 * x->latency);
        ls_table_cell(&t, "%.3f", 1e-9 * x->bandwidth);
    }
    enum ls_status st = ls_table_print(&t, out);
    ls_table_release(&t);
    if (p->n > SHOWN || p->n < p->possible)
        fprintf(out, "the slowest of %d measured pairs, of %d there are\n", p->n, p->possible);
    return st;
}

json_t *ls_pairs_json(const struct ls_pairs *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->n; i++)
        json_array_append_new(list, json_pack("{s:[i,i], s:f, s:f}", "ranks", p->list[i].a, p->list[i].b, "latency_us",
                                              1e6 * p->list[i].latency, "bandwidth_gbs", 1e-9 * p->list[i].bandwidth));
    return list;
}

json_t *ls_skews_json(const struct ls_processes *processes, const struct ls_pairs *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->n_skews; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f}", "host", processes->all[p->skews[i].rank].host, "offset_ms",
                                        1000 * p->skews[i].offset, "error_ms", 1000 * p->skews[i].error));
    return list;
}
