#include "sync/group_sum.h"
#include "base/memory.h"
#include "comm/algorithms/sum.h"

enum { FIRST_TAG = LS_TAG_LIMIT - (1 << 17) }; /* each sum has one for sums, and one for each part of a process */

enum stage { IDLE, PARTS, SUMS }; /* what is under way */

struct ls_group_sum {
    struct ls_sync *s;
    const struct ls_bucket *bucket;
    uint32_t tag;
    enum stage stage;
    struct ls_summer *summer; /* owned */
    float *incoming;          /* owned; this process's range of every part */
    size_t range;             /* floats of each */
    const float **operands;   /* owned; one a part */
    struct ls_work *works;    /* owned */
    int n_works, under_way;
};

/* The range of the bucket that a place adds. */
static void range_of(const struct ls_group_sum *g, int place, size_t *first, size_t *count)
{
    size_t all = g->bucket->count, places = (size_t)g->s->group->tree->size, at = (size_t)place;
    size_t each = ((all + places - 1) / places + 15) / 16 * 16;
    *first = at * each < all ? at * each : all;
    *count = all - *first < each ? all - *first : each;
}

enum ls_status ls_group_sum_new(struct ls_sync *s, int bucket, struct ls_group_sum **sum)
{
    const struct ls_tree *tree = s->group->tree;
    struct ls_group_sum *g = *sum = ls_alloc(1, sizeof *g);
    size_t first;
    int part, most = ls_tree_most_parts(tree);
    if (!g)
        return LS_FAILED;
    g->s = s;
    g->bucket = &s->buckets[bucket];
    g->tag = (uint32_t)(FIRST_TAG + bucket * (1 + most));
    range_of(g, 0, &first, &g->range); /* the longest */
    g->n_works = tree->n_parts + (ls_tree_parts(tree, s->group->place, &part) + 2) * tree->size;
    g->incoming = ls_alloc((size_t)tree->n_parts * g->range, sizeof *g->incoming);
    g->operands = ls_alloc((size_t)tree->n_parts, sizeof *g->operands);
    g->works = ls_alloc((size_t)g->n_works, sizeof *g->works);
    if (!g->incoming || !g->operands || !g->works)
        return LS_FAILED;
    return ls_summer_new(tree, &g->summer);
}

void ls_group_sum_free(struct ls_group_sum *g)
{
    if (!g)
        return;
    ls_comm_give_up(g->s->comm, g->works, g->under_way);
    ls_summer_free(g->summer);
    ls_free(g->incoming);
    ls_free(g->operands);
    ls_free(g->works);
    ls_free(g);
}

static void post(struct ls_group_sum *g, enum ls_work_kind kind, int place, int tag, float *data, size_t count)
{
    struct ls_work *w = &g->works[g->under_way];
    if (count == 0)
        return;
    *w = (struct ls_work){.kind = kind,
                          .peer = g->s->group->ranks[place],
                          .tag = g->tag + (uint32_t)tag,
                          .data = data,
                          .bytes = count * sizeof *data,
                          .step = g->s->step};
    g->under_way++;
    ls_comm_post(g->s->comm, w);
}

/* Every process gets its range of all parts. */
void ls_group_sum_post(struct ls_group_sum *g, float *const *parts)
{
    const struct ls_sync_group *group = g->s->group;
    size_t first, count, to, length;
    int n, n_own = ls_tree_parts(group->tree, group->place, &n);
    range_of(g, group->place, &first, &count);
    for (int place = 0; place < group->tree->size; place++) {
        int part;
        n = ls_tree_parts(group->tree, place, &part);
        range_of(g, place, &to, &length);
        for (int i = 0; i < n; i++) {
            float *room = g->incoming + (size_t)(part + i) * g->range;
            bool own = place == group->place;
            g->operands[part + i] = own ? parts[i] + first : room;
            if (!own)
                post(g, LS_WORK_RECEIVE, place, 1 + i, room, count);
        }
        for (int i = 0; place != group->place && i < n_own; i++)
            post(g, LS_WORK_SEND, place, 1 + i, parts[i] + to, length);
    }
    g->stage = PARTS;
}

/* And the sums of the others' ranges. */
static void post_sums(struct ls_group_sum *g)
{
    const struct ls_sync_group *group = g->s->group;
    size_t first, count, to, length;
    float *sum = g->s->grads + g->bucket->first;
    range_of(g, group->place, &first, &count);
    float *own = sum + first;
    ls_summer_run(g->summer, g->operands, count, &own, 1);
    for (int place = 0; place < group->tree->size; place++) {
        if (place == group->place)
            continue;
        range_of(g, place, &to, &length);
        post(g, LS_WORK_RECEIVE, place, 0, sum + to, length);
        post(g, LS_WORK_SEND, place, 0, own, count);
    }
    g->stage = SUMS;
}

static bool all_came(const struct ls_group_sum *g)
{
    for (int i = 0; i < g->under_way; i++)
        if (!ls_comm_done(&g->works[i]))
            return false;
    return true;
}

enum ls_status ls_group_sum_advance(struct ls_group_sum *g, bool wait)
{
    while (g->stage != IDLE && (wait || all_came(g))) {
        for (int i = 0; i < g->under_way; i++)
            LS_TRY(ls_sync_wait(g->s, &g->works[i]));
        g->under_way = 0;
        if (g->stage == PARTS)
            post_sums(g);
        else
            g->stage = IDLE;
    }
    return LS_OK;
}

bool ls_group_sum_done(const struct ls_group_sum *g)
{
    return g->stage == IDLE;
}
