/* Memory layouts of oneDNN. */
#include "backend/onednn/dnn.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static dnnl_data_type_t dnn_type(enum ls_dtype t)
{
    switch (t) {
    case LS_BF16:
        return dnnl_bf16;
    case LS_I32:
        return dnnl_s32;
    case LS_U8:
        return dnnl_u8;
    default:
        return dnnl_f32;
    }
}

static dnnl_format_tag_t dnn_format(int rank, enum dnn_tag tag)
{
    static const dnnl_format_tag_t plain[] = {0, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    if (tag == DNN_ANY)
        return dnnl_format_tag_any;
    if (tag == DNN_PLAIN)
        return plain[rank];
    if (tag == DNN_ROWS_64)
        return rank == 2 ? dnnl_OI16i64o : dnnl_OIhw16i64o;
    static const dnnl_format_tag_t blocked[] = {[DNN_BLOCKED_8] = dnnl_nChw8c,
                                                [DNN_BLOCKED_16] = dnnl_nChw16c,
                                                [DNN_WEIGHTS_8] = dnnl_OIhw8i8o,
                                                [DNN_WEIGHTS_16] = dnnl_OIhw16i16o};
    return blocked[tag];
}

enum ls_status dnn_check(dnnl_status_t status, const char *what)
{
    return status == dnnl_success ? LS_OK : ls_fail(LS_FAILED, "oneDNN: %s failed with status %d", what, (int)status);
}

enum ls_status dnn_md_init(struct dnn_md *md, int rank, const int64_t *dims, enum ls_dtype dtype, enum dnn_tag tag)
{
    dnnl_dims_t d = {0};
    for (int i = 0; i < rank; i++)
        d[i] = dims[i];
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t s = dnnl_memory_desc_create_with_tag(&md->d, rank, d, dnn_type(dtype), dnn_format(rank, tag));
#else
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(&md->d, rank, d, dnn_type(dtype), dnn_format(rank, tag));
#endif
    md->set = s == dnnl_success;
    return dnn_check(s, "making a memory layout");
}

enum ls_status dnn_md_copy(struct dnn_md *to, const struct dnn_md *from)
{
    *to = (struct dnn_md){0};
    if (!from->set)
        return LS_OK;
#if DNNL_VERSION_MAJOR >= 3
    LS_TRY(dnn_check(dnnl_memory_desc_clone(&to->d, from->d), "copying a memory layout"));
#else
    to->d = from->d;
#endif
    to->set = true;
    return LS_OK;
}

void dnn_md_release(struct dnn_md *md)
{
#if DNNL_VERSION_MAJOR >= 3
    if (md->set)
        dnnl_memory_desc_destroy(md->d);
#endif
    *md = (struct dnn_md){0};
}

bool dnn_md_equal(const struct dnn_md *a, const struct dnn_md *b)
{
    return a->set && b->set && dnnl_memory_desc_equal(DNN_MD(a), DNN_MD(b));
}

size_t dnn_md_bytes(const struct dnn_md *md)
{
    return md->set ? dnnl_memory_desc_get_size(DNN_MD(md)) : 0;
}

/* Strides and inner blocks of a layout, from either version. */
struct blocking {
    int rank, blocks;
    dnnl_dims_t strides, size, index;
};

static bool blocking_of(const struct dnn_md *md, struct blocking *b)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_dims_t *values;
    if (dnnl_memory_desc_query(md->d, dnnl_query_ndims_s32, &b->rank) ||
        dnnl_memory_desc_query(md->d, dnnl_query_inner_nblks_s32, &b->blocks))
        return false;
    if (dnnl_memory_desc_query(md->d, dnnl_query_strides, &values))
        return false;
    memcpy(b->strides, *values, sizeof b->strides);
    if (dnnl_memory_desc_query(md->d, dnnl_query_inner_blks, &values))
        return false;
    memcpy(b->size, *values, sizeof b->size);
    if (dnnl_memory_desc_query(md->d, dnnl_query_inner_idxs, &values))
        return false;
    memcpy(b->index, *values, sizeof b->index);
#else
    if (md->d.format_kind != dnnl_blocked)
        return false;
    const dnnl_blocking_desc_t *d = &md->d.format_desc.blocking;
    b->rank = md->d.ndims;
    b->blocks = d->inner_nblks;
    memcpy(b->strides, d->strides, sizeof b->strides);
    memcpy(b->size, d->inner_blks, sizeof b->size);
    memcpy(b->index, d->inner_idxs, sizeof b->index);
#endif
    return true;
}

int dnn_md_rank(const struct dnn_md *md)
{
    struct blocking b;
    return md->set && blocking_of(md, &b) ? b.rank : 0;
}

int64_t dnn_md_place(const struct dnn_md *md, int dim, int64_t i)
{
    struct blocking b;
    int64_t place = 0, inner = 1;
    if (!md->set || !blocking_of(md, &b))
        return -1;
    for (int k = b.blocks - 1; k >= 0; inner *= b.size[k--])
        if (b.index[k] == dim) {
            place += i % b.size[k] * inner;
            i /= b.size[k];
        }
    return place + i * b.strides[dim];
}

void dnn_md_text(const struct dnn_md *md, char *text, size_t room)
{
    struct blocking b;
    snprintf(text, room, "-");
    if (!md->set)
        return;
    snprintf(text, room, "opaque");
    if (!blocking_of(md, &b))
        return;
    int order[DNNL_MAX_NDIMS], used = 0;
    for (int i = 0; i < b.rank; i++) {
        int at = i;
        for (; at > 0 && b.strides[order[at - 1]] < b.strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < b.rank; i++) {
        bool blocked = false;
        for (int k = 0; k < b.blocks; k++)
            blocked = blocked || b.index[k] == order[i];
        used += snprintf(text + used, room - (size_t)used, "%c", (blocked ? 'A' : 'a') + order[i]);
    }
    for (int k = 0; k < b.blocks; k++)
        used += snprintf(text + used, room - (size_t)used, "%d%c", (int)b.size[k], 'a' + (int)b.index[k]);
}

enum ls_status dnn_md_plain(struct dnn_md *to, const struct dnn_md *from, enum ls_dtype dtype)
{
#if DNNL_VERSION_MAJOR >= 3
    int rank;
    dnnl_dims_t *dims;
    dnnl_memory_desc_query(from->d, dnnl_query_ndims_s32, &rank);
    dnnl_memory_desc_query(from->d, dnnl_query_dims, &dims);
    return dnn_md_init(to, rank, *dims, dtype, DNN_PLAIN);
#else
    return dnn_md_init(to, from->d.ndims, from->d.dims, dtype, DNN_PLAIN);
#endif
}
