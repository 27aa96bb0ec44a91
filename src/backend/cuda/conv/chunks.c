/* Large dense layers in chunks of rows: the whole of a layer, and what a part of it computes. */
#include "backend/cuda/conv/conv_algorithm.h"

_Static_assert((int)LS_CUDA_LEAVES == (int)LS_SPLIT_CHUNKS, "a chunk is a leaf");

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
    int64_t first = ls_split_first_row(whole->whole, place, workers);
    part.conv.out = ls_split_first_row(whole->whole, place + 1, workers) - first;
    part.conv.y.c = padded(part.conv.out);
    part.range.first = whole->range.chunks * place / workers;
    part.range.end = whole->range.chunks * (place + 1) / workers;
    part.sums = true;
    return part;
}

/* Chunks up to `end` are a further leaf. */
static void add_leaf(struct ls_cuda_tree *tree, int *starts, int start, int end, int chunks)
{
    tree->part[tree->parts] = tree->leaves++;
    for (starts[tree->parts++] = start; tree->parts > 1; tree->parts--) {
        int last = tree->parts - 1;
        if (!ls_split_joins(starts[last - 1], starts[last], end, chunks))
            break;
        tree->to[tree->sums] = tree->part[last - 1];
        tree->from[tree->sums++] = tree->part[last];
    }
}

struct linear_leaves linear_leaves(const struct linear *l)
{
    const struct ls_split_range *r = &l->range;
    struct linear_leaves leaves = {.before = r->first % 2, .first_pair = r->first + r->first % 2};
    int starts[LS_SPLIT_CHUNKS];
    leaves.pairs = (r->end - leaves.first_pair) / 2;
    leaves.behind = (r->end - leaves.first_pair) % 2;
    for (int chunk = r->first, next; chunk < r->end; chunk = next) {
        next = chunk + (chunk % 2 == 0 && chunk + 1 < r->end ? 2 : 1);
        add_leaf(&leaves.tree, starts, chunk, next, r->chunks);
    }
    return leaves;
}
