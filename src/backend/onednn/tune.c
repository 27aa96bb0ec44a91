/* Choosing among oneDNN's implementations, and our own. Direct and Winograd convolutions differ by a factor of two either
 * way, but a rule on the shape says nearly always which is faster, and chooses the same on an idle and on a busy machine.
 * With --tune they are measured as well, for processors that nobody tried: backend/core/kernel_selection.h then leaves the rule for a
 * kernel that is half again as fast. backend/core/tune_cache.h remembers. */
#include "backend/core/tune_cache.h"
#include "backend/core/kernel_selection.h"
#include "backend/onednn/program.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 10 };

struct tuner {
    struct ls_tune_cache cache;
    char *region; /* for operands while measuring; owned */
    size_t region_bytes;
};

static void machine_name(const struct ls_program *p, char *text, size_t room)
{
    char version[32], line[256], model[80] = "cpu";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0) {
            char *value = strchr(line, ':');
            if (value)
                snprintf(model, sizeof model, "%.79s", value + 2);
            break;
        }
    if (f)
        fclose(f);
    model[strcspn(model, "|\n")] = 0;
    snprintf(text, room, "%s, oneDNN %s and own 2, %s, %d threads", model, dnn_version(version), p->k.isa,
             p->options.threads);
}

enum ls_status tune_open(struct ls_program *p)
{
    p->tuner = ls_alloc(1, sizeof *p->tuner);
    if (!p->tuner)
        return LS_FAILED;
    machine_name(p, p->tuner->cache.machine, sizeof p->tuner->cache.machine);
    struct ls_tune_cache *a = &p->tuner->cache;
    a->plan = p->options.plan;
    a->plan_name = p->options.plan_name;
    a->binding = p->options.plan_binding;
    a->quiet = p->options.quiet;
    return ls_tune_cache_open(a, p->options.cache);
}

enum ls_status tune_close(struct ls_program *p)
{
    struct tuner *t = p->tuner;
    enum ls_status st = ls_tune_cache_close(&t->cache, p->options.cache, &p->choices);
    ls_region_unmap(t->region, t->region_bytes);
    ls_free(t);
    p->tuner = NULL;
    return st;
}

void choice_release(struct choice *c)
{
    dnn_pd_release(&c->pd);
    dnn_md_release(&c->wei);
}

/* --- candidates ---------------------------------------------------------------------------------------------- */

static int weights_arg(const struct dnn_spec *s)
{
    return s->pass == DNN_BWD_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
}

static bool may_winograd(const struct dnn_spec *s)
{
    return s->kind == DNN_CONV && s->w_rank == 4 && s->wei[2] == 3 && s->wei[3] == 3 && s->stride[0] == 1 &&
           s->stride[1] == 1 && s->dilation[0] == 0 && s->dilation[1] == 0 && s->dtype == LS_F32;
}

/* Can the weights get from how they are stored to what the candidate reads (or back, for their gradient)? */
static bool reachable(const struct ls_program *p, const struct dnn_spec *s, const struct dnn_md *fixed,
                      const struct dnn_md *wei)
{
    if (!fixed || dnn_md_equal(fixed, wei))
        return true;
    return s->pass == DNN_BWD_WEIGHTS ? dnn_can_reorder(&p->dnn, wei, fixed) : dnn_can_reorder(&p->dnn, fixed, wei);
}

static int add_candidates(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed,
                          struct choice *list, int count)
{
    struct dnn_pd pds[4];
    int found = dnn_list(&p->dnn, spec, pds, 4);
    for (int i = 0; i < found; i++) {
        struct choice c = {.pd = pds[i]};
        bool fits = count < MAX_CANDIDATES && dnn_pd_md(&c.pd, weights_arg(spec), &c.wei) == LS_OK &&
                    reachable(p, spec, fixed, &c.wei);
        for (int k = 0; k < count && fits; k++)
            fits = strcmp(list[k].pd.name, c.pd.name) != 0 || !dnn_md_equal(&list[k].wei, &c.wei);
        if (fits)
            list[count++] = c;
        else
            choice_release(&c);
    }
    return count;
}

/* Reference implementations are hundreds of times slower: they stay only where nothing else is. */
static int drop_references(struct choice *list, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (!strstr(list[i].pd.name, "ref"))
            kept++;
    if (kept == 0 || kept == count)
        return count;
    kept = 0;
    for (int i = 0; i < count; i++)
        if (strstr(list[i].pd.name, "ref"))
            choice_release(&list[i]);
        else
            list[kept++] = list[i];
    return kept;
}

/* Our own Winograd beside the library's. */
static int add_own(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed, struct choice *list,
                   int count)
{
    struct choice c = {0};
    snprintf(c.pd.name, sizeof c.pd.name, "winograd:%s", p->k.isa);
    if (count < MAX_CANDIDATES && winograd_fits(p, spec) && winograd_layout(p, spec, &c.wei) == LS_OK &&
        reachable(p, spec, fixed, &c.wei))
        list[count++] = c;
    else
        choice_release(&c);
    return count;
}

/* The candidate's name: implementation, and "+reorder" when the weights must change their layout for it. */
static void choice_name(const struct choice *c, const struct dnn_md *fixed, char name[64])
{
    snprintf(name, 64, "%.50s%s", c->pd.name, fixed && !dnn_md_equal(&c->wei, fixed) ? "+reorder" : "");
}

/* Only the first of a name stays, so that a name says which candidate it is. */
static int drop_namesakes(const struct dnn_md *fixed, struct choice *list, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        char name[64], other[64];
        bool first = true;
        choice_name(&list[i], fixed, name);
        for (int k = 0; k < kept && first; k++) {
            choice_name(&list[k], fixed, other);
            first = strcmp(name, other) != 0;
        }
        if (first)
            list[kept++] = list[i];
        else
            choice_release(&list[i]);
    }
    return kept;
}

/* --- the rule: C1 of selection.h ------------------------------------------------------------------------------------ */

enum method { DIRECT, OWN_WINOGRAD, LIBRARY_WINOGRAD };

static enum method method_of(const struct choice *c)
{
    return !c->pd.pd ? OWN_WINOGRAD : strstr(c->pd.name, "wino") ? LIBRARY_WINOGRAD : DIRECT;
}

/* Which method is likely to be fastest. Winograd's transforms cost more than they save with fewer than two blocks of
 * channels, and on maps smaller than a tile, except in sums over the whole batch. The library's Winograd beats ours on maps
 * of many channels unless there are few tiles; in gradients of weights, where tiles are many and threads share them.
 * Measured with 16 to 512 channels, maps of 2x2 to 224x224, batches of 8 to 256, 2 and 16 threads, on two processors with
 * AVX-512: within some 5 % of the fastest, summed over the 3x3 convolutions of a network. */
static enum method likely_method(const struct ls_program *p, const struct dnn_spec *s)
{
    int64_t tiles = s->dst[0] * ((s->dst[2] + 3) / 4) * ((s->dst[3] + 3) / 4);
    int64_t channels = s->src[1] < s->dst[1] ? s->src[1] : s->dst[1];
    bool weights = s->pass == DNN_BWD_WEIGHTS;
    if (!may_winograd(s) || channels < 32 || (!weights && (s->dst[2] < 4 || s->dst[3] < 4)))
        return DIRECT;
    bool library = weights ? tiles * p->options.threads >= 4096 : channels >= 128 && tiles >= 128;
    return library ? LIBRARY_WINOGRAD : OWN_WINOGRAD;
}

/* The first candidate of a method moves to the front. */
static void put_first(enum method method, struct choice *list, int count)
{
    for (int i = 1; i < count; i++)
        if (method_of(&list[i]) == method) {
            struct choice first = list[i];
            memmove(list + 1, list, (size_t)i * sizeof *list);
            list[0] = first;
            return;
        }
}

static void order_by_rule(const struct ls_program *p, const struct dnn_spec *s, struct choice *list, int count)
{
    enum method likely = likely_method(p, s);
    if (likely == LIBRARY_WINOGRAD)
        put_first(OWN_WINOGRAD, list, count); /* where the library has none */
    if (count > 0 && method_of(&list[0]) != likely)
        put_first(likely, list, count);
}

/* Implementations that take the weights as they are, then those that want them otherwise. */
static int candidates(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed,
                      struct choice *list)
{
    int count = 0;
    struct dnn_spec s = *spec;
    for (int free_layout = fixed == NULL; free_layout < 2; free_layout++) {
        s.wei_md = free_layout ? NULL : fixed;
        s.winograd = false;
        count = add_candidates(p, &s, fixed, list, count);
    }
    if (may_winograd(spec)) {
        count = add_own(p, spec, fixed, list, count);
        for (int free_layout = fixed == NULL; free_layout < 2; free_layout++) {
            s.wei_md = free_layout ? NULL : fixed;
            s.winograd = true;
            count = add_candidates(p, &s, fixed, list, count);
        }
    }
    count = drop_namesakes(fixed, list, drop_references(list, count));
    order_by_rule(p, spec, list, count);
    return count;
}

static void question_text(const struct dnn_spec *s, const struct dnn_md *fixed, char *text, size_t room)
{
    static const char *const pass[] = {"fwd", "bwd_data", "bwd_weights"};
    char layout[48] = "any", from[48];
    if (fixed)
        dnn_md_text(fixed, layout, sizeof layout);
    dnn_md_text(s->src_md, from, sizeof from);
    int used = snprintf(text, room, "%s %s %s src", s->kind == DNN_CONV ? "conv" : "dense", pass[s->pass],
                        ls_dtype_name(s->dtype));
    for (int i = 0; i < s->rank; i++)
        used += snprintf(text + used, room - (size_t)used, "%c%" PRId64, i ? 'x' : ' ', s->src[i]);
    used += snprintf(text + used, room - (size_t)used, " %s wei", from);
    for (int i = 0; i < s->w_rank; i++)
        used += snprintf(text + used, room - (size_t)used, "%c%" PRId64, i ? 'x' : ' ', s->wei[i]);
    snprintf(text + used, room - (size_t)used,
             " stride %" PRId64 "x%" PRId64 " pad %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " dilation %" PRId64
             "x%" PRId64 "%s %s %s",
             s->stride[0], s->stride[1], s->pad_l[0], s->pad_l[1], s->pad_r[0], s->pad_r[1], s->dilation[0],
             s->dilation[1], s->bias ? " bias" : "", ls_act_name(s->act), layout);
}

/* A layout change costs a read and a write of the weights; 10 GB/s is what such a copy gets on a core or two. */
static double reorder_ms(const struct choice *c, const struct dnn_md *fixed)
{
    return fixed && !dnn_md_equal(&c->wei, fixed) ? 2.0 * (double)dnn_md_bytes(&c->wei) / 10e9 * 1e3 : 0.0;
}

/* --- measuring ----------------------------------------------------------------------------------------------- */

static const int operands[] = {DNNL_ARG_SRC,       DNNL_ARG_WEIGHTS,  DNNL_ARG_BIAS,
                               DNNL_ARG_DST,       DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS,
                               DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD};
enum { N_OPERANDS = sizeof operands / sizeof *operands };

/* Room for all operands, filled with ordinary numbers: zeros and NaNs may run at other speeds. */
static enum ls_status make_room(struct tuner *t, size_t bytes)
{
    void *region;
    if (bytes <= t->region_bytes)
        return LS_OK;
    LS_TRY(ls_region_map(bytes, &region));
    ls_region_unmap(t->region, t->region_bytes);
    t->region = region;
    t->region_bytes = bytes;
    uint32_t *words = region;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < bytes / 4; i++)
        words[i] = 0x3d803d80u + (uint32_t)(i % 97) * 0x10001u; /* about 0.0625, as f32 and as two bf16 */
    return LS_OK;
}

/* The operand's place behind what is laid out already. */
static size_t lay_out(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += (bytes + 4095) / 4096 * 4096;
    return offset;
}

/* Either of the two kinds of implementation; the best of a few runs after a first one. */
static enum ls_status run_once(struct ls_program *p, const struct dnn_prim *prim, const struct ls_winograd *own)
{
    if (prim)
        return dnn_prim_run(&p->dnn, prim);
    p->k.winograd(own);
    return LS_OK;
}

static enum ls_status time_runs(struct ls_program *p, const struct dnn_prim *prim, const struct ls_winograd *own,
                                double *best)
{
    enum { MAX_RUNS = 4 };
    const double enough = 0.02;
    double spent = 0;
    *best = 1e30;
    LS_TRY(run_once(p, prim, own));
    for (int run = 0; run < MAX_RUNS && (run < 1 || spent < enough); run++) {
        double start = ls_now();
        LS_TRY(run_once(p, prim, own));
        double took = ls_now() - start;
        spent += took;
        if (took * 1e3 < *best)
            *best = took * 1e3;
    }
    return LS_OK;
}

static enum ls_status measure_own(struct ls_program *p, const struct dnn_spec *s, struct choice *c)
{
    struct tuner *t = p->tuner;
    struct ls_winograd w;
    size_t used = 0;
    winograd_shape(p, s, &w);
    size_t src = lay_out(&used, dnn_md_bytes(s->src_md)), dst = lay_out(&used, dnn_md_bytes(s->dst_md));
    size_t wei = lay_out(&used, dnn_md_bytes(&c->wei)), bias = lay_out(&used, (size_t)(s->dst[1] + 16) * sizeof(float));
    size_t scratch = lay_out(&used, p->k.winograd_scratch(&w));
    LS_TRY(make_room(t, used));
    winograd_point(&w, t->region + src, t->region + wei, s->bias ? t->region + bias : NULL, t->region + dst,
                   t->region + scratch);
    return time_runs(p, NULL, &w, &c->ms);
}

static enum ls_status measure(struct ls_program *p, const struct dnn_spec *s, struct choice *c)
{
    size_t offset[N_OPERANDS], used = 0;
    struct dnn_prim prim;
    int present[DNN_MAX_ARGS], n_present = 0;
    if (!c->pd.pd)
        return measure_own(p, s, c);
    for (int i = 0; i < N_OPERANDS && n_present < DNN_MAX_ARGS; i++) {
        struct dnn_md md;
        LS_TRY(dnn_pd_md(&c->pd, operands[i], &md));
        if (md.set)
            present[n_present++] = operands[i];
        offset[i] = lay_out(&used, dnn_md_bytes(&md));
        dnn_md_release(&md);
    }
    LS_TRY(make_room(p->tuner, used));
    LS_TRY(dnn_prim_init(&p->dnn, &c->pd, present, n_present, &prim));
    for (int i = 0; i < N_OPERANDS; i++)
        dnn_prim_point(&prim, operands[i], p->tuner->region + offset[i]);
    enum ls_status st = time_runs(p, &prim, NULL, &c->ms);
    dnn_prim_release(&prim);
    return st;
}

struct field {
    struct ls_program *p;
    const struct dnn_spec *spec;
    const struct dnn_md *fixed;
    struct choice *list;
};

static enum ls_status time_candidate(void *context, int candidate, double *ms)
{
    struct field *f = context;
    struct choice *c = &f->list[candidate];
    LS_TRY(measure(f->p, f->spec, c));
    *ms = c->ms + reorder_ms(c, f->fixed);
    return LS_OK;
}

/* The candidate that is remembered; -1: none is, or it cannot be had. */
static enum ls_status recall(struct ls_program *p, const char *layer, const char *question, const struct dnn_md *fixed,
                             const struct choice *list, int count, int *best)
{
    struct ls_tune_choice *known = ls_tune_cache_find(&p->tuner->cache, question);
    char name[64];
    for (int i = 0; known && i < count; i++) {
        choice_name(&list[i], fixed, name);
        if (strcmp(known->name, name) == 0) {
            ls_tune_cache_use(&p->tuner->cache, known);
            *best = i;
            return LS_OK;
        }
    }
    *best = -1;
    return ls_tune_cache_miss(&p->tuner->cache, layer, question, known);
}

static enum ls_status choose(struct ls_program *p, const char *layer, const struct dnn_spec *spec,
                             const struct dnn_md *fixed, struct choice *list, int count, int *best)
{
    struct field field = {p, spec, fixed, list};
    struct ls_kernel_selection selection = {
        .n = count, .margin = 1.5, .noise = 0.15, .time = time_candidate, .context = &field};
    struct ls_tune_cache *cache = &p->tuner->cache;
    char question[320], name[64];
    double ms = 0;
    question_text(spec, fixed, question, sizeof question);
    LS_TRY(recall(p, layer, question, fixed, list, count, best));
    if (*best >= 0)
        return LS_OK;
    bool measured = count > 1 && p->options.tune;
    *best = 0;
    if (measured) {
        ls_tune_cache_progress(cache, layer, "this processor");
        LS_TRY(ls_kernel_select(&selection, best, &ms));
    }
    choice_name(&list[*best], fixed, name);
    return ls_tune_cache_add(cache, question, name, ms, 0, measured);
}

enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct dnn_spec *spec,
                         const struct dnn_md *fixed, struct choice *choice)
{
    struct choice list[MAX_CANDIDATES] = {0};
    int count = candidates(p, spec, fixed, list), best = -1;
    if (count == 0)
        return ls_fail(LS_FAILED, "layer %s: oneDNN has no implementation for this %s", layer,
                       spec->kind == DNN_CONV ? "convolution" : "dense layer");
    enum ls_status st = choose(p, layer, spec, fixed, list, count, &best);
    for (int i = 0; i < count; i++)
        if (i != best || st != LS_OK)
            choice_release(&list[i]);
    if (st == LS_OK)
        *choice = list[best];
    return st;
}
