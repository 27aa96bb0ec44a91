#include "train/ranks/rank_check.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/rank_reduce.h"
#include "base/files/checksum.h"
#include "train/ranks/fingerprint.h"
#include "checkpoint/rundir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- options ------------------------------------------------------------------------------------------ */

/* Finds the first line in which two texts differ, without its newline. A line is "" where its text has ended. */
static void first_difference(const char *a, const char *b, char line_a[128], char line_b[128])
{
    for (;;) {
        size_t n_a = strcspn(a, "\n"), n_b = strcspn(b, "\n");
        snprintf(line_a, 128, "%.*s", (int)n_a, a);
        snprintf(line_b, 128, "%.*s", (int)n_b, b);
        if (n_a != n_b || memcmp(a, b, n_a) != 0 || !*a || !*b)
            return;
        a += n_a + (a[n_a] == '\n');
        b += n_b + (b[n_b] == '\n');
    }
}

enum ls_status ls_rank_check_options(struct ls_comm *comm, const struct ls_options *o)
{
    enum { ROOM = 8192 }; /* about forty short lines */
    char *text = NULL, mine[ROOM] = "", line[128], other[128];
    if (!comm || ls_comm_size(comm) == 1)
        return LS_OK;
    LS_TRY(ls_rundir_common_options(o, &text));
    snprintf(mine, ROOM, "%s", text);
    free(text);
    char *all = ls_alloc((size_t)ls_comm_size(comm), ROOM);
    enum ls_status st = all ? ls_comm_allgather(comm, mine, ROOM, all) : LS_FAILED;
    for (int rank = 1; st == LS_OK && rank < ls_comm_size(comm); rank++)
        if (strcmp(all, all + (size_t)rank * ROOM) != 0) {
            first_difference(all, all + (size_t)rank * ROOM, line, other);
            st = ls_fail(LS_USAGE,
                         "rank %d (%s) was started with '%s', rank 0 with '%s'; start all with the same command", rank,
                         ls_comm_host(comm, rank), other, line);
        }
    ls_free(all);
    return st;
}

/* --- data ---------------------------------------------------------------------------------------------- */

/* Reports how the data of this process differs from that of rank 0. */
static enum ls_status compare_data(const char *first, const char *mine)
{
    static const char *const parts[] = {"train", "test"}, *const names[] = {"training", "test"};
    char what[512];
    for (int i = 0; i < 2; i++) {
        ls_fingerprint_compare(first, mine, parts[i], "at rank 0", "here", what, sizeof what);
        if (*what)
            return ls_fail(LS_BAD_INPUT, "its %s data is not that of rank 0: %s; give all ranks the same", names[i],
                           what);
    }
    return LS_OK;
}

enum ls_status ls_rank_check_data(struct ls_comm *comm, const char *fingerprint)
{
    if (!comm || ls_comm_size(comm) == 1)
        return LS_OK;
    bool root = ls_comm_rank(comm) == 0;
    uint64_t bytes = strlen(fingerprint) + 1;
    LS_TRY(ls_comm_broadcast(comm, 0, &bytes, sizeof bytes));
    char *first = ls_alloc(bytes, 1);
    enum ls_status st = first ? LS_OK : LS_FAILED;
    if (st == LS_OK && root)
        memcpy(first, fingerprint, bytes);
    if (st == LS_OK)
        st = ls_comm_broadcast(comm, 0, first, bytes);
    if (st == LS_OK && !root && strcmp(first, fingerprint) != 0) {
        bool muted = ls_log_mute(true);
        st = compare_data(first, fingerprint);
        ls_log_mute(muted);
    }
    ls_free(first);
    return st == LS_PEER_LOST ? st : ls_rank_reduce_status(comm, st);
}

/* --- kernels ------------------------------------------------------------------------------------------- */

/* Finds a rank whose value the fewest ranks have, or -1 when all are equal. */
static enum ls_status find_odd(struct ls_comm *comm, uint64_t mine, int *odd)
{
    int size = ls_comm_size(comm);
    uint64_t *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    int fewest = size;
    *odd = -1;
    for (int rank = size - 1; st == LS_OK && rank >= 0; rank--) {
        int like = 0;
        for (int k = 0; k < size; k++)
            like += all[k] == all[rank];
        if (like < fewest) {
            fewest = like;
            *odd = rank;
        }
    }
    ls_free(all);
    return st;
}

enum ls_status ls_rank_check_schedule(const struct ls_engine *e)
{
    const struct ls_graph *g = &e->train.graph;
    struct ls_checksum sum;
    char kernel[256];
    int odd;
    if (!e->comm || e->parts) /* parts have graphs of their own */
        return LS_OK;
    ls_checksum_init(&sum);
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        ls_checksum_add(&sum, node->op->name, strlen(node->op->name) + 1);
        ls_checksum_add(&sum, node->name, strlen(node->name) + 1);
        ls_checksum_add(&sum, node->in, sizeof node->in);
        ls_checksum_add(&sum, node->out, sizeof node->out);
        e->backend->describe(e->train.program, n, kernel, sizeof kernel);
        ls_checksum_add(&sum, kernel, strlen(kernel));
    }
    for (int t = 0; t < g->n_tensors; t++) {
        size_t bytes = 0;
        if (g->tensors[t].role == LS_ROLE_GRAD || g->tensors[t].role == LS_ROLE_PARAM)
            e->backend->memory(e->train.program, t, &bytes);
        ls_checksum_add(&sum, &bytes, sizeof bytes);
    }
    for (int b = 0; b < e->n_buckets; b++) {
        ls_checksum_add(&sum, &e->buckets[b].first, sizeof e->buckets[b].first);
        ls_checksum_add(&sum, &e->buckets[b].count, sizeof e->buckets[b].count);
    }
    LS_TRY(find_odd(e->comm, ls_checksum_value(&sum), &odd));
    if (odd < 0)
        return LS_OK;
    return ls_fail(LS_FAILED,
                   "rank %d (%s) would compute with other kernels or layouts than the rest; do all hosts have the same "
                   "processor and the same oneDNN?",
                   odd, ls_comm_host(e->comm, odd));
}

/* --- weights ------------------------------------------------------------------------------------------- */

static const char *const part_names[LS_RANK_CHECK_PARTS] = {"the parameters", "the running statistics",
                                                            "the optimizer state"};

static bool belongs(const struct ls_graph *g, int tensor, enum ls_rank_check_part part)
{
    const enum ls_role roles[] = {[LS_RANK_CHECK_PARAMETERS] = LS_ROLE_PARAM,
                                  [LS_RANK_CHECK_STATISTICS] = LS_ROLE_STATE,
                                  [LS_RANK_CHECK_OPTIMIZER] = LS_ROLE_OPTIMIZER};
    return g->tensors[tensor].role == roles[part] && !g->tensors[tensor].apart; /* which exists once */
}

static enum ls_status add_values(const struct ls_engine *e, int tensor, struct ls_checksum *sum)
{
    size_t bytes;
    const void *memory = e->backend->memory(e->train.program, tensor, &bytes);
    if (!e->backend->queue->own_memory) {
        ls_checksum_add(sum, memory, bytes);
        return LS_OK;
    }
    size_t count = (size_t)ls_shape_count(&e->train.graph.tensors[tensor].shape);
    float *values = ls_alloc(count, sizeof *values);
    enum ls_status st = values ? e->backend->read(e->train.program, tensor, values) : LS_FAILED;
    if (st == LS_OK)
        ls_checksum_add(sum, values, count * sizeof *values);
    ls_free(values);
    return st;
}

static enum ls_status sum_part(const struct ls_engine *e, enum ls_rank_check_part part, uint64_t *value)
{
    const struct ls_graph *g = &e->train.graph;
    const struct ls_backend_queue *queue = e->backend->queue;
    struct ls_checksum sum;
    if (queue->checksum && !e->params && part != LS_RANK_CHECK_STATISTICS)
        return queue->checksum(e->train.program, part == LS_RANK_CHECK_OPTIMIZER, value);
    ls_checksum_init(&sum);
    for (int t = 0; t < g->n_tensors; t++)
        if (belongs(g, t, part))
            LS_TRY(add_values(e, t, &sum));
    *value = ls_checksum_value(&sum);
    return LS_OK;
}

/* Values of some ranks, which should be equal. */
struct values {
    const uint64_t *all; /* of rank r: all[r * stride] */
    int stride, n;
    const int *ranks;
};

static uint64_t value_at(const struct values *v, int i)
{
    return v->all[v->ranks[i] * v->stride];
}

/* Returns an index of a value that more than half of the ranks have, or -1. */
static int index_of_most(const struct values *v)
{
    for (int i = 0; i < v->n; i++) {
        int like = 0;
        for (int k = 0; k < v->n; k++)
            like += value_at(v, k) == value_at(v, i);
        if (2 * like > v->n)
            return i;
    }
    return -1;
}

/* Lists the ranks whose value differs from number `most`, or all ranks for -1: "rank 1 (host), rank 3 (host)". */
static void list_odd(struct ls_comm *comm, const struct values *v, int most, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < v->n && used < room; i++)
        if (most < 0 || value_at(v, i) != value_at(v, most))
            used += (size_t)snprintf(text + used, room - used, "%srank %d (%s)", used ? ", " : "", v->ranks[i],
                                     ls_comm_host(comm, v->ranks[i]));
}

/* Compares one part among the ranks. The message names the ranks that differ from the majority, if there is one. */
static enum ls_status compare_part(struct ls_comm *comm, const struct values *v, const char *name, uint64_t step)
{
    int most = index_of_most(v), like = 0;
    char odd[512];
    for (int i = 0; i < v->n; i++)
        like += value_at(v, i) == value_at(v, 0);
    if (like == v->n)
        return LS_OK;
    list_odd(comm, v, most, odd, sizeof odd);
    if (most >= 0)
        return ls_fail(LS_FAILED,
                       "step %" PRIu64 ": %s of %s are not those of the others: a bit was flipped in memory or on its "
                       "way; go on from the last checkpoint, without that host",
                       step, name, odd);
    return ls_fail(LS_FAILED,
                   "step %" PRIu64
                   ": %s differ between %s: a bit was flipped in memory or on its way, and it cannot be "
                   "told at which of them, because no value is held by more than half; go on from the last checkpoint, "
                   "with three or more processes to find out",
                   step, name, odd);
}

/* Compares one part among the ranks that hold it: all, or those of each stage of a pipeline, or those with the same rows. */
static enum ls_status compare_holders(const struct ls_engine *e, const uint64_t *all, const char *name, uint64_t step)
{
    int size = ls_comm_size(e->comm), groups = e->mesh.axes[LS_PARALLEL_DATA].size;
    int stages = groups > 0 ? size / groups : 1;
    int *ranks = ls_alloc((size_t)size, sizeof *ranks);
    enum ls_status st = ranks ? LS_OK : LS_FAILED;
    for (int stage = 0; stage < stages && st == LS_OK; stage++) {
        struct values v = {.all = all, .stride = LS_RANK_CHECK_PARTS, .ranks = ranks};
        for (int rank = stage; rank < size; rank += stages)
            ranks[v.n++] = rank;
        st = compare_part(e->comm, &v, name, step);
    }
    ls_free(ranks);
    return st;
}

enum ls_status ls_rank_check_values(const struct ls_engine *e, uint64_t step, int parts)
{
    uint64_t mine[LS_RANK_CHECK_PARTS] = {0}, *all;
    if (!e->comm || ls_comm_size(e->comm) == 1)
        return LS_OK;
    for (int part = 0; part < parts; part++)
        LS_TRY(sum_part(e, (enum ls_rank_check_part)part, &mine[part]));
    all = ls_alloc((size_t)ls_comm_size(e->comm), sizeof mine);
    enum ls_status st = all ? ls_comm_allgather(e->comm, mine, sizeof mine, all) : LS_FAILED;
    for (int part = 0; part < parts && st == LS_OK; part++)
        st = compare_holders(e, all + part, part_names[part], step);
    ls_free(all);
    return st;
}
