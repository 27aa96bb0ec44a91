/* Large dense layers in chunks of rows: the whole of a layer, and what a part of it computes. */
#include "backend/cuda/conv/conv_algorithm.h"

_Static_assert((int)LS_SPLIT_CHUNKS / LS_CUDA_TOGETHER == 4, "kernels/conv/tree.cu has a place for each chunk");

void linear_join_chunks(struct ls_split_range *r)
{
    r->chunk *= LS_CUDA_TOGETHER;
    r->first /= LS_CUDA_TOGETHER;
    r->end = (r->end + LS_CUDA_TOGETHER - 1) / LS_CUDA_TOGETHER;
    r->chunks = (r->chunks + LS_CUDA_TOGETHER - 1) / LS_CUDA_TOGETHER;
}

int64_t linear_first_row(const struct linear *whole, int place, int workers)
{
    int64_t first = whole->range.chunk * (whole->range.chunks * place / workers);
    return first < whole->whole ? first : whole->whole;
}

struct linear linear_whole(const struct linear *l)
{
    struct linear whole = *l;
    whole.conv.act = LS_ACT_NONE;
    whole.conv.out = l->whole;
    whole.conv.y.c = padded(l->whole);
    whole.range.first = 0;
    whole.range.end = l->range.chunks;
    whole.sums = false;
    return whole;
}

struct linear linear_part(const struct linear *whole, int place, int workers)
{
    struct linear part = *whole;
    part.conv.out = linear_first_row(whole, place + 1, workers) - linear_first_row(whole, place, workers);
    part.conv.y.c = padded(part.conv.out);
    part.range.first = whole->range.chunks * place / workers;
    part.range.end = whole->range.chunks * (place + 1) / workers;
    part.sums = true;
    return part;
}

struct ls_cuda_tree linear_tree(const struct linear *l)
{
    const struct ls_split_range *r = &l->range;
    struct ls_cuda_tree tree = {.leaves = r->end - r->first};
    int starts[LS_SPLIT_CHUNKS];
    for (int chunk = r->first; chunk < r->end; chunk++) {
        tree.part[tree.parts] = chunk - r->first;
        for (starts[tree.parts++] = chunk; tree.parts > 1; tree.parts--) {
            int last = tree.parts - 1;
            if (!ls_split_joins(starts[last - 1], starts[last], chunk + 1, r->chunks))
                break;
            tree.to[tree.sums] = tree.part[last - 1];
            tree.from[tree.sums++] = tree.part[last];
        }
    }
    return tree;
}
