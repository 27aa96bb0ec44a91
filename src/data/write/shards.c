#include "data/write/shards.h"
#include "base/log.h"
#include "base/memory.h"

enum { MOST = 99999 };

static enum ls_status close_shard(struct ls_shard_out *s)
{
    if (s->index < 0)
        return LS_OK;
    LS_TRY(ls_out_put(&s->out, s->trailer, s->trailer_bytes));
    enum ls_status st = ls_out_close(&s->out);
    ls_out_release(&s->out);
    return st;
}

static bool is_full(const struct ls_shard_out *s, int64_t number)
{
    if (s->plan.shards > 0)
        return number * s->plan.shards / s->plan.info->count > s->index;
    return s->in_shard > 0 && s->out.bytes >= s->plan.shard_bytes;
}

enum ls_status ls_shard_out_turn(struct ls_shard_out *s, const struct ls_write_sample *sample)
{
    if (s->index >= 0 && !is_full(s, sample->number)) {
        s->in_shard++;
        return LS_OK;
    }
    LS_TRY(close_shard(s));
    if (++s->index >= MOST)
        return ls_fail(LS_USAGE, "%s: more than %d shards; give a larger --shard-mb", s->plan.folder, MOST);
    s->in_shard = 1;
    return ls_out_open(
        &s->out, ls_format("%s/%s-%0*lld%s", s->plan.folder, s->name, *s->end ? 6 : 5, (long long)s->index, s->end));
}

enum ls_status ls_shard_out_finish(struct ls_shard_out *s, int64_t *shards)
{
    *shards = s->index + 1;
    return close_shard(s);
}
