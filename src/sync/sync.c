#include "sync/sync.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace.h"
#include "sync/compress.h"
#include "sync/group_sum.h"

#include <string.h>

const struct ls_sync_ops *const ls_sync_list[] = {
#define X(name) &ls_sync_##name,
#include "config/lists/strategies.def"
    NULL,
};

const struct ls_sync_ops *ls_sync_find(const char *name)
{
    for (int i = 0; ls_sync_list[i]; i++)
        if (strcmp(ls_sync_list[i]->name, name) == 0)
            return ls_sync_list[i];
    return NULL;
}

const struct ls_sync_ops *ls_sync_choose(const struct ls_options *o, int size)
{
    const struct ls_sync_ops *ops = size > 1 ? ls_sync_find(o->sync) : &ls_sync_none;
    if (ops->with_shards && strcmp(o->shard, "none") != 0)
        return ops->with_shards;
    return ops->with_servers && o->servers > 0 ? ops->with_servers : ops;
}

int ls_sync_servers(const struct ls_options *o, int size)
{
    if (!ls_sync_choose(o, size)->servers)
        return 0;
    return o->servers > 0 ? (int)o->servers : 1;
}

#define X(name)
#define REDUCER(name, form) extern const struct ls_reducer ls_reducer_##name;
#include "config/lists/compressors.def"

static const struct ls_reducer *const reducers[] = {
#define X(name)
#define REDUCER(name, form) &ls_reducer_##name,
#include "config/lists/compressors.def"
    NULL,
};

/* Returns the reducer that --compress names before a colon, or NULL. */
static const struct ls_reducer *find_reducer(const char *compress)
{
    size_t length = strcspn(compress, ":");
    for (const struct ls_reducer *const *r = reducers; *r; r++)
        if (strlen((*r)->name) == length && strncmp((*r)->name, compress, length) == 0)
            return *r;
    return NULL;
}

/* Opens the codec of --compress with feedback memory for each bucket, or opens the reducer. */
static enum ls_status open_codec(struct ls_sync *s)
{
    if (strcmp(s->o->compress, "none") == 0 || s->ops->no_reduce)
        return LS_OK;
    if (s->ops->servers)
        return ls_fail(LS_USAGE, "--compress %s: servers take gradients as they are; leave it out with --sync %s",
                       s->o->compress, s->ops->name);
    s->reducer = find_reducer(s->o->compress);
    if (s->reducer)
        return s->reducer->open(s);
    s->codec = ls_compress_find(s->o->compress);
    if (!s->codec)
        return ls_fail(LS_USAGE, "--compress %s: there is no such compression for --sync %s", s->o->compress,
                       s->ops->name);
    s->feedback = ls_alloc((size_t)s->n_buckets, sizeof *s->feedback);
    if (!s->feedback)
        return LS_FAILED;
    for (int b = 0; s->codec->feedback && b < s->n_buckets; b++) {
        s->feedback[b] = ls_alloc(ls_comm_feedback(s->comm, s->buckets[b].count), sizeof **s->feedback);
        if (!s->feedback[b])
            return LS_FAILED;
    }
    return LS_OK;
}

static enum ls_status open_group(struct ls_sync *s)
{
    s->group_sums = ls_alloc((size_t)s->n_buckets, sizeof(struct ls_group_sum *));
    if (!s->group_sums)
        return LS_FAILED;
    for (int b = 0; s->group && b < s->n_buckets; b++)
        if (s->buckets[b].local || s->ops == &ls_sync_group)
            LS_TRY(ls_group_sum_new(s, b, &s->group_sums[b]));
    return LS_OK;
}

enum ls_status ls_sync_open(struct ls_sync *s)
{
    s->works = ls_alloc((size_t)s->n_buckets, sizeof *s->works);
    s->bucket_parts = ls_alloc((size_t)(s->n_buckets * s->n_parts), sizeof *s->bucket_parts);
    s->all_totals = ls_alloc(s->comm ? (size_t)ls_comm_size(s->comm) : 0, sizeof *s->all_totals);
    if (!s->works || !s->bucket_parts || !s->all_totals)
        return LS_FAILED;
    for (int b = 0; b < s->n_buckets; b++)
        for (int p = 0; p < s->n_parts; p++)
            s->bucket_parts[b * s->n_parts + p] = s->parts[p] + s->buckets[b].first;
    for (int b = 0; s->ops->works_on_values && b < s->n_buckets; b++)
        s->n_values += s->buckets[b].n_values;
    s->value_works = ls_alloc((size_t)s->n_values, sizeof *s->value_works);
    if (!s->value_works)
        return LS_FAILED;
    LS_TRY(open_codec(s));
    LS_TRY(open_group(s));
    return s->ops->open ? s->ops->open(s) : LS_OK;
}

void ls_sync_close(struct ls_sync *s)
{
    ls_comm_give_up(s->comm, s->works, s->n_buckets);
    ls_comm_give_up(s->comm, s->value_works, s->n_values);
    if (s->ops && s->ops->close)
        s->ops->close(s);
    for (int b = 0; s->feedback && b < s->n_buckets; b++)
        ls_free(s->feedback[b]);
    for (int b = 0; s->group_sums && b < s->n_buckets; b++)
        ls_group_sum_free(s->group_sums[b]);
    ls_free(s->feedback);
    ls_free(s->group_sums);
    if (s->reducer)
        s->reducer->close(s);
    ls_free(s->works);
    ls_free(s->value_works);
    ls_free(s->bucket_parts);
    ls_free(s->all_totals);
    ls_free(s->state);
    ls_free(s->tallies);
    *s = (struct ls_sync){0};
}

void ls_sync_begin(struct ls_sync *s, uint64_t step, double lr, int64_t own, int64_t samples)
{
    s->step = step;
    s->lr = lr;
    s->own = own;
    s->samples = samples;
    s->next = s->posted = s->at = 0;
    s->outcome = (struct ls_sync_outcome){.next_step = step + 1, .samples = samples, .reported = samples};
}

static void publish_position(const struct ls_sync *s)
{
    if (s->comm)
        ls_comm_position(s->comm, s->step, s->next, LS_STAGE_REDUCE);
}

enum ls_status ls_sync_ready(struct ls_sync *s, int bucket, int at)
{
    s->at = at;
    return s->ops->ready && !s->reducer ? s->ops->ready(s, bucket) : LS_OK;
}

/* A reducer sums all buckets at once, in place of the strategy. */
static enum ls_status finish_reducer(struct ls_sync *s)
{
    LS_TRY(s->reducer->sum(s));
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(ls_sync_update(s, b));
    return LS_OK;
}

enum ls_status ls_sync_finish(struct ls_sync *s, struct ls_sync_outcome *outcome)
{
    if (!s->ops->no_reduce || s->ops->works_on_values) /* others sum nothing here */
        publish_position(s);
    s->wrote = s->ops->no_reduce ? LS_PART_NONE : LS_PART_MODEL;
    LS_TRY(s->reducer ? finish_reducer(s) : s->ops->finish(s));
    *outcome = s->outcome;
    return LS_OK;
}

enum ls_status ls_sync_totals(struct ls_sync *s, struct ls_totals *totals)
{
    if (s->ops->servers)
        totals->stop = s->outcome.stop;
    if (!s->comm || s->ops->servers)
        return LS_OK;
    LS_TRY(ls_comm_allgather(s->comm, totals, sizeof *totals, s->all_totals));
    *totals = (struct ls_totals){0};
    for (int rank = 0; rank < ls_comm_size(s->comm); rank++)
        ls_totals_add(totals, &s->all_totals[rank]);
    return LS_OK;
}

enum ls_status ls_sync_collect(struct ls_sync *s, int *stop)
{
    if (!s->ops->collect)
        return LS_OK;
    s->wrote = s->ops->no_reduce ? LS_PART_NONE : LS_PART_ALL;
    LS_TRY(s->ops->collect(s));
    if (s->ops->servers)
        *stop = s->outcome.stop;
    return LS_OK;
}

enum ls_status ls_sync_serve(struct ls_sync *s, uint64_t step, struct ls_sync_outcome *outcome)
{
    s->outcome = (struct ls_sync_outcome){.differ = true};
    LS_TRY(s->ops->serve(s, &step));
    s->outcome.next_step = step;
    *outcome = s->outcome;
    return LS_OK;
}

/* Parts of a local bucket, whose gradients are of this process's part of the model. */
static void post_local(struct ls_sync *s, int bucket)
{
    const struct ls_bucket *b = &s->buckets[bucket];
    float *parts[LS_SYNC_LOCAL_PARTS];
    int first, n = ls_tree_parts(s->group->tree, s->group->place, &first);
    for (int i = 0; i < n; i++)
        parts[i] = i + 1 < n ? s->group->parts[i] + (b->first - s->group->first) : s->grads + b->first;
    ls_group_sum_post(s->group_sums[bucket], parts);
}

void ls_sync_post(struct ls_sync *s, int bucket, enum ls_work_kind kind, int peer)
{
    const struct ls_bucket *b = &s->buckets[bucket];
    s->posted = bucket + 1;
    if (s->group_sums[bucket])
        post_local(s, bucket);
    if (b->local) {
        s->works[bucket] = (struct ls_work){.bucket = bucket, .state = 2};
        return;
    }
    s->works[bucket] = (struct ls_work){.kind = kind,
                                        .peer = peer,
                                        .tag = (uint32_t)bucket,
                                        .data = s->grads + b->first,
                                        .bytes = b->count * sizeof(float),
                                        .parts = s->bucket_parts + bucket * s->n_parts,
                                        .codec = b->plain ? NULL : s->codec,
                                        .codec_state = b->plain || !s->feedback ? NULL : s->feedback[bucket],
                                        .step = s->step,
                                        .bucket = bucket};
    ls_comm_post(s->comm, &s->works[bucket]);
}

enum ls_status ls_sync_wait(struct ls_sync *s, struct ls_work *work)
{
    double begin = ls_comm_done(work) ? 0 : ls_trace_begin(s->track);
    enum ls_status st = ls_comm_wait(s->comm, work);
    ls_trace_end(s->track, begin, &(struct ls_slice){.kind = LS_SLICE_WAIT, .name = "wait", .number = work->bucket});
    return st;
}

void ls_sync_post_values(struct ls_sync *s, int bucket, enum ls_sync_part part, struct ls_work like)
{
    const struct ls_bucket *b = &s->buckets[bucket];
    for (int v = 0, next; v < b->n_values; v = next) {
        size_t count = b->values[v].count;
        next = v + 1;
        if (!ls_sync_in_part(b->values[v].optimizer, part))
            continue;
        for (; next < b->n_values && ls_sync_in_part(b->values[next].optimizer, part); next++) {
            if (b->values[next].memory != b->values[v].memory + count)
                break;
            count += b->values[next].count;
        }
        struct ls_work *work = &s->value_works[s->n_value_works++];
        *work = like;
        work->data = b->values[v].memory;
        work->bytes = count * sizeof(float);
        work->bucket = bucket;
        ls_comm_post(s->comm, work);
    }
}

enum ls_status ls_sync_wait_values(struct ls_sync *s)
{
    for (int i = 0; i < s->n_value_works; i++)
        LS_TRY(ls_sync_wait(s, &s->value_works[i]));
    s->n_value_works = 0;
    return LS_OK;
}

enum ls_status ls_sync_update(struct ls_sync *s, int bucket)
{
    const struct ls_bucket *b = &s->buckets[bucket];
    for (int i = 0; i < b->n_gaps; i++)
        memset(s->grads + b->gaps[i].first, 0, b->gaps[i].count * sizeof *s->grads);
    LS_TRY(s->update(s->context, bucket));
    return s->ops->no_reduce ? LS_OK : s->fetch_values(s->context, bucket, LS_PART_MODEL);
}

static bool is_summed(const struct ls_sync *s, int bucket)
{
    return ls_comm_done(&s->works[bucket]) && (!s->group_sums[bucket] || ls_group_sum_done(s->group_sums[bucket]));
}

enum ls_status ls_sync_settle(struct ls_sync *s, bool all)
{
    for (int b = s->next; b < s->posted; b++)
        if (s->group_sums[b])
            LS_TRY(ls_group_sum_advance(s->group_sums[b], false));
    for (; s->next < s->n_buckets; s->next++) {
        struct ls_work *work = &s->works[s->next];
        if (!all && (s->next >= s->posted || s->buckets[s->next].used >= s->at || !is_summed(s, s->next)))
            return LS_OK;
        if (s->group_sums[s->next])
            LS_TRY(ls_group_sum_advance(s->group_sums[s->next], true));
        LS_TRY(ls_sync_wait(s, work));
        LS_TRY(ls_sync_update(s, s->next));
    }
    return LS_OK;
}
