/* Sums after the pass among some of the processes, one of several groups that sum at the same time: the processes of a
 * layout that have the same stage of the model. Each adds a range of all parts along the group's tree, and sends it to the
 * others. */
#include "base/memory.h"
#include "comm/algorithms/sum.h"
#include "sync/sync.h"

enum { TAG_SUM = LS_TAG_LIMIT - 1024, TAG_PART /* and as many as a process has parts */ };

struct state {
    struct ls_summer *summer; /* owned */
    float *incoming;          /* owned; this process's range of every part */
    size_t range;             /* floats of each */
    const float **operands;   /* owned; one a part */
    struct ls_work *works;    /* owned */
    int n_works, under_way;
};

/* The range of `count` values that a place adds. */
static void range_of(const struct ls_sync *s, int place, size_t *first, size_t *count)
{
    size_t all = s->buckets[0].count, places = (size_t)s->group->tree->size, at = (size_t)place;
    size_t each = ((all + places - 1) / places + 15) / 16 * 16;
    *first = at * each < all ? at * each : all;
    *count = all - *first < each ? all - *first : each;
}

static enum ls_status open_group(struct ls_sync *s)
{
    const struct ls_tree *tree = s->group->tree;
    struct state *g = s->state = ls_alloc(1, sizeof *g);
    size_t first;
    if (!g)
        return LS_FAILED;
    range_of(s, 0, &first, &g->range); /* the longest */
    g->n_works = tree->n_parts + (s->n_parts + 2) * tree->size;
    g->incoming = ls_alloc((size_t)tree->n_parts * g->range, sizeof *g->incoming);
    g->operands = ls_alloc((size_t)tree->n_parts, sizeof *g->operands);
    g->works = ls_alloc((size_t)g->n_works, sizeof *g->works);
    if (!g->incoming || !g->operands || !g->works)
        return LS_FAILED;
    return ls_summer_new(tree, &g->summer);
}

static void close_group(struct ls_sync *s)
{
    struct state *g = s->state;
    if (!g)
        return;
    ls_comm_give_up(s->comm, g->works, g->under_way);
    ls_summer_free(g->summer);
    ls_free(g->incoming);
    ls_free(g->operands);
    ls_free(g->works);
}

static void post(struct ls_sync *s, enum ls_work_kind kind, int place, int tag, float *data, size_t count)
{
    struct state *g = s->state;
    struct ls_work *w = &g->works[g->under_way];
    if (count == 0)
        return;
    *w = (struct ls_work){.kind = kind,
                          .peer = s->group->ranks[place],
                          .tag = (uint32_t)tag,
                          .data = data,
                          .bytes = count * sizeof *data,
                          .step = s->step};
    g->under_way++;
    ls_comm_post(s->comm, w);
}

static enum ls_status wait_all(struct ls_sync *s)
{
    struct state *g = s->state;
    for (int i = 0; i < g->under_way; i++)
        LS_TRY(ls_sync_wait(s, &g->works[i]));
    g->under_way = 0;
    return LS_OK;
}

/* Every process gets its range of all parts. */
static enum ls_status exchange_parts(struct ls_sync *s)
{
    struct state *g = s->state;
    const struct ls_sync_group *group = s->group;
    size_t first, count, to, length;
    range_of(s, group->place, &first, &count);
    for (int place = 0; place < group->tree->size; place++) {
        int part, n = ls_tree_parts(group->tree, place, &part);
        range_of(s, place, &to, &length);
        for (int i = 0; i < n; i++) {
            float *room = g->incoming + (size_t)(part + i) * g->range;
            bool own = place == group->place;
            g->operands[part + i] = own ? s->bucket_parts[i] + first : room;
            if (!own)
                post(s, LS_WORK_RECEIVE, place, TAG_PART + i, room, count);
        }
        for (int i = 0; place != group->place && i < s->n_parts; i++)
            post(s, LS_WORK_SEND, place, TAG_PART + i, s->bucket_parts[i] + to, length);
    }
    return wait_all(s);
}

/* And the sums of the others' ranges. */
static enum ls_status exchange_sums(struct ls_sync *s)
{
    size_t first, count;
    float *sum = s->grads + s->buckets[0].first;
    for (int place = 0; place < s->group->tree->size; place++) {
        if (place == s->group->place)
            continue;
        range_of(s, place, &first, &count);
        post(s, LS_WORK_RECEIVE, place, TAG_SUM, sum + first, count);
        range_of(s, s->group->place, &first, &count);
        post(s, LS_WORK_SEND, place, TAG_SUM, sum + first, count);
    }
    return wait_all(s);
}

static enum ls_status finish(struct ls_sync *s)
{
    struct state *g = s->state;
    size_t first, count;
    LS_TRY(exchange_parts(s));
    range_of(s, s->group->place, &first, &count);
    float *sum = s->grads + s->buckets[0].first + first;
    ls_summer_run(g->summer, g->operands, count, &sum, 1);
    LS_TRY(exchange_sums(s));
    return ls_sync_update(s, 0);
}

const struct ls_sync_ops ls_sync_group = {
    .name = "group",
    .summary = "one sum among the processes that have the same stage, after backward",
    .cut = LS_CUT_NONE,
    .exact = true,
    .after_pass = true,
    .open = open_group,
    .finish = finish,
    .close = close_group,
};
