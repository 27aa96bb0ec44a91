/* Geometry of windows, computed once so that kernels have no divisions and no edge cases. */
#include "backend/onednn/kernels/kernels.h"

static enum ls_status axis_make(struct ls_axis *a, int64_t in, int64_t out, int64_t kernel)
{
    *a = (struct ls_axis){.in = in, .out = out, .kernel = kernel};
    a->from = ls_alloc((size_t)out, sizeof *a->from);
    a->to = ls_alloc((size_t)out, sizeof *a->to);
    a->origin = ls_alloc((size_t)out, sizeof *a->origin);
    a->first = ls_alloc((size_t)in, sizeof *a->first);
    a->last = ls_alloc((size_t)in, sizeof *a->last);
    a->share = ls_alloc((size_t)out, sizeof *a->share);
    if (a->from && a->to && a->origin && a->first && a->last && a->share)
        return LS_OK;
    ls_axis_release(a);
    return LS_FAILED;
}

/* first and last from the windows, which move only forward. */
static void find_holders(struct ls_axis *a)
{
    for (int64_t i = 0; i < a->in; i++) {
        a->first[i] = 0;
        a->last[i] = -1;
        for (int32_t o = 0; o < a->out; o++)
            if (a->from[o] <= i && i < a->to[o]) {
                if (a->last[i] < 0)
                    a->first[i] = o;
                a->last[i] = o;
            }
    }
}

enum ls_status ls_axis_window(struct ls_axis *a, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                              int64_t pad_end, bool include_pad)
{
    LS_TRY(axis_make(a, in, out, kernel));
    for (int64_t o = 0; o < out; o++) {
        int64_t begin = o * stride - pad, end = begin + kernel;
        int64_t padded = end > in + pad_end ? in + pad_end : end;
        a->origin[o] = (int32_t)begin;
        a->from[o] = (int32_t)(begin < 0 ? 0 : begin);
        a->to[o] = (int32_t)(end > in ? in : end);
        a->share[o] = 1.0f / (float)(include_pad ? padded - begin : a->to[o] - a->from[o]);
    }
    find_holders(a);
    return LS_OK;
}

enum ls_status ls_axis_adaptive(struct ls_axis *a, int64_t in, int64_t out)
{
    LS_TRY(axis_make(a, in, out, 0));
    for (int64_t o = 0; o < out; o++) {
        a->from[o] = (int32_t)(o * in / out);
        a->to[o] = (int32_t)(((o + 1) * in + out - 1) / out);
        a->origin[o] = a->from[o];
        a->share[o] = 1.0f / (float)(a->to[o] - a->from[o]);
    }
    find_holders(a);
    return LS_OK;
}

void ls_axis_release(struct ls_axis *a)
{
    ls_free(a->from);
    ls_free(a->to);
    ls_free(a->origin);
    ls_free(a->first);
    ls_free(a->last);
    ls_free(a->share);
    *a = (struct ls_axis){0};
}
