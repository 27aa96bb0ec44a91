#include "backend/onednn/dnn.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* --- what differs between 2.x and 3.x ---------------------------------------------------------------------- */

static void add_act(dnnl_primitive_attr_t attr, enum ls_act act)
{
    dnnl_post_ops_t ops;
    dnnl_alg_kind_t alg = act == LS_ACT_RELU6 ? dnnl_eltwise_clip : dnnl_eltwise_relu;
    float high = act == LS_ACT_RELU6 ? 6.0f : 0.0f;
    if (act == LS_ACT_NONE || dnnl_post_ops_create(&ops) != dnnl_success)
        return;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_post_ops_append_eltwise(ops, alg, 0.0f, high);
#else
    dnnl_post_ops_append_eltwise(ops, 1.0f, alg, 0.0f, high);
#endif
    dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
}

/* The layouts a spec asks the library with. */
struct asked {
    struct dnn_md src, wei, bias, dst;
};

static void asked_release(struct asked *a)
{
    dnn_md_release(&a->src);
    dnn_md_release(&a->wei);
    dnn_md_release(&a->bias);
    dnn_md_release(&a->dst);
}

static enum ls_status asked_init(struct asked *a, const struct dnn_spec *s)
{
    *a = (struct asked){0};
    /* Gradients of weights and biases are f32 whatever the activations are; biases too. */
    enum ls_dtype wei = s->pass == DNN_BWD_WEIGHTS ? LS_F32 : s->dtype;
    LS_TRY(dnn_md_copy(&a->src, s->src_md));
    LS_TRY(dnn_md_copy(&a->dst, s->dst_md));
    if (s->wei_md)
        LS_TRY(dnn_md_copy(&a->wei, s->wei_md));
    else
        LS_TRY(dnn_md_init(&a->wei, s->w_rank, s->wei, wei, DNN_ANY));
    int64_t outputs = s->dst[1];
    return s->bias ? dnn_md_init(&a->bias, 1, &outputs, LS_F32, DNN_PLAIN) : LS_OK;
}

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t make_pd(const struct dnn *d, const struct dnn_spec *s, struct asked *a, enum dnn_pass pass,
                             dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    dnnl_alg_kind_t alg = s->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    dnnl_prop_kind_t prop = dnnl_forward_training; /* also to evaluate: the kernels and layouts of training */
    dnn_md_ref bias = s->bias ? DNN_MD(&a->bias) : NULL;
    bool conv = s->kind == DNN_CONV;
    switch (pass) {
    case DNN_BWD_DATA:
        return conv ? dnnl_convolution_backward_data_primitive_desc_create(pd, d->engine, alg, DNN_MD(&a->src),
                                                                           DNN_MD(&a->wei), DNN_MD(&a->dst), s->stride,
                                                                           s->dilation, s->pad_l, s->pad_r, hint, attr)
                    : dnnl_inner_product_backward_data_primitive_desc_create(
                          pd, d->engine, DNN_MD(&a->src), DNN_MD(&a->wei), DNN_MD(&a->dst), hint, attr);
    case DNN_BWD_WEIGHTS:
        return conv ? dnnl_convolution_backward_weights_primitive_desc_create(
                          pd, d->engine, alg, DNN_MD(&a->src), DNN_MD(&a->wei), bias, DNN_MD(&a->dst), s->stride,
                          s->dilation, s->pad_l, s->pad_r, hint, attr)
                    : dnnl_inner_product_backward_weights_primitive_desc_create(
                          pd, d->engine, DNN_MD(&a->src), DNN_MD(&a->wei), bias, DNN_MD(&a->dst), hint, attr);
    default:
        return conv ? dnnl_convolution_forward_primitive_desc_create(pd, d->engine, prop, alg, DNN_MD(&a->src),
                                                                     DNN_MD(&a->wei), bias, DNN_MD(&a->dst), s->stride,
                                                                     s->dilation, s->pad_l, s->pad_r, attr)
                    : dnnl_inner_product_forward_primitive_desc_create(pd, d->engine, prop, DNN_MD(&a->src),
                                                                       DNN_MD(&a->wei), bias, DNN_MD(&a->dst), attr);
    }
}

/* Walks a primitive descriptor through the library's implementations. */
struct walk {
    dnnl_primitive_desc_t pd;
};
static bool walk_begin(struct walk *w, const struct dnn *d, const struct dnn_spec *s, struct asked *a,
                       dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint)
{
    return make_pd(d, s, a, s->pass, attr, hint, &w->pd) == dnnl_success;
}
static dnnl_primitive_desc_t walk_take(struct walk *w)
{
    dnnl_primitive_desc_t copy = NULL;
    dnnl_primitive_desc_clone(&copy, w->pd);
    return copy;
}
static bool walk_next(struct walk *w)
{
    return dnnl_primitive_desc_next_impl(w->pd) == dnnl_success;
}
static void walk_end(struct walk *w)
{
    dnnl_primitive_desc_destroy(w->pd);
}
static dnnl_status_t make_hint(const struct dnn *d, const struct dnn_spec *s, struct asked *a,
                               dnnl_primitive_desc_t *hint)
{
    return make_pd(d, s, a, DNN_FORWARD, NULL, NULL, hint);
}

#else

union op_desc {
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t dense;
};

static dnnl_status_t make_desc(const struct dnn_spec *s, struct asked *a, enum dnn_pass pass, union op_desc *op)
{
    dnnl_alg_kind_t alg = s->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    dnnl_prop_kind_t prop = dnnl_forward_training; /* also to evaluate: the kernels and layouts of training */
    dnn_md_ref bias = s->bias ? DNN_MD(&a->bias) : NULL;
    bool conv = s->kind == DNN_CONV;
    switch (pass) {
    case DNN_BWD_DATA:
        return conv ? dnnl_dilated_convolution_backward_data_desc_init(&op->conv, alg, DNN_MD(&a->src), DNN_MD(&a->wei),
                                                                       DNN_MD(&a->dst), s->stride, s->dilation,
                                                                       s->pad_l, s->pad_r)
                    : dnnl_inner_product_backward_data_desc_init(&op->dense, DNN_MD(&a->src), DNN_MD(&a->wei),
                                                                 DNN_MD(&a->dst));
    case DNN_BWD_WEIGHTS:
        return conv ? dnnl_dilated_convolution_backward_weights_desc_init(&op->conv, alg, DNN_MD(&a->src),
                                                                          DNN_MD(&a->wei), bias, DNN_MD(&a->dst),
                                                                          s->stride, s->dilation, s->pad_l, s->pad_r)
                    : dnnl_inner_product_backward_weights_desc_init(&op->dense, DNN_MD(&a->src), DNN_MD(&a->wei), bias,
                                                                    DNN_MD(&a->dst));
    default:
        return conv ? dnnl_dilated_convolution_forward_desc_init(&op->conv, prop, alg, DNN_MD(&a->src), DNN_MD(&a->wei),
                                                                 bias, DNN_MD(&a->dst), s->stride, s->dilation,
                                                                 s->pad_l, s->pad_r)
                    : dnnl_inner_product_forward_desc_init(&op->dense, prop, DNN_MD(&a->src), DNN_MD(&a->wei), bias,
                                                           DNN_MD(&a->dst));
    }
}

struct walk {
    dnnl_primitive_desc_iterator_t it;
    union op_desc op; /* the iterator keeps a pointer to it */
};
static bool walk_begin(struct walk *w, const struct dnn *d, const struct dnn_spec *s, struct asked *a,
                       dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint)
{
    return make_desc(s, a, s->pass, &w->op) == dnnl_success &&
           dnnl_primitive_desc_iterator_create(&w->it, &w->op, attr, d->engine, hint) == dnnl_success;
}
static dnnl_primitive_desc_t walk_take(struct walk *w)
{
    return dnnl_primitive_desc_iterator_fetch(w->it);
}
static bool walk_next(struct walk *w)
{
    return dnnl_primitive_desc_iterator_next(w->it) == dnnl_success;
}
static void walk_end(struct walk *w)
{
    dnnl_primitive_desc_iterator_destroy(w->it);
}
static dnnl_status_t make_hint(const struct dnn *d, const struct dnn_spec *s, struct asked *a,
                               dnnl_primitive_desc_t *hint)
{
    union op_desc op;
    dnnl_status_t st = make_desc(s, a, DNN_FORWARD, &op);
    return st == dnnl_success ? dnnl_primitive_desc_create(hint, &op, NULL, d->engine, NULL) : st;
}

#endif

/* --- the same for both ------------------------------------------------------------------------------------- */

enum ls_status dnn_open(struct dnn *d)
{
    LS_TRY(dnn_check(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "opening the CPU engine"));
    return dnn_check(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags), "opening a stream");
}

void dnn_close(struct dnn *d)
{
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    *d = (struct dnn){0};
}

const char *dnn_version(char text[32])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, 32, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

const char *dnn_isa(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        return NULL;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? "avx2" : "sse2";
}

/* A bwd pass wants the forward descriptor as a hint, whose weights may be in any layout and of the forward type. */
static dnnl_primitive_desc_t forward_hint(const struct dnn *d, const struct dnn_spec *s)
{
    struct dnn_spec forward = *s;
    struct asked a;
    dnnl_primitive_desc_t hint = NULL;
    forward.pass = DNN_FORWARD;
    forward.wei_md = NULL;
    if (asked_init(&a, &forward) == LS_OK)
        make_hint(d, &forward, &a, &hint);
    asked_release(&a);
    return hint;
}

int dnn_list(const struct dnn *d, const struct dnn_spec *spec, struct dnn_pd *list, int room)
{
    struct asked a;
    struct walk w;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint = NULL;
    int count = 0;
    bool backward = spec->pass == DNN_BWD_DATA || spec->pass == DNN_BWD_WEIGHTS;
    if (asked_init(&a, spec) != LS_OK || dnnl_primitive_attr_create(&attr) != dnnl_success)
        return 0;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (backward)
        hint = forward_hint(d, spec);
    else
        add_act(attr, spec->act);
    if ((!backward || hint) && walk_begin(&w, d, spec, &a, attr, hint)) {
        do {
            const char *name = "";
            dnnl_primitive_desc_t pd = walk_take(&w);
            if (!pd)
                break;
            dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
            if (strstr(name, "ref") && count > 0) {
                dnnl_primitive_desc_destroy(pd);
                break;
            }
            list[count].pd = pd;
            snprintf(list[count].name, sizeof list[count].name, "%s", name);
            count++;
        } while (count < room && walk_next(&w));
        walk_end(&w);
    }
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    asked_release(&a);
    return count;
}

bool dnn_can_reorder(const struct dnn *d, const struct dnn_md *from, const struct dnn_md *to)
{
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, DNN_MD(from), d->engine, DNN_MD(to), d->engine, NULL) != dnnl_success)
        return false;
    dnnl_primitive_desc_destroy(pd);
    return true;
}

enum ls_status dnn_reorder_pd(const struct dnn *d, const struct dnn_md *from, const struct dnn_md *to,
                              struct dnn_pd *pd)
{
    dnnl_primitive_attr_t attr;
    LS_TRY(dnn_check(dnnl_primitive_attr_create(&attr), "making attributes"));
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd->pd, DNN_MD(from), d->engine, DNN_MD(to), d->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    snprintf(pd->name, sizeof pd->name, "reorder");
    return dnn_check(s, "finding a reorder");
}

void dnn_pd_release(struct dnn_pd *pd)
{
    if (pd->pd)
        dnnl_primitive_desc_destroy(pd->pd);
    *pd = (struct dnn_pd){0};
}

enum ls_status dnn_pd_md(const struct dnn_pd *pd, int arg, struct dnn_md *md)
{
    *md = (struct dnn_md){0};
    dnn_md_ref found = dnnl_primitive_desc_query_md(pd->pd, dnnl_query_exec_arg_md, arg);
    if (!found || dnnl_memory_desc_get_size(found) == 0)
        return LS_OK;
#if DNNL_VERSION_MAJOR >= 3
    LS_TRY(dnn_check(dnnl_memory_desc_clone(&md->d, found), "copying a memory layout"));
#else
    md->d = *found;
#endif
    md->set = true;
    return LS_OK;
}

enum ls_status dnn_prim_init(const struct dnn *d, const struct dnn_pd *pd, const int *args, int n_args,
                             struct dnn_prim *prim)
{
    enum ls_status st = LS_OK;
    *prim = (struct dnn_prim){0};
    LS_TRY(dnn_check(dnnl_primitive_create(&prim->p, pd->pd), "making a primitive"));
    for (int i = 0; i < n_args && st == LS_OK; i++) {
        dnn_md_ref md = dnnl_primitive_desc_query_md(pd->pd, dnnl_query_exec_arg_md, args[i]);
        if (!md || dnnl_memory_desc_get_size(md) == 0)
            continue;
        prim->args[prim->n_args].arg = args[i];
        st = dnn_check(dnnl_memory_create(&prim->args[prim->n_args].memory, md, d->engine, DNNL_MEMORY_NONE),
                       "making a memory object");
        prim->n_args += st == LS_OK;
    }
    if (st != LS_OK)
        dnn_prim_release(prim);
    return st;
}

void dnn_prim_point(struct dnn_prim *prim, int arg, void *address)
{
    for (int i = 0; i < prim->n_args; i++)
        if (prim->args[i].arg == arg)
            dnnl_memory_set_data_handle(prim->args[i].memory, address);
}

enum ls_status dnn_prim_run(const struct dnn *d, const struct dnn_prim *prim)
{
    return dnn_check(dnnl_primitive_execute(prim->p, d->stream, prim->n_args, prim->args), "running a primitive");
}

void dnn_prim_release(struct dnn_prim *prim)
{
    for (int i = 0; i < prim->n_args; i++)
        dnnl_memory_destroy(prim->args[i].memory);
    if (prim->p)
        dnnl_primitive_destroy(prim->p);
    *prim = (struct dnn_prim){0};
}
