/* What processes do together gives the bits that one process would get (comm.h, COMM-1), whatever their number, where their
 * buffers lie and which way the values go. */
#include "comm_ranks.h"

static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 5000, 1000000};
enum { SIZES = sizeof sizes / sizeof *sizes, MOST_REPLICAS = 13 };

/* Value i of replica v: of many magnitudes, so that the order of additions shows. */
static float value(int v, size_t i, int salt)
{
    uint64_t h = ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ ((uint64_t)v + 1) * UINT64_C(0xC2B2AE3D27D4EB4F) ^
                 ((uint64_t)salt + 1) * UINT64_C(0x165667B19E3779F9);
    h = (h ^ (h >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    float mantissa = (float)(int32_t)(h >> 32), scale = 1.0f / (float)(1 << (h & 15));
    return mantissa * scale;
}

/* T(v, s) of the tree, over values. */
static float tree_value(int v, int s, int replicas, size_t i, int salt)
{
    if (s >= replicas)
        return value(v, i, salt);
    float left = tree_value(v, 2 * s, replicas, i, salt);
    return v + s >= replicas ? left : left + tree_value(v + s, 2 * s, replicas, i, salt);
}

struct buffers {
    int n; /* parts of this rank */
    float *parts[MOST_REPLICAS], *data;
};

/* Parts filled with this rank's subtrees; data is the first part, or lies apart and holds something else. */
static void fill(struct ls_comm *c, struct buffers *b, size_t count, int salt)
{
    const struct ls_tree *t = ls_comm_tree(c);
    int first;
    b->n = ls_tree_parts(t, ls_comm_rank(c), &first);
    for (size_t i = 0; i < count; i++)
        b->data[i] = -1;
    for (int p = 0; p < b->n; p++)
        for (size_t i = 0; i < count; i++)
            b->parts[p][i] = tree_value(t->parts[first + p].v, t->parts[first + p].s, t->replicas, i, salt);
}

static void place(struct buffers *b, float *memory, size_t count, bool apart)
{
    size_t room = (count + 31) / 16 * 16;
    for (int p = 0; p < MOST_REPLICAS; p++)
        b->parts[p] = memory + (size_t)p * room;
    b->data = apart ? memory + MOST_REPLICAS * room : b->parts[0];
}

static void expect_sum(const struct ls_comm *c, const float *found, size_t from, size_t to, int salt)
{
    int replicas = ls_comm_tree(c)->replicas;
    for (size_t i = from; i < to; i++) {
        float expected = tree_value(0, 1, replicas, i, salt);
        NEED(memcmp(&found[i], &expected, sizeof expected) == 0);
    }
}

static struct ls_work sum_of(enum ls_work_kind kind, struct buffers *b, size_t count, int root)
{
    return (struct ls_work){.kind = kind,
                            .peer = root,
                            .data = b->data,
                            .bytes = count * sizeof(float),
                            .parts = b->n == 1 && b->data == b->parts[0] ? NULL : b->parts,
                            .step = 1};
}

static void check_sums(struct ls_comm *c, struct buffers *b, size_t count)
{
    int me = ls_comm_rank(c), root = ls_comm_size(c) - 1;
    size_t first, last;
    fill(c, b, count, 1);
    struct ls_work w = sum_of(LS_WORK_ALLREDUCE, b, count, 0);
    NEED(ls_comm_do(c, &w) == LS_OK);
    expect_sum(c, b->data, 0, count, 1);
    NEED(w.begun >= w.posted && w.done >= w.begun);

    fill(c, b, count, 2);
    w = sum_of(LS_WORK_REDUCE, b, count, root);
    NEED(ls_comm_do(c, &w) == LS_OK);
    if (me == root)
        expect_sum(c, b->data, 0, count, 2);

    fill(c, b, count, 3);
    w = sum_of(LS_WORK_SCATTER, b, count, 0);
    NEED(ls_comm_do(c, &w) == LS_OK);
    ls_comm_range(c, count, me, &first, &last);
    NEED((first % 16 == 0 || first == count) && first <= last && last <= count);
    expect_sum(c, b->data, first, last, 3);

    for (size_t i = first; i < last; i++)
        b->data[i] *= 2;
    w = (struct ls_work){.kind = LS_WORK_COLLECT, .data = b->data, .bytes = count * sizeof(float)};
    NEED(ls_comm_do(c, &w) == LS_OK);
    for (size_t i = 0; i < count; i++)
        b->data[i] /= 2;
    expect_sum(c, b->data, 0, count, 3);
}

static void check_moves(struct ls_comm *c, unsigned char *memory, size_t bytes)
{
    int me = ls_comm_rank(c), n = ls_comm_size(c), root = n / 2;
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (unsigned char)(me == root ? i * 7 + 3 : 0);
    NEED(ls_comm_broadcast(c, root, memory, bytes) == LS_OK);
    for (size_t i = 0; i < bytes; i++)
        NEED(memory[i] == (unsigned char)(i * 7 + 3));
    memset(memory, 0, bytes * (size_t)n);
    for (size_t i = 0; i < bytes; i++)
        memory[(size_t)me * bytes + i] = (unsigned char)(i * 5 + (size_t)me);
    NEED(ls_comm_allgather(c, memory + (size_t)me * bytes, bytes, memory) == LS_OK);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < bytes; i++)
            NEED(memory[(size_t)r * bytes + i] == (unsigned char)(i * 5 + (size_t)r));
}

/* argument: the largest count */
static void all_collectives(struct ls_comm *c, const struct ranks *r)
{
    size_t most = *(const size_t *)r->argument, room = (MOST_REPLICAS + 1) * (most + 32) * sizeof(float);
    void *shared, *own = ls_alloc(room, 1);
    struct buffers b;
    NEED(own != NULL);
    NEED(ls_comm_region(c, room, &shared) == LS_OK);
    for (int way = 0; way < 4; way++) /* in a region or not; data apart or not */
        for (int s = 0; s < SIZES && sizes[s] <= (way & 2 ? 5000 : most); s++) {
            place(&b, way & 1 ? shared : own, sizes[s], way & 2);
            check_sums(c, &b, sizes[s]);
        }
    for (int s = 0; s < SIZES && sizes[s] <= most; s++) {
        check_moves(c, own, sizes[s]);
        check_moves(c, shared, sizes[s]);
        NEED(ls_comm_barrier(c) == LS_OK);
    }
    ls_free(own);
    ls_comm_close(c, LS_OK);
}

static void sums_are_the_trees(void **state)
{
    static const struct {
        int size, replicas;
        size_t most;
    } cases[] = {{1, 1, 5000}, {1, 3, 5000},    {2, 2, 1000000}, {2, 8, 5000}, {2, 7, 5000},  {3, 3, 5000},
                 {3, 7, 5000}, {4, 4, 1000000}, {4, 13, 5000},   {5, 5, 5000}, {5, 12, 5000}, {8, 0, 5000}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks((struct ranks){.size = cases[i].size,
                                 .replicas = cases[i].replicas,
                                 .argument = &cases[i].most,
                                 .loud = true,
                                 .max_bytes = 4000000},
                  all_collectives);
    no_leftovers();
}

/* Regions of different sizes, and buffers of which only some ranks' lie in one. */
static void sum_from_anywhere(struct ls_comm *c, const struct ranks *r)
{
    int me = ls_comm_rank(c);
    size_t most = 40000, room = (MOST_REPLICAS + 1) * (most + 32) * sizeof(float) + (size_t)me * 100000;
    void *shared, *own = ls_alloc(room, 1);
    struct buffers b;
    (void)r;
    NEED(own != NULL);
    NEED(ls_comm_region(c, room, &shared) == LS_OK);
    for (int round = 0; round < 3; round++)
        for (size_t count = 100; count <= most; count *= 20) {
            place(&b, (me + round) % 3 ? shared : own, count, round == 2);
            check_sums(c, &b, count);
        }
    ls_free(own);
    ls_comm_close(c, LS_OK);
}

static void buffers_may_lie_anywhere(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 2, .loud = true}, sum_from_anywhere);
    run_ranks((struct ranks){.size = 4, .replicas = 7, .loud = true}, sum_from_anywhere);
}

/* Over messages between nodes, by each way that keeps the bits. */
static void nodes_change_nothing(void **state)
{
    static const struct {
        int size, replicas, per_node;
        enum ls_collective way;
    } cases[] = {
        {2, 2, 1, LS_COLLECTIVE_TREE}, {3, 3, 1, LS_COLLECTIVE_AUTO},  {3, 7, 2, LS_COLLECTIVE_TREE},
        {4, 4, 1, LS_COLLECTIVE_TREE}, {4, 4, 2, LS_COLLECTIVE_TREE},  {4, 4, 2, LS_COLLECTIVE_HIER},
        {4, 8, 2, LS_COLLECTIVE_AUTO}, {5, 12, 2, LS_COLLECTIVE_AUTO}, {8, 8, 2, LS_COLLECTIVE_HIER},
        {8, 8, 4, LS_COLLECTIVE_HIER}, {6, 6, 2, LS_COLLECTIVE_TREE},
    };
    static const size_t most = 5000;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks((struct ranks){.size = cases[i].size,
                                 .replicas = cases[i].replicas,
                                 .per_node = cases[i].per_node,
                                 .collective = cases[i].way,
                                 .argument = &most,
                                 .loud = true,
                                 .max_bytes = 1 << 20},
                  all_collectives);
    no_leftovers();
}

static void long_sums(struct ls_comm *c, const struct ranks *r)
{
    size_t count = 700001;
    struct buffers b;
    float *memory = ls_alloc((MOST_REPLICAS + 1) * (count + 32), sizeof(float));
    (void)r;
    NEED(memory != NULL);
    place(&b, memory, count, false);
    fill(c, &b, count, 4);
    struct ls_work w = sum_of(LS_WORK_ALLREDUCE, &b, count, 0);
    NEED(ls_comm_do(c, &w) == LS_OK);
    expect_sum(c, b.data, 0, count, 4);
    ls_free(memory);
    ls_comm_close(c, LS_OK);
}

static void long_sums_between_nodes(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 2, .per_node = 1, .loud = true}, long_sums);
    run_ranks((struct ranks){.size = 4, .per_node = 2, .collective = LS_COLLECTIVE_HIER, .loud = true}, long_sums);
    run_ranks((struct ranks){.size = 3, .per_node = 1, .loud = true}, long_sums);
}

/* The ring, and nodes that own no subtree, give another order: near, and the same everywhere. */
static void near_sums(struct ls_comm *c, const struct ranks *r)
{
    enum { COUNT = 3001 };
    static float memory[(MOST_REPLICAS + 1) * (COUNT + 32)], all[MOST_RANKS][COUNT];
    struct buffers b;
    NEED(!ls_comm_exact(c, r->collective));
    place(&b, memory, COUNT, true);
    fill(c, &b, COUNT, 5);
    struct ls_work w = sum_of(LS_WORK_ALLREDUCE, &b, COUNT, 0);
    NEED(ls_comm_do(c, &w) == LS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        double expected = 0, size = 0;
        for (int v = 0; v < r->replicas; v++) {
            expected += value(v, i, 5);
            size += value(v, i, 5) < 0 ? -value(v, i, 5) : value(v, i, 5);
        }
        NEED(b.data[i] - expected <= 1e-6 * size && expected - b.data[i] <= 1e-6 * size);
    }
    NEED(ls_comm_allgather(c, b.data, sizeof all[0], all) == LS_OK);
    for (int q = 0; q < r->size; q++)
        NEED(memcmp(all[q], all[0], sizeof all[0]) == 0);
    ls_comm_close(c, LS_OK);
}

static void other_orders_are_near(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 4, .replicas = 4, .collective = LS_COLLECTIVE_RING, .loud = true}, near_sums);
    run_ranks((struct ranks){.size = 3, .replicas = 7, .collective = LS_COLLECTIVE_RING, .per_node = 1, .loud = true},
              near_sums);
    run_ranks((struct ranks){.size = 6, .replicas = 7, .collective = LS_COLLECTIVE_HIER, .per_node = 2}, near_sums);
}

/* --- codecs -------------------------------------------------------------------------------------------------------------- */

/* Keeps the upper half of a float, and a block's count in front so that a wrong cut shows. */
static size_t half_bytes(size_t count)
{
    return 4 + (count + 1) / 2 * 4;
}

static void half_encode(const float *values, float *feedback, size_t count, void *wire)
{
    uint32_t number = (uint32_t)count;
    unsigned char *out = wire;
    memcpy(out, &number, 4);
    for (size_t i = 0; i < count; i++) {
        float kept, all = values[i] + (feedback ? feedback[i] : 0);
        uint32_t bits;
        memcpy(&bits, &all, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(out + 4 + 2 * i, &half, 2);
        bits &= 0xFFFF0000u;
        memcpy(&kept, &bits, 4);
        if (feedback)
            feedback[i] = all - kept;
    }
}

static float half_at(const void *wire, size_t i)
{
    uint16_t half;
    float f;
    memcpy(&half, (const unsigned char *)wire + 4 + 2 * i, 2);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&f, &bits, 4);
    return f;
}

static void half_decode(const void *wire, size_t count, float *values)
{
    uint32_t number;
    memcpy(&number, wire, 4);
    NEED(number == count);
    for (size_t i = 0; i < count; i++)
        values[i] = half_at(wire, i);
}

static void half_decode_add(const void *wire, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++)
        values[i] += half_at(wire, i);
}

static const struct ls_codec half = {.name = "half",
                                     .feedback = true,
                                     .bytes = half_bytes,
                                     .encode = half_encode,
                                     .decode = half_decode,
                                     .decode_add = half_decode_add};

static float through_half(float value, float *feedback)
{
    unsigned char wire[8];
    half_encode(&value, feedback, 1, wire);
    return half_at(wire, 0);
}

enum { CODED = 40000, STEPS = 3 };

/* What all ranks end up with, computed by one: parts rounded on their way to the owner, the sum on its way back. */
static void expect_coded(const struct ls_comm *c, float *feedback, int salt, float *expected)
{
    const struct ls_tree *t = ls_comm_tree(c);
    for (int owner = 0; owner < ls_comm_size(c); owner++) {
        size_t first, last;
        ls_comm_range(c, CODED, owner, &first, &last);
        for (size_t i = first; i < last; i++) {
            float part[MOST_REPLICAS];
            for (int p = 0; p < t->n_parts; p++) {
                part[p] = tree_value(t->parts[p].v, t->parts[p].s, t->replicas, i, salt);
                if (t->parts[p].rank != owner)
                    part[p] = through_half(part[p], &feedback[(size_t)p * CODED + i]);
            }
            for (int s = 0; s < t->n_sums; s++)
                part[t->sums[s].to] += part[t->sums[s].from];
            expected[i] = through_half(part[0], &feedback[(size_t)t->n_parts * CODED + i]);
        }
    }
}

static void coded_sums(struct ls_comm *c, const struct ranks *r)
{
    const struct ls_tree *t = ls_comm_tree(c);
    float *memory = ls_alloc((MOST_REPLICAS + 1) * (CODED + 32), sizeof(float));
    float *state = ls_alloc(ls_comm_feedback(c, CODED), sizeof(float));
    float *all = ls_alloc(((size_t)t->n_parts + 1) * CODED, sizeof(float)), *expected = ls_alloc(CODED, sizeof(float));
    struct buffers b;
    (void)r;
    NEED(memory && state && all && expected);
    place(&b, memory, CODED, false);
    for (int step = 0; step < STEPS; step++) {
        fill(c, &b, CODED, step);
        struct ls_work w = sum_of(LS_WORK_ALLREDUCE, &b, CODED, 0);
        w.codec = &half;
        w.codec_state = state;
        NEED(ls_comm_do(c, &w) == LS_OK);
        expect_coded(c, all, step, expected);
        NEED(memcmp(b.data, expected, CODED * sizeof(float)) == 0);
    }
    ls_free(memory);
    ls_free(state);
    ls_free(all);
    ls_free(expected);
    ls_comm_close(c, LS_OK);
}

static void coded_sums_do_not_depend_on_nodes(void **state)
{
    (void)state;
    for (int per_node = 0; per_node <= 2; per_node++) {
        run_ranks((struct ranks){.size = 2, .per_node = per_node, .loud = true}, coded_sums);
        run_ranks((struct ranks){.size = 4, .per_node = per_node, .loud = true}, coded_sums);
        run_ranks((struct ranks){.size = 3, .replicas = 7, .per_node = per_node, .loud = true}, coded_sums);
    }
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

static void exchange_messages(struct ls_comm *c, const struct ranks *r)
{
    enum { LONG = 300000, TIMES = 200 };
    int me = ls_comm_rank(c), n = ls_comm_size(c), right = (me + 1) % n, left = (me + n - 1) % n;
    unsigned char *out = ls_alloc(LONG, 1), *in = ls_alloc(LONG, 1);
    struct ls_work send[TIMES], receive[TIMES];
    uint32_t numbers[TIMES], found[TIMES];
    (void)r;
    NEED(out && in);
    memset(out, me + 1, LONG);
    /* A long one that nobody takes yet stands in no other's way; tags keep apart. */
    struct ls_work big = {.kind = LS_WORK_SEND, .peer = right, .tag = 9, .data = out, .bytes = LONG};
    ls_comm_post(c, &big);
    for (uint32_t i = 0; i < TIMES; i++) {
        numbers[i] = i * 10 + (uint32_t)me;
        send[i] = (struct ls_work){.kind = LS_WORK_SEND, .peer = right, .tag = i & 1, .data = &numbers[i], .bytes = 4};
        ls_comm_post(c, &send[i]);
    }
    for (uint32_t i = TIMES; i-- > 0;) {
        receive[i] = (struct ls_work){
            .kind = LS_WORK_RECEIVE, .peer = left, .tag = 1 - (i & 1), .data = &found[i], .bytes = sizeof found[i]};
        ls_comm_post(c, &receive[i]);
    }
    /* In the order sent under each tag: the first receive posted was number TIMES - 1, under tag 0. */
    for (uint32_t i = 0; i < TIMES; i++) {
        NEED(ls_comm_wait(c, &receive[i]) == LS_OK);
        NEED(receive[i].bytes == 4 && receive[i].peer == left);
        NEED(found[i] == (TIMES - 1 - i) * 10 + (uint32_t)left);
        NEED(ls_comm_wait(c, &send[i]) == LS_OK);
    }
    struct ls_work take = {.kind = LS_WORK_RECEIVE, .peer = LS_ANY_RANK, .tag = 9, .data = in, .bytes = LONG};
    NEED(ls_comm_do(c, &take) == LS_OK);
    NEED(take.peer == left && take.bytes == LONG && in[0] == left + 1 && in[LONG - 1] == left + 1);
    NEED(ls_comm_wait(c, &big) == LS_OK);
    /* To oneself, and nothing at all. */
    struct ls_work none = {.kind = LS_WORK_SEND, .peer = me, .tag = 3};
    struct ls_work nothing = {.kind = LS_WORK_RECEIVE, .peer = me, .tag = 3};
    ls_comm_post(c, &none);
    NEED(ls_comm_do(c, &nothing) == LS_OK && nothing.bytes == 0);
    NEED(ls_comm_wait(c, &none) == LS_OK);
    ls_free(out);
    ls_free(in);
    ls_comm_close(c, LS_OK);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        run_ranks((struct ranks){.size = n, .loud = true}, exchange_messages);
    run_ranks((struct ranks){.size = 3, .per_node = 1, .loud = true}, exchange_messages);
}

/* --- work ---------------------------------------------------------------------------------------------------------------------- */

/* Many collectives under way at once, beside messages, without an allocation (COMM-2). */
static void post_many(struct ls_comm *c, const struct ranks *r)
{
    enum { BUCKETS = 12, ROUNDS = 20 };
    static const size_t counts[BUCKETS] = {10, 5000, 100, 40000, 1, 20000, 17, 9000, 64, 30000, 8, 12000};
    int me = ls_comm_rank(c), n = ls_comm_size(c);
    struct ls_work w[BUCKETS], send, receive;
    float *data[BUCKETS];
    uint32_t out = (uint32_t)me, in;
    void *memory;
    (void)r;
    for (int b = 0; b < BUCKETS; b++) {
        if (b % 3 == 0) {
            data[b] = ls_alloc(counts[b], sizeof(float));
            continue;
        }
        NEED(ls_comm_region(c, counts[b] * sizeof(float), &memory) == LS_OK);
        data[b] = memory;
    }
    uint64_t before = ls_memory_calls();
    for (int round = 0; round < ROUNDS; round++) {
        receive = (struct ls_work){.kind = LS_WORK_RECEIVE, .peer = (me + 1) % n, .tag = 5, .data = &in, .bytes = 4};
        ls_comm_post(c, &receive);
        for (int b = 0; b < BUCKETS; b++) {
            for (size_t i = 0; i < counts[b]; i++)
                data[b][i] = value(me, i, b);
            ls_comm_position(c, (uint64_t)round, b, LS_STAGE_COMPUTE);
            w[b] = (struct ls_work){
                .kind = LS_WORK_ALLREDUCE, .data = data[b], .bytes = counts[b] * sizeof(float), .bucket = b};
            ls_comm_post(c, &w[b]);
        }
        send = (struct ls_work){.kind = LS_WORK_SEND, .peer = (me + n - 1) % n, .tag = 5, .data = &out, .bytes = 4};
        NEED(ls_comm_do(c, &send) == LS_OK);
        for (int b = BUCKETS - 1; b >= 0; b--) {
            NEED(ls_comm_wait(c, &w[b]) == LS_OK);
            expect_sum(c, data[b], 0, counts[b], b);
            NEED(w[b].last_rank >= 0 && w[b].last_rank < n && w[b].last_wait >= 0);
        }
        NEED(ls_comm_wait(c, &receive) == LS_OK && in == (uint32_t)((me + 1) % n));
    }
    NEED(ls_memory_calls() == before);
    ls_comm_close(c, LS_OK);
}

static void work_is_done_in_the_background(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 2, .loud = true}, post_many);
    run_ranks((struct ranks){.size = 4, .loud = true}, post_many);
}

static void look_around(struct ls_comm *c, const struct ranks *r)
{
    int me = ls_comm_rank(c), nodes = r->per_node ? r->size / r->per_node : 1;
    struct ls_lateness late;
    NEED(ls_comm_size(c) == r->size);
    NEED(strcmp(ls_comm_transport(c), r->size == 1 ? "self" : "shm") == 0);
    NEED(ls_comm_local_size(c) == r->size / nodes);
    for (int q = 0; q < r->size; q++) {
        NEED(ls_comm_node(c, q) == (r->per_node ? q / r->per_node : 0));
        NEED(ls_comm_local_rank(c, q) == (r->per_node ? q % r->per_node : q));
        NEED(ls_comm_host(c, q)[0] != 0);
    }
    ls_comm_position(c, 40 + (uint64_t)me, 3, LS_STAGE_UPDATE);
    NEED(ls_comm_barrier(c) == LS_OK);
    for (int q = 0; q < r->size && nodes == 1; q++) {
        struct ls_position p = ls_comm_where(c, q);
        NEED(p.step == 40 + (uint64_t)q && p.bucket == 3 && p.stage == LS_STAGE_UPDATE && p.age >= 0 && p.age < 60);
    }
    NEED(ls_comm_barrier(c) == LS_OK);
    for (int q = 0; q < r->size; q++) {
        ls_comm_lateness(c, q, &late);
        NEED(late.seconds >= 0);
    }
    struct ls_cost cost = ls_comm_cost(c, LS_COLLECTIVE_TREE), all[MOST_RANKS];
    NEED(ls_comm_allgather(c, &cost, sizeof cost, all) == LS_OK);
    for (int q = 0; q < r->size; q++)
        NEED(memcmp(&all[q], &cost, sizeof cost) == 0);
    NEED(r->size == 1 || cost.alpha + cost.beta > 0);
    NEED(ls_comm_exact(c, ls_comm_choice(c, 1 << 20)));
    ls_comm_close(c, LS_OK);
}

static void everyone_knows_where_everyone_is(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 1, .loud = true}, look_around);
    run_ranks((struct ranks){.size = 4, .loud = true}, look_around);
    run_ranks((struct ranks){.size = 4, .per_node = 2, .loud = true}, look_around);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_trees),
        cmocka_unit_test(buffers_may_lie_anywhere),
        cmocka_unit_test(nodes_change_nothing),
        cmocka_unit_test(long_sums_between_nodes),
        cmocka_unit_test(other_orders_are_near),
        cmocka_unit_test(coded_sums_do_not_depend_on_nodes),
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(work_is_done_in_the_background),
        cmocka_unit_test(everyone_knows_where_everyone_is),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
