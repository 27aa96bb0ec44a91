/* Values of tensors as plain rows, and the layout of tensors as matrices. */
#include "backend/onednn/program.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Copy between a tensor's memory and plain f32 (i32 for integer tensors) in row-major order. */
static enum ls_status convert(const struct ls_program *p, int tensor, void *values, bool out)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    const struct ls_place *place = &p->core.places[tensor];
    enum ls_dtype dtype = t->dtype == LS_I32 ? LS_I32 : LS_F32;
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", t->name);
    if (t->dtype == dtype && !p->layouts[tensor].blocked && t->shape.rank <= 1) {
        memcpy(out ? values : place->data, out ? place->data : values, (size_t)ls_shape_count(&t->shape) * 4);
        return LS_OK;
    }
    enum ls_status st = LS_OK;
    struct dnn_md plain = {0};
    struct dnn_pd pd = {0};
    struct dnn_prim prim = {0};
    void *scratch = NULL;
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    LS_TRY(dnn_md_plain(&plain, &p->layouts[tensor].md, dtype));
    LS_TRY_GOTO(release_plain, dnn_reorder_pd(&p->dnn, out ? &p->layouts[tensor].md : &plain,
                                              out ? &plain : &p->layouts[tensor].md, &pd));
    struct dnn_md scratch_md;
    LS_TRY_GOTO(release_plain, dnn_pd_md(&pd, DNNL_ARG_SCRATCHPAD, &scratch_md));
    if (scratch_md.set && !(scratch = ls_alloc(dnn_md_bytes(&scratch_md), 1)))
        st = LS_FAILED;
    dnn_md_release(&scratch_md);
    if (st == LS_OK)
        st = dnn_prim_init(&p->dnn, &pd, args, 3, &prim);
    if (st == LS_OK) {
        dnn_prim_point(&prim, DNNL_ARG_FROM, out ? place->data : values);
        dnn_prim_point(&prim, DNNL_ARG_TO, out ? values : place->data);
        dnn_prim_point(&prim, DNNL_ARG_SCRATCHPAD, scratch);
        st = dnn_prim_run(&p->dnn, &prim);
    }
    dnn_prim_release(&prim);
    ls_free(scratch);
release_plain:
    dnn_pd_release(&pd);
    dnn_md_release(&plain);
    return st;
}

enum ls_status read_tensor(const struct ls_program *p, int tensor, void *values)
{
    return convert(p, tensor, values, true);
}

enum ls_status write_tensor(struct ls_program *p, int tensor, const void *values)
{
    return convert(p, tensor, (void *)(uintptr_t)values, false);
}

/* Layout texts begin with the outermost dimension, in capitals when it is blocked, and end with the innermost block:
 * ABcd16b16a is blocks of 16 of dimension a, and within a block one after the other. */
bool tensor_matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block)
{
    const struct ls_shape *s = &p->core.g->tensors[tensor].shape;
    const struct ls_place *place = &p->core.places[tensor];
    char layout[48];
    size_t length;
    if (s->rank < 2 || !place->placed)
        return false;
    dnn_md_text(&p->layouts[tensor].md, layout, sizeof layout);
    length = strlen(layout);
    size_t digits = strcspn(layout, "0123456789");
    int outer = layout[0] | 0x20, inner = layout[length - 1];
    *block = 1;
    if (digits < length) { /* blocked: the innermost block must be of the outermost dimension, and its only one */
        const char *last = layout + length - 1;
        while (last > layout && last[-1] >= '0' && last[-1] <= '9')
            last--;
        *block = strtoull(last, NULL, 10);
        for (const char *c = layout + digits; c < last; c++)
            if (*c == inner)
                return false;
        if (inner != outer)
            return false;
    }
    if (outer != 'a' && (outer != 'b' || digits == length))
        return false;
    size_t dim = (size_t)s->dim[outer - 'a'];
    *rows = (dim + *block - 1) / *block * *block;
    *cols = place->bytes / sizeof(float) / *rows;
    return *rows * *cols * sizeof(float) == place->bytes;
}
