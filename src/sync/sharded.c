/* Optimizer state in shards (exec/shards/shards.h): the sum of a piece goes to the ranks that update it, and its
 * parameters come back, unless they are in shards as well.
 *
 * All ranks post collectives in the same order, so nothing here depends on how far the sums are: when a bucket is complete,
 * the parameters of the bucket before it are due. Their sum has had the time of a bucket to arrive. */
#include "base/memory.h"
#include "sync/sync.h"

#include <string.h>

struct shards {
    struct ls_work *works; /* owned; one a piece: its sum, then its parameters */
    float **parts;         /* owned; n_parts a piece */
    int summing;           /* pieces whose sum was posted */
    int updated;           /* pieces that are updated, and whose parameters were posted */
    int taken;             /* pieces whose parameters are in place */
};

static enum ls_status open(struct ls_sync *s)
{
    struct shards *h = s->state = ls_alloc(1, sizeof *h);
    if (!h)
        return LS_FAILED;
    h->works = ls_alloc((size_t)s->n_pieces, sizeof *h->works);
    h->parts = ls_alloc((size_t)(s->n_pieces * s->n_parts), sizeof *h->parts);
    if (!h->works || !h->parts)
        return LS_FAILED;
    for (int i = 0; i < s->n_pieces; i++)
        for (int p = 0; p < s->n_parts; p++)
            h->parts[i * s->n_parts + p] = s->parts[p] + s->pieces[i].first;
    return LS_OK;
}

static void close_shards(struct ls_sync *s)
{
    struct shards *h = s->state;
    if (!h)
        return;
    if (h->works)
        ls_comm_give_up(s->comm, h->works, s->n_pieces);
    ls_free(h->works);
    ls_free(h->parts);
}

static void post(struct ls_sync *s, int piece, enum ls_work_kind kind, int peer)
{
    struct shards *h = s->state;
    const struct ls_sync_piece *p = &s->pieces[piece];
    h->works[piece] = (struct ls_work){.kind = kind,
                                       .peer = peer,
                                       .data = s->grads + p->first,
                                       .bytes = p->count * sizeof(float),
                                       .parts = kind <= LS_WORK_SCATTER ? h->parts + piece * s->n_parts : NULL,
                                       .step = s->step,
                                       .bucket = p->bucket};
    ls_comm_post(s->comm, &h->works[piece]);
}

/* Parameters stay with the ranks that update them. */
static bool parameters_stay(const struct ls_sync *s)
{
    return strcmp(s->o->shard, "parameters") == 0;
}

/* Clipping needs the norm of all gradients, and loss scaling must see each that overflows: every rank gets all of them. */
static bool whole_sums(const struct ls_sync *s)
{
    return s->o->clip_norm > 0 || strcmp(s->o->dtype, "fp16") == 0;
}

static void post_sum(struct ls_sync *s, int piece)
{
    int owner = s->pieces[piece].owner;
    if (whole_sums(s) || owner == LS_OWNER_ALL)
        post(s, piece, LS_WORK_ALLREDUCE, 0);
    else if (owner == LS_OWNER_EACH)
        post(s, piece, LS_WORK_SCATTER, 0);
    else
        post(s, piece, LS_WORK_REDUCE, owner);
}

static void post_sums(struct ls_sync *s, int bucket)
{
    struct shards *h = s->state;
    for (; h->summing < s->n_pieces && s->pieces[h->summing].bucket <= bucket; h->summing++)
        post_sum(s, h->summing);
    s->posted = bucket + 1;
}

/* Updates the next piece and posts its parameters. */
static enum ls_status update_next(struct ls_sync *s)
{
    struct shards *h = s->state;
    int piece = h->updated++, owner = s->pieces[piece].owner;
    s->next = s->pieces[piece].bucket;
    LS_TRY(ls_sync_wait(s, &h->works[piece]));
    LS_TRY(s->update_piece(s->context, piece));
    if (owner != LS_OWNER_ALL && !parameters_stay(s))
        post(s, piece, owner == LS_OWNER_EACH ? LS_WORK_COLLECT : LS_WORK_BROADCAST, owner < 0 ? 0 : owner);
    return LS_OK;
}

/* Takes the parameters that have come; all: waits for those that were posted. */
static enum ls_status take(struct ls_sync *s, bool all)
{
    struct shards *h = s->state;
    for (; h->taken < h->updated && (all || ls_comm_done(&h->works[h->taken])); h->taken++) {
        LS_TRY(ls_sync_wait(s, &h->works[h->taken]));
        LS_TRY(s->take_piece(s->context, h->taken));
    }
    return LS_OK;
}

/* SYNC-2: by the node that completes this bucket, the pass must have run all that reads the parameters of the other. A rank
 * whose pass has no samples is further, and must not act on it. */
static bool is_due(const struct ls_sync *s, int piece, int bucket)
{
    int other = s->pieces[piece].bucket;
    return other < bucket && s->buckets[other].used <= s->buckets[bucket].ready;
}

static enum ls_status ready(struct ls_sync *s, int bucket)
{
    struct shards *h = s->state;
    if (bucket == 0)
        h->summing = h->updated = h->taken = 0;
    post_sums(s, bucket);
    while (!whole_sums(s) && h->updated < h->summing && is_due(s, h->updated, bucket))
        LS_TRY(update_next(s));
    return take(s, false);
}

static enum ls_status finish(struct ls_sync *s)
{
    struct shards *h = s->state;
    for (int i = h->updated; whole_sums(s) && i < s->n_pieces; i++)
        LS_TRY(ls_sync_wait(s, &h->works[i]));
    while (h->updated < s->n_pieces) {
        LS_TRY(update_next(s));
        LS_TRY(take(s, false));
    }
    return take(s, true);
}

static enum ls_status finish_after_pass(struct ls_sync *s)
{
    struct shards *h = s->state;
    h->summing = h->updated = h->taken = 0;
    post_sums(s, s->n_buckets - 1);
    return finish(s);
}

const struct ls_sync_ops ls_sync_sharded_overlap = {
    .name = "overlap",
    .summary = "overlap, with optimizer state in shards",
    .exact = true,
    .shards_state = true,
    .on_device = true,
    .open = open,
    .ready = ready,
    .finish = finish,
    .close = close_shards,
};

const struct ls_sync_ops ls_sync_sharded_allreduce = {
    .name = "allreduce",
    .summary = "allreduce, with optimizer state in shards",
    .cut = LS_CUT_BY_TENSOR,
    .exact = true,
    .shards_state = true,
    .on_device = true,
    .open = open,
    .finish = finish_after_pass,
    .close = close_shards,
};
