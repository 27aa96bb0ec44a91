/* What joins tensors, and what takes them apart. */
#include "backend/ref/ref.h"

#include <string.h>

static void add(const struct ls_ref_call *call)
{
    struct ls_ref_view a = ls_ref_in(call, 0), b = ls_ref_in(call, 1), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = ls_ref_act_of(call->n->attr.act, (double)a.v[i] + (double)b.v[i]);
}

static void sum(const struct ls_ref_call *call)
{
    struct ls_ref_view a = ls_ref_in(call, 0), b = ls_ref_in(call, 1), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = a.v[i] + b.v[i];
}

/* Channels from_first ... of one tensor to channels to_first ... of the other. */
static void copy_channels(const struct ls_ref_view *from, int64_t from_first, const struct ls_ref_view *to,
                          int64_t to_first, int64_t channels)
{
    for (int64_t n = 0; n < from->n; n++)
        memcpy(ls_ref_at(to, n, to_first, 0, 0), ls_ref_at(from, n, from_first, 0, 0),
               (size_t)(channels * from->h * from->w) * sizeof *to->v);
}

static void concat(const struct ls_ref_call *call)
{
    struct ls_ref_view y = ls_ref_out(call, 0);
    for (int64_t i = 0, first = 0; i < LS_MAX_IN; i++) {
        struct ls_ref_view x = ls_ref_in(call, (int)i);
        if (!x.v)
            break;
        copy_channels(&x, 0, &y, first, x.c);
        first += x.c;
    }
}

static void slice(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    copy_channels(&dy, call->n->attr.offset, &dx, 0, dx.c);
}

const struct ls_ref_op ls_ref_ops_join[] = {
    {"add", add}, {"sum", sum}, {"concat", concat}, {"slice", slice}, {0},
};
