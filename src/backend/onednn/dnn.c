#include "backend/onednn/dnn.h"
#include "base/log.h"

#include <cpuid.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- what differs between 2.x and 3.x ---------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
#define MD(m) ((m)->d)
#define NO_MD NULL
typedef const_dnnl_memory_desc_t md_ref;
#else
#define MD(m) (&(m)->d)
#define NO_MD NULL
typedef const dnnl_memory_desc_t *md_ref;
#endif

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
    static const dnnl_format_tag_t blocked[] = {[DNN_BLOCKED_8] = dnnl_nChw8c,
                                                [DNN_BLOCKED_16] = dnnl_nChw16c,
                                                [DNN_WEIGHTS_8] = dnnl_OIhw8i8o,
                                                [DNN_WEIGHTS_16] = dnnl_OIhw16i16o};
    return blocked[tag];
}

static enum ls_status check(dnnl_status_t status, const char *what)
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
    return check(s, "making a memory layout");
}

enum ls_status dnn_md_copy(struct dnn_md *to, const struct dnn_md *from)
{
    *to = (struct dnn_md){0};
    if (!from->set)
        return LS_OK;
#if DNNL_VERSION_MAJOR >= 3
    LS_TRY(check(dnnl_memory_desc_clone(&to->d, from->d), "copying a memory layout"));
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
    return a->set && b->set && dnnl_memory_desc_equal(MD(a), MD(b));
}

size_t dnn_md_bytes(const struct dnn_md *md)
{
    return md->set ? dnnl_memory_desc_get_size(MD(md)) : 0;
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
    md_ref bias = s->bias ? MD(&a->bias) : NO_MD;
    bool conv = s->kind == DNN_CONV;
    switch (pass) {
    case DNN_BWD_DATA:
        return conv ? dnnl_convolution_backward_data_primitive_desc_create(pd, d->engine, alg, MD(&a->src), MD(&a->wei),
                                                                           MD(&a->dst), s->stride, s->dilation,
                                                                           s->pad_l, s->pad_r, hint, attr)
                    : dnnl_inner_product_backward_data_primitive_desc_create(pd, d->engine, MD(&a->src), MD(&a->wei),
                                                                             MD(&a->dst), hint, attr);
    case DNN_BWD_WEIGHTS:
        return conv ? dnnl_convolution_backward_weights_primitive_desc_create(
                          pd, d->engine, alg, MD(&a->src), MD(&a->wei), bias, MD(&a->dst), s->stride, s->dilation,
                          s->pad_l, s->pad_r, hint, attr)
                    : dnnl_inner_product_backward_weights_primitive_desc_create(pd, d->engine, MD(&a->src), MD(&a->wei),
                                                                                bias, MD(&a->dst), hint, attr);
    default:
        return conv ? dnnl_convolution_forward_primitive_desc_create(pd, d->engine, prop, alg, MD(&a->src), MD(&a->wei),
                                                                     bias, MD(&a->dst), s->stride, s->dilation,
                                                                     s->pad_l, s->pad_r, attr)
                    : dnnl_inner_product_forward_primitive_desc_create(pd, d->engine, prop, MD(&a->src), MD(&a->wei),
                                                                       bias, MD(&a->dst), attr);
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
    md_ref bias = s->bias ? MD(&a->bias) : NO_MD;
    bool conv = s->kind == DNN_CONV;
    switch (pass) {
    case DNN_BWD_DATA:
        return conv ? dnnl_dilated_convolution_backward_data_desc_init(&op->conv, alg, MD(&a->src), MD(&a->wei),
                                                                       MD(&a->dst), s->stride, s->dilation, s->pad_l,
                                                                       s->pad_r)
                    : dnnl_inner_product_backward_data_desc_init(&op->dense, MD(&a->src), MD(&a->wei), MD(&a->dst));
    case DNN_BWD_WEIGHTS:
        return conv ? dnnl_dilated_convolution_backward_weights_desc_init(&op->conv, alg, MD(&a->src), MD(&a->wei),
                                                                          bias, MD(&a->dst), s->stride, s->dilation,
                                                                          s->pad_l, s->pad_r)
                    : dnnl_inner_product_backward_weights_desc_init(&op->dense, MD(&a->src), MD(&a->wei), bias,
                                                                    MD(&a->dst));
    default:
        return conv
                   ? dnnl_dilated_convolution_forward_desc_init(&op->conv, prop, alg, MD(&a->src), MD(&a->wei), bias,
                                                                MD(&a->dst), s->stride, s->dilation, s->pad_l, s->pad_r)
                   : dnnl_inner_product_forward_desc_init(&op->dense, prop, MD(&a->src), MD(&a->wei), bias,
                                                          MD(&a->dst));
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
    LS_TRY(check(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "opening the CPU engine"));
    return check(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags), "opening a stream");
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
    if (dnnl_reorder_primitive_desc_create(&pd, MD(from), d->engine, MD(to), d->engine, NULL) != dnnl_success)
        return false;
    dnnl_primitive_desc_destroy(pd);
    return true;
}

enum ls_status dnn_reorder_pd(const struct dnn *d, const struct dnn_md *from, const struct dnn_md *to,
                              struct dnn_pd *pd)
{
    dnnl_primitive_attr_t attr;
    LS_TRY(check(dnnl_primitive_attr_create(&attr), "making attributes"));
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd->pd, MD(from), d->engine, MD(to), d->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    snprintf(pd->name, sizeof pd->name, "reorder");
    return check(s, "finding a reorder");
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
    md_ref found = dnnl_primitive_desc_query_md(pd->pd, dnnl_query_exec_arg_md, arg);
    if (!found || dnnl_memory_desc_get_size(found) == 0)
        return LS_OK;
#if DNNL_VERSION_MAJOR >= 3
    LS_TRY(check(dnnl_memory_desc_clone(&md->d, found), "copying a memory layout"));
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
    LS_TRY(check(dnnl_primitive_create(&prim->p, pd->pd), "making a primitive"));
    for (int i = 0; i < n_args && st == LS_OK; i++) {
        md_ref md = dnnl_primitive_desc_query_md(pd->pd, dnnl_query_exec_arg_md, args[i]);
        if (!md || dnnl_memory_desc_get_size(md) == 0)
            continue;
        prim->args[prim->n_args].arg = args[i];
        st = check(dnnl_memory_create(&prim->args[prim->n_args].memory, md, d->engine, DNNL_MEMORY_NONE),
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
    return check(dnnl_primitive_execute(prim->p, d->stream, prim->n_args, prim->args), "running a primitive");
}

void dnn_prim_release(struct dnn_prim *prim)
{
    for (int i = 0; i < prim->n_args; i++)
        dnnl_memory_destroy(prim->args[i].memory);
    if (prim->p)
        dnnl_primitive_destroy(prim->p);
    *prim = (struct dnn_prim){0};
}

/* --- AMX ------------------------------------------------------------------------------------------------------ */

static bool amx_advertised(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 24));
}

/* A small bf16 product, which is where oneDNN uses AMX; runs in a child that may die of it. */
static int try_bf16(void)
{
    int64_t src[] = {64, 64}, wei[] = {64, 64};
    struct dnn d = {0};
    struct dnn_md md = {0};
    struct dnn_pd list[1] = {{0}};
    struct dnn_prim prim;
    static char room[1 << 20] __attribute__((aligned(64)));
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    if (dnn_open(&d) != LS_OK || dnn_md_init(&md, 2, src, LS_BF16, DNN_PLAIN) != LS_OK)
        return 1;
    struct dnn_spec spec = {.kind = DNN_DENSE, .rank = 2, .w_rank = 2, .dtype = LS_BF16, .src_md = &md, .dst_md = &md};
    memcpy(spec.src, src, sizeof src);
    memcpy(spec.dst, src, sizeof src);
    memcpy(spec.wei, wei, sizeof wei);
    if (dnn_list(&d, &spec, list, 1) != 1 || dnn_prim_init(&d, list, args, 4, &prim) != LS_OK)
        return 1;
    for (int i = 0; i < prim.n_args; i++)
        dnn_prim_point(&prim, prim.args[i].arg, room + i * (1 << 17));
    return dnn_prim_run(&d, &prim) != LS_OK;
}

static bool amx_works(void)
{
    if (!amx_advertised())
        return true;
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        static const int deadly[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
        for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
            signal(deadly[i], SIG_DFL); /* the child must die of it, whatever its parent does */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        omp_set_num_threads(1); /* a forked child has none of its parent's threads to wait for */
        alarm(20);
        _exit(try_bf16());
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static enum dnn_amx guard_amx(void)
{
    if (amx_works())
        return DNN_AMX_FINE;
    return dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16) == dnnl_success ||
                   !(dnnl_get_effective_cpu_isa() & ~dnnl_cpu_isa_avx512_core_bf16)
               ? DNN_AMX_OFF
               : DNN_AMX_FAULTS;
}

/* oneDNN's instruction set is settled once in a process, and so is this. */
enum dnn_amx dnn_guard_amx(void)
{
    static _Atomic int known = -1;
    if (known < 0)
        known = (int)guard_amx();
    return (enum dnn_amx)known;
}
