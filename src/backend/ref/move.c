#include "backend/ref/ref.h"

#include <string.h>

/* flatten, unflatten, reorder: in plain NCHW all of them keep the values where they are. */
void ls_ref_copy(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    memcpy(y.v, x.v, (size_t)ls_ref_count(&y) * sizeof *y.v);
}

/* Channels from_first ... of one tensor to channels to_first ... of the other. */
static void copy_channels(const struct ls_ref_view *from, int64_t from_first, const struct ls_ref_view *to,
                          int64_t to_first, int64_t channels)
{
    for (int64_t n = 0; n < from->n; n++)
        memcpy(ls_ref_at(to, n, to_first, 0, 0), ls_ref_at(from, n, from_first, 0, 0),
               (size_t)(channels * from->h * from->w) * sizeof *to->v);
}

void ls_ref_concat(const struct ls_ref_call *call)
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

void ls_ref_slice(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    copy_channels(&dy, call->n->attr.offset, &dx, 0, dx.c);
}
