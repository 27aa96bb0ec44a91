#include "exec/shards/params.h"
#include "base/memory.h"
#include "exec/shards/groups.h"
#include "exec/shards/plan.h"

#include <string.h>

enum state { ABSENT, POSTED, HERE };

/* From `node` on, a pass reads parameters of this group. */
struct visit {
    int node, group;
};

struct visits {
    struct visit *list; /* owned */
    int n;
};

struct ls_params {
    struct ls_param_groups groups;
    enum state *state; /* owned; of each group */
    float *ring;       /* owned; the backend's memory, with room for copies in 16 bits behind it */
    float *stage;      /* where groups are gathered: the ring, or owned memory of the host (PARAM-3) */
    float *own; /* owned; this process's parameters in memory of the host; NULL: the host reads them where they are */
    bool fresh; /* they are what the updates left */
    struct visits of[2];   /* of training, of evaluation */
    int turn;              /* the next visit of the pass under way */
    struct ls_work *works; /* owned; one a piece */
    int n_works;
};

/* --- opened and closed ---------------------------------------------------------------------------------------------- */

static enum ls_status list_visits(const struct ls_engine *e, const struct ls_net *net, int end, struct visits *v)
{
    v->list = ls_alloc((size_t)end + 1, sizeof *v->list);
    if (!v->list)
        return LS_FAILED;
    for (int n = 0; n < end; n++) {
        int group = ls_param_group_of(&e->params->groups, e, net, n);
        if (group != LS_NONE && (v->n == 0 || v->list[v->n - 1].group != group))
            v->list[v->n++] = (struct visit){n, group};
    }
    return LS_OK;
}

/* Where a parameter of the training graph lies in the ring, in floats. */
static size_t place_of(const struct ls_params *p, int tensor)
{
    const struct ls_param_group *group = &p->groups.list[p->groups.of[tensor]];
    return group->at + (p->groups.place[tensor] - group->first);
}

static bool has_copies(const struct ls_engine *e)
{
    return e->backend->queue->own_memory && e->train.graph.act_dtype != LS_F32;
}

static size_t ring_bytes(const struct ls_engine *e, const struct ls_param_groups *g)
{
    return g->ring * (sizeof(float) + (has_copies(e) ? sizeof(uint16_t) : 0));
}

void ls_params_point(const struct ls_engine *e, const struct ls_net *net, int tensor)
{
    const struct ls_params *p = e->params;
    int number = net == &e->train ? tensor : ls_graph_find(&e->train.graph, net->graph.tensors[tensor].name);
    size_t at = place_of(p, number);
    uint16_t *copies = (uint16_t *)(void *)(p->ring + p->groups.ring);
    e->backend->point(net->program, tensor, p->ring + at, has_copies(e) ? copies + at : NULL);
}

/* PARAM-2 */
static void point_all(struct ls_engine *e, struct ls_net *net)
{
    for (int t = 0; t < net->graph.n_tensors; t++)
        if (net->graph.tensors[t].role == LS_ROLE_PARAM && net->graph.tensors[t].apart)
            ls_params_point(e, net, t);
}

/* Memory of the host that copies are fast with. */
static enum ls_status take_host(const struct ls_engine *e, size_t floats, float **memory)
{
    void *region;
    LS_TRY(ls_region_map(floats * sizeof **memory, &region));
    *memory = region;
    e->backend->queue->pin(region, floats * sizeof **memory);
    return LS_OK;
}

static void give_host(const struct ls_engine *e, float *memory, size_t floats)
{
    if (!memory)
        return;
    e->backend->queue->unpin(memory);
    ls_region_unmap(memory, floats * sizeof *memory);
}

static enum ls_status take_ring(struct ls_engine *e)
{
    struct ls_params *p = e->params;
    void *ring;
    LS_TRY(ls_backend_take(e->backend, ring_bytes(e, &p->groups), &ring));
    p->ring = p->stage = ring;
    return e->backend->queue->own_memory ? take_host(e, p->groups.ring, &p->stage) : LS_OK;
}

/* Floats of this process's parameters, and of the one behind them that tells how far the queue is. */
static size_t own_floats(const struct ls_engine *e)
{
    return e->shards->param_bytes / sizeof(float) + 1;
}

enum ls_status ls_params_open(struct ls_engine *e, const struct ls_options *o)
{
    if (!e->strategy->shards_state || strcmp(o->shard, "parameters") != 0)
        return LS_OK;
    struct ls_params *p = e->params = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    LS_TRY(ls_param_groups_init(&p->groups, e, o));
    p->state = ls_alloc((size_t)p->groups.n, sizeof *p->state);
    if (!p->state)
        return LS_FAILED;
    LS_TRY(take_ring(e));
    LS_TRY(list_visits(e, &e->train, e->train.end, &p->of[0]));
    point_all(e, &e->train);
    if (!e->eval.program)
        return LS_OK;
    LS_TRY(list_visits(e, &e->eval, e->eval.graph.n_nodes, &p->of[1]));
    point_all(e, &e->eval);
    return LS_OK;
}

enum ls_status ls_params_take_pieces(struct ls_engine *e)
{
    struct ls_params *p = e->params;
    if (!p)
        return LS_OK;
    p->n_works = e->shards->n_pieces;
    p->works = ls_alloc((size_t)p->n_works, sizeof *p->works);
    if (!p->works)
        return LS_FAILED;
    return p->stage == p->ring ? LS_OK : take_host(e, own_floats(e), &p->own);
}

void ls_params_close(struct ls_engine *e)
{
    struct ls_params *p = e->params;
    if (!p)
        return;
    if (p->works)
        ls_comm_give_up(e->comm, p->works, p->n_works);
    ls_backend_give(e->backend, p->ring, ring_bytes(e, &p->groups));
    if (p->stage != p->ring)
        give_host(e, p->stage, p->groups.ring);
    if (p->own)
        give_host(e, p->own, own_floats(e));
    ls_param_groups_release(&p->groups);
    ls_free(p->state);
    ls_free(p->of[0].list);
    ls_free(p->of[1].list);
    ls_free(p->works);
    ls_free(p);
    e->params = NULL;
}

bool ls_params_group_ends(const struct ls_engine *e, size_t end)
{
    for (int i = 0; i < e->params->groups.n; i++)
        if (e->params->groups.list[i].first + e->params->groups.list[i].count == end)
            return true;
    return false;
}

bool ls_params_drop_gradients(const struct ls_backend *b, const struct ls_options *o, int passes)
{
    return strcmp(o->shard, "parameters") == 0 && !b->queue->own_memory && strcmp(o->sync, "overlap") == 0 &&
           passes == 1 && o->clip_norm <= 0;
}

enum ls_status ls_params_bytes(const struct ls_engine *e, const struct ls_options *o, size_t *ring, size_t *gradients)
{
    struct ls_param_groups groups;
    enum ls_status st = ls_param_groups_init(&groups, e, o);
    *ring = ring_bytes(e, &groups);
    *gradients = (groups.pair + groups.others) * sizeof(float);
    ls_param_groups_release(&groups);
    return st;
}

/* --- gathering ------------------------------------------------------------------------------------------------------ */

static bool in_group(const struct ls_param_group *g, const struct ls_sync_piece *piece)
{
    return piece->first >= g->first && piece->first < g->first + g->count;
}

static bool overlap(const struct ls_params *p, int a, int b)
{
    const struct ls_param_group *x = &p->groups.list[a], *y = &p->groups.list[b];
    return x->at < y->at + y->count && y->at < x->at + x->count;
}

/* One of two marks, 0 or 1, shows when the queue is past all that it has now. */
static enum ls_status fetch_behind(struct ls_engine *e, int which)
{
    const struct ls_params *p = e->params;
    return e->backend->queue->fetch(e->train.program, LS_PARAM_MARK + which, p->own + own_floats(e) - 1, p->ring, 1);
}

/* Has the host see what the last updates left. The queue is then past all that was sent before. */
static enum ls_status refresh(struct ls_engine *e)
{
    struct ls_params *p = e->params;
    if (p->fresh || !p->own)
        return LS_OK;
    if (own_floats(e) > 1)
        LS_TRY(e->backend->queue->fetch(e->train.program, LS_PARAM_MARK, p->own, e->shards->memory, own_floats(e) - 1));
    LS_TRY(fetch_behind(e, 0));
    p->fresh = true;
    return e->backend->queue->arrived(e->train.program, LS_PARAM_MARK);
}

/* This process's windows of the parameter of an update. */
static const float *own_windows(const struct ls_engine *e, int node)
{
    const float *held = e->shards->params[node];
    return e->params->own ? e->params->own + (held - (const float *)e->shards->memory) : held;
}

/* Brings this process's part of a piece to its place. */
static void copy_own(const struct ls_engine *e, int piece, float *to)
{
    const struct ls_shards *h = e->shards;
    for (int i = h->first[piece]; i < h->first[piece + 1]; i++) {
        const struct ls_segment *s = &h->segments[i];
        float *at = to + (s->grad - h->pieces[piece].first) + (s->own.first - s->offset);
        if (s->own.count > 0)
            ls_shards_copy(at, own_windows(e, s->node) + s->own.at, s->own.count);
    }
}

static void post_piece(struct ls_engine *e, const struct ls_param_group *group, int number)
{
    struct ls_params *p = e->params;
    const struct ls_sync_piece *piece = &e->shards->pieces[number];
    float *data = p->stage + group->at + (piece->first - group->first);
    bool each = piece->owner == LS_OWNER_EACH;
    copy_own(e, number, data);
    p->works[number] = (struct ls_work){.kind = each ? LS_WORK_COLLECT : LS_WORK_BROADCAST,
                                        .peer = each ? 0 : piece->owner,
                                        .data = data,
                                        .bytes = piece->count * sizeof *data,
                                        .bucket = piece->bucket};
    ls_comm_post(e->comm, &p->works[number]);
}

/* Nothing lies any more where the group is to be gathered (PARAM-3). */
static enum ls_status make_room(struct ls_engine *e, int number)
{
    struct ls_params *p = e->params;
    for (int i = 0; i < p->groups.n; i++) {
        if (!overlap(p, i, number))
            continue;
        if (p->state[i] == HERE && p->own)
            LS_TRY(e->backend->queue->arrived(e->train.program, LS_PARAM_MARK + i % 2));
        p->state[i] = ABSENT;
    }
    return LS_OK;
}

/* Begins to gather a group, unless it is there or on its way. */
static enum ls_status post(struct ls_engine *e, int number)
{
    struct ls_params *p = e->params;
    if (p->state[number] != ABSENT)
        return LS_OK;
    LS_TRY(refresh(e));
    LS_TRY(make_room(e, number));
    for (int i = 0; i < e->shards->n_pieces; i++)
        if (in_group(&p->groups.list[number], &e->shards->pieces[i]))
            post_piece(e, &p->groups.list[number], i);
    p->state[number] = POSTED;
    return LS_OK;
}

/* PARAM-3 */
static enum ls_status send_group(struct ls_engine *e, int number)
{
    const struct ls_params *p = e->params;
    size_t bytes;
    for (int t = 0; t < e->train.graph.n_tensors; t++) {
        if (p->groups.of[t] != number)
            continue;
        e->backend->memory(e->train.program, t, &bytes);
        LS_TRY(
            e->backend->queue->send_values(e->train.program, t, p->stage + place_of(p, t), 0, bytes / sizeof(float)));
    }
    return fetch_behind(e, number % 2);
}

static enum ls_status await(struct ls_engine *e, int number)
{
    struct ls_params *p = e->params;
    if (p->state[number] == HERE)
        return LS_OK;
    for (int i = 0; i < e->shards->n_pieces; i++)
        if (in_group(&p->groups.list[number], &e->shards->pieces[i]))
            LS_TRY(ls_comm_wait(e->comm, &p->works[i]));
    p->state[number] = HERE;
    return p->own ? send_group(e, number) : LS_OK;
}

static enum ls_status begin_visit(struct ls_engine *e, const struct visits *v, int turn)
{
    struct ls_params *p = e->params;
    int group = v->list[turn].group;
    LS_TRY(post(e, group));
    LS_TRY(await(e, group));
    bool room = turn + 1 < v->n && !overlap(p, group, v->list[turn + 1].group);
    return room ? post(e, v->list[turn + 1].group) : LS_OK;
}

/* --- passes --------------------------------------------------------------------------------------------------------- */

void ls_params_forget(struct ls_engine *e)
{
    e->params->fresh = false;
    for (int i = 0; i < e->params->groups.n; i++)
        e->params->state[i] = ABSENT;
}

enum ls_status ls_params_begin(struct ls_engine *e, int passes)
{
    int most = 0;
    for (int rank = 0; rank < e->tree->size; rank++) {
        int slices = (e->tree->first[rank + 1] - e->tree->first[rank]) * e->passes;
        most = slices > most ? slices : most;
    }
    ls_params_forget(e);
    for (; passes < most; passes++)
        LS_TRY(ls_params_run(e, &e->train, 0, e->train.end, NULL, NULL));
    return LS_OK;
}

enum ls_status ls_params_run(struct ls_engine *e, const struct ls_net *net, int first, int end, ls_run_stretch *run,
                             void *context)
{
    struct ls_params *p = e->params;
    const struct visits *v = &p->of[net != &e->train];
    int at = first;
    if (first == 0)
        p->turn = 0;
    for (; p->turn < v->n && v->list[p->turn].node < end; p->turn++) {
        int node = v->list[p->turn].node;
        if (run && node > at)
            LS_TRY(run(context, at, node));
        at = node;
        LS_TRY(begin_visit(e, v, p->turn));
    }
    return run && end > at ? run(context, at, end) : LS_OK;
}
