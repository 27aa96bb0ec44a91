/* Writes tar shards as WebDataset has them: PART-000000.tar with KEY.jpg and KEY.cls for each sample. KEY is the number of the
 * sample, and KEY.cls holds the number of its class, from 0. */
#include "base/log.h"
#include "base/memory.h"
#include "data/write/shards.h"
#include "data/write/writers.h"

#include <inttypes.h>
#include <string.h>

enum { BLOCK = 512 };

struct tar {
    struct ls_writer base;
    struct ls_shard_out shards;
};

static const char end_mark[2 * BLOCK];

static enum ls_status open_tar(const struct ls_write_plan *plan, struct ls_writer **w)
{
    struct tar *t = ls_alloc(1, sizeof *t);
    if (!t)
        return LS_FAILED;
    t->shards = (struct ls_shard_out){.plan = *plan,
                                      .index = -1,
                                      .name = *plan->part ? plan->part : "data",
                                      .end = ".tar",
                                      .trailer = end_mark,
                                      .trailer_bytes = sizeof end_mark};
    *w = &t->base;
    return LS_OK;
}

/* A member in the ustar format. Names are short and sizes below 8 GiB, so that it needs no extension. */
static enum ls_status put_member(struct ls_out *out, const char *name, const void *data, size_t size)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;
    snprintf(h, 100, "%s", name);
    memcpy(h + 100, "0000644", 8);
    memcpy(h + 108, "0000000", 8);
    memcpy(h + 116, "0000000", 8);
    snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
    memcpy(h + 136, "00000000000", 12);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    for (int i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 7, "%06o", sum);
    LS_TRY(ls_out_put(out, h, sizeof h));
    LS_TRY(ls_out_put(out, data, size));
    return ls_out_align(out, BLOCK);
}

static enum ls_status put(struct ls_writer *w, const struct ls_write_sample *s)
{
    struct ls_shard_out *shards = &((struct tar *)w)->shards;
    char name[64], label[16];
    LS_TRY(ls_shard_out_turn(shards, s));
    snprintf(name, sizeof name, "%08" PRId64 ".%s", s->number, s->extension);
    LS_TRY(put_member(&shards->out, name, s->bytes, s->size));
    snprintf(name, sizeof name, "%08" PRId64 ".cls", s->number);
    int n = snprintf(label, sizeof label, "%d", s->label);
    return put_member(&shards->out, name, label, (size_t)n);
}

static enum ls_status finish(struct ls_writer *w)
{
    int64_t shards;
    return ls_shard_out_finish(&((struct tar *)w)->shards, &shards);
}

static void close_tar(struct ls_writer *w)
{
    ls_out_release(&((struct tar *)w)->shards.out);
    ls_free(w);
}

const struct ls_writer_ops ls_writer_tar = {
    .name = "tar",
    .is_sharded = true,
    .open = open_tar,
    .put = put,
    .finish = finish,
    .close = close_tar,
};
