/* Times and checks sums over all processes; prints the table of nccl-tests. */
#include "base/system/clock.h"
#include "cmd/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "cmd/world.h"
#include "report/formats/table.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST ((size_t)1 << 10)
#define SECONDS 0.1 /* measuring time per size */
enum { GROWTH = 4, MOST_SIZES = 16, WARM = 3, LEAST_TIMES = 5, MOST_TIMES = 10000, BLOCK = 4096 };

struct size {
    size_t bytes;
    int times;
    double seconds; /* of one sum; the mean over ranks, as in nccl-tests */
    double algbw, busbw;
    int64_t wrong; /* wrong values, over all ranks */
    enum ls_collective way;
};

struct sums {
    const struct ls_options *o;
    struct ls_comm *comm;
    float *data; /* in the region of the group */
    size_t largest;
    struct size sizes[MOST_SIZES];
    int n;
};

bool ls_bench_collective_wanted(const struct ls_options *o)
{
    static const char name[] = "--collective";
    size_t n = sizeof name - 1;
    if (strcmp(o->collective, "nccl") == 0)
        return false;
    for (int i = 2; i < o->n_command_line && strcmp(o->command_line[i], "--") != 0; i++)
        if (strncmp(o->command_line[i], name, n) == 0 && (!o->command_line[i][n] || o->command_line[i][n] == '='))
            return true;
    return false;
}

/* --- checking ----------------------------------------------------------------------------------------- */

/* A pseudo-random value in [-1, 1), equal on every rank. */
static float value_of(uint32_t rank, size_t at)
{
    uint32_t x = (uint32_t)at * 2654435761u + rank * 2246822519u + 374761393u;
    x = (x ^ x >> 15) * 3266489917u;
    x ^= x >> 13;
    return (float)((int32_t)x >> 8) * 0x1p-23f;
}

static void fill(const struct sums *s, size_t count)
{
    uint32_t rank = (uint32_t)ls_comm_rank(s->comm);
    for (size_t i = 0; i < count; i++)
        s->data[i] = value_of(rank, i);
}

/* Computes the sum of count values from `at` on in one process, in the order of the tree; the result is in the first block
 * of `room`. */
static void sum_serially(const struct ls_tree *tree, size_t at, size_t count, float *room)
{
    for (int p = 0; p < tree->n_parts; p++)
        for (size_t i = 0; i < count; i++)
            room[(size_t)p * BLOCK + i] = value_of((uint32_t)tree->parts[p].rank, at + i);
    for (int k = 0; k < tree->n_sums; k++) {
        float *to = room + (size_t)tree->sums[k].to * BLOCK, *from = room + (size_t)tree->sums[k].from * BLOCK;
        for (size_t i = 0; i < count; i++)
            to[i] += from[i];
    }
}

/* Compares bits if the order of additions is fixed, else with the error bound of another order. */
static enum ls_status count_wrong(const struct sums *s, size_t count, bool exact, int64_t *wrong)
{
    const struct ls_tree *tree = ls_comm_tree(s->comm);
    float *room = ls_alloc((size_t)tree->n_parts * BLOCK, sizeof *room);
    float slack = (float)tree->n_parts * (float)tree->n_parts * 0x1p-23f;
    if (!room)
        return LS_FAILED;
    *wrong = 0;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        sum_serially(tree, at, n, room);
        if (exact && memcmp(room, s->data + at, n * sizeof *room) == 0)
            continue;
        for (size_t i = 0; i < n; i++) /* counts NaN as wrong */
            *wrong += exact ? memcmp(&room[i], &s->data[at + i], sizeof *room) != 0
                            : !(fabsf(room[i] - s->data[at + i]) <= slack);
    }
    ls_free(room);
    return LS_OK;
}

static enum ls_status add_over_ranks(struct ls_comm *comm, double mine, double *sum)
{
    int size = ls_comm_size(comm);
    double *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    *sum = 0;
    for (int r = 0; st == LS_OK && r < size; r++)
        *sum += all[r];
    ls_free(all);
    return st;
}

/* --- measuring ---------------------------------------------------------------------------------------- */

static enum ls_status sum_up(const struct sums *s, size_t bytes, int times)
{
    for (int i = 0; i < times; i++) {
        struct ls_work w = {.kind = LS_WORK_ALLREDUCE, .data = s->data, .bytes = bytes, .bucket = -1};
        LS_TRY(ls_comm_do(s->comm, &w));
    }
    return LS_OK;
}

/* Returns the number of repetitions for SECONDS; rank 0 decides. */
static enum ls_status choose_times(struct sums *s, struct size *z)
{
    double start = ls_now();
    LS_TRY(sum_up(s, z->bytes, WARM));
    double each = (ls_now() - start) / WARM;
    z->times = each * LEAST_TIMES > SECONDS  ? LEAST_TIMES
               : each * MOST_TIMES < SECONDS ? MOST_TIMES
                                             : (int)(SECONDS / each);
    return ls_comm_broadcast(s->comm, 0, &z->times, sizeof z->times);
}

/* Times sums of zeros, so that values do not overflow; then checks one sum of random values. */
static enum ls_status measure(struct sums *s, struct size *z)
{
    int n = ls_comm_size(s->comm);
    size_t count = z->bytes / sizeof(float);
    double wrong;
    int64_t mine;
    z->way = ls_comm_choice(s->comm, z->bytes);
    memset(s->data, 0, z->bytes);
    LS_TRY(choose_times(s, z));
    LS_TRY(ls_comm_barrier(s->comm));
    double start = ls_now();
    LS_TRY(sum_up(s, z->bytes, z->times));
    LS_TRY(add_over_ranks(s->comm, (ls_now() - start) / z->times / n, &z->seconds));
    z->algbw = 1e-9 * (double)z->bytes / z->seconds;
    z->busbw = z->algbw * 2 * (n - 1) / n;

    fill(s, count);
    LS_TRY(sum_up(s, z->bytes, 1));
    LS_TRY(count_wrong(s, count, ls_comm_exact(s->comm, z->way), &mine));
    LS_TRY(add_over_ranks(s->comm, (double)mine, &wrong));
    z->wrong = (int64_t)wrong;
    return LS_OK;
}

/* --- output ------------------------------------------------------------------------------------------- */

static int count_hosts(const struct ls_comm *comm)
{
    int nodes = 0;
    for (int r = 0; r < ls_comm_size(comm); r++)
        nodes = ls_comm_node(comm, r) >= nodes ? ls_comm_node(comm, r) + 1 : nodes;
    return nodes;
}

static enum ls_status print_table(const struct sums *s)
{
    static const char *const headings[] = {"size", "count", "type",  "redop", "algorithm",
                                           "time", "algbw", "busbw", "#wrong"};
    static const char *const units[] = {"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""};
    int hosts = count_hosts(s->comm);
    double busbw = 0;
    struct ls_table t;
    printf("# %d ranks on %d host%s, transport %s, collective %s, in place, values of float\n", ls_comm_size(s->comm),
           hosts, hosts == 1 ? "" : "s", ls_comm_transport(s->comm), s->o->collective);
    ls_table_init(&t, "rrllrrrrr", headings);
    ls_table_row(&t);
    for (int i = 0; i < 9; i++)
        ls_table_cell(&t, "%s", units[i]);
    for (int i = 0; i < s->n; i++) {
        const struct size *z = &s->sizes[i];
        ls_table_row(&t);
        ls_table_cell(&t, "%zu", z->bytes);
        ls_table_cell(&t, "%zu", z->bytes / sizeof(float));
        ls_table_cell(&t, "float");
        ls_table_cell(&t, "sum");
        ls_table_cell(&t, "%s", ls_collective_name(z->way));
        ls_table_cell(&t, "%.1f", 1e6 * z->seconds);
        ls_table_cell(&t, "%.2f", z->algbw);
        ls_table_cell(&t, "%.2f", z->busbw);
        ls_table_cell(&t, "%lld", (long long)z->wrong);
        busbw += z->busbw / s->n;
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    printf("# Avg bus bandwidth: %.3f GB/s\n", busbw);
    return st;
}

static enum ls_status print_json(const struct sums *s)
{
    json_t *sizes = json_array(), *hosts = json_array();
    for (int r = 0; r < ls_comm_size(s->comm); r++)
        json_array_append_new(hosts, json_string(ls_comm_host(s->comm, r)));
    for (int i = 0; i < s->n; i++) {
        const struct size *z = &s->sizes[i];
        json_array_append_new(sizes, json_pack("{s:I, s:I, s:s, s:s, s:s, s:b, s:i, s:f, s:f, s:f, s:I}", "size",
                                               (json_int_t)z->bytes, "count", (json_int_t)(z->bytes / sizeof(float)),
                                               "type", "float", "redop", "sum", "algorithm", ls_collective_name(z->way),
                                               "exact", ls_comm_exact(s->comm, z->way), "iterations", z->times,
                                               "time_us", 1e6 * z->seconds, "algbw", z->algbw, "busbw", z->busbw,
                                               "wrong", (json_int_t)z->wrong));
    }
    json_t *out = json_pack("{s:s, s:i, s:o, s:i, s:s, s:s, s:o}", "kind", "collective", "ranks", ls_comm_size(s->comm),
                            "hosts", hosts, "nodes", count_hosts(s->comm), "transport", ls_comm_transport(s->comm),
                            "collective", s->o->collective, "sizes", sizes);
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

static enum ls_status run(struct sums *s)
{
    void *memory;
    int64_t wrong = 0;
    LS_TRY(ls_comm_region(s->comm, s->largest, &memory));
    s->data = memory;
    for (size_t bytes = LEAST; bytes <= s->largest && s->n < MOST_SIZES; bytes *= GROWTH) {
        struct size *z = &s->sizes[s->n++];
        z->bytes = bytes;
        LS_TRY(measure(s, z));
        wrong += z->wrong;
    }
    if (ls_comm_rank(s->comm) == 0)
        LS_TRY(s->o->json ? print_json(s) : print_table(s));
    if (wrong == 0)
        return LS_OK;
    return ls_fail(LS_FAILED, "%lld values of these sums are wrong; please report this with the table",
                   (long long)wrong);
}

enum ls_status ls_bench_collective(struct ls_options *o)
{
    struct ls_world world;
    struct sums s = {.o = o, .largest = (size_t)o->largest_mb << 20};
    if (ls_options_given(o, "replicas"))
        return ls_fail(LS_USAGE, "--collective measures one part a process, whatever --replicas says; leave it out");
    LS_TRY(ls_world_open_for(&world, o, s.largest));
    s.comm = world.comm;
    enum ls_status st = s.comm && ls_comm_size(s.comm) > 1
                            ? run(&s)
                            : ls_fail(LS_USAGE, "--collective measures sums over processes, but there is one; start "
                                                "several, with --workers 2 or mpirun");
    ls_world_close(&world, st);
    return st;
}
