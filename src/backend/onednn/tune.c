/* Choosing among the implementations of candidates.c. Direct and Winograd convolutions differ by a factor of two either way.
 * A rule on the shape says nearly always which one is faster, and it says the same on an idle and on a busy machine. With
 * --tune they are measured as well, for processors on which the rule was never tried: core/kernel_selection.h then leaves the
 * rule for a kernel that is half again as fast. */
#include "backend/core/tuning.h"
#include "backend/onednn/candidates.h"
#include "base/system/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tuner {
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
    snprintf(text, room, "%s, oneDNN %s and own 5, %s, %d threads", model, dnn_version(version), p->k.isa,
             p->core.options.threads);
}

enum ls_status tune_open(struct ls_program *p)
{
    char machine[160];
    p->tuner = ls_alloc(1, sizeof *p->tuner);
    if (!p->tuner)
        return LS_FAILED;
    machine_name(p, machine, sizeof machine);
    return ls_tuning_open(p, machine);
}

enum ls_status tune_close(struct ls_program *p)
{
    struct tuner *t = p->tuner;
    enum ls_status st = ls_tuning_close(p);
    ls_region_unmap(t->region, t->region_bytes);
    ls_free(t);
    p->tuner = NULL;
    return st;
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

/* Make room for all operands, filled with ordinary numbers: zeros and NaNs may run at other speeds. */
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

/* The offset of the next operand. */
static size_t lay_out(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += (bytes + 4095) / 4096 * 4096;
    return offset;
}

/* Either of the two kinds of implementation. */
static enum ls_status run_once(struct ls_program *p, const struct dnn_prim *prim, const struct ls_conv *own)
{
    if (prim)
        return dnn_prim_run(&p->dnn, prim);
    p->k.conv[own->method].run(own);
    return LS_OK;
}

static enum ls_status time_runs(struct ls_program *p, const struct dnn_prim *prim, const struct ls_conv *own,
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
    struct ls_conv w;
    size_t used = 0;
    own_conv_shape(p, s, c->own, &w);
    size_t src = lay_out(&used, dnn_md_bytes(s->src_md)), dst = lay_out(&used, dnn_md_bytes(s->dst_md));
    size_t wei = lay_out(&used, dnn_md_bytes(&c->wei)), bias = lay_out(&used, (size_t)(s->dst[1] + 16) * sizeof(float));
    size_t scratch = lay_out(&used, p->k.conv[c->own].scratch(&w));
    LS_TRY(make_room(t, used));
    own_conv_point(&w, t->region + src, t->region + wei, s->bias ? t->region + bias : NULL, t->region + dst,
                   t->region + scratch);
    return time_runs(p, NULL, &w, &c->ms);
}

static enum ls_status measure(struct ls_program *p, const struct dnn_spec *s, struct choice *c)
{
    size_t offset[N_OPERANDS], used = 0;
    struct dnn_prim prim;
    int present[DNN_MAX_ARGS], n_present = 0;
    if (c->own)
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

/* --- choosing ------------------------------------------------------------------------------------------------- */

struct candidate_list {
    struct ls_program *p;
    const struct dnn_spec *spec;
    const struct dnn_md *fixed;
    struct choice *list;
    int count;
    char name[64];
};

static enum ls_status time_candidate(void *context, int candidate, double *ms)
{
    struct candidate_list *l = context;
    struct choice *c = &l->list[candidate];
    LS_TRY(measure(l->p, l->spec, c));
    *ms = c->ms + reorder_ms(c, l->fixed);
    return LS_OK;
}

static const char *candidate_name(void *context, int candidate)
{
    struct candidate_list *l = context;
    choice_name(&l->list[candidate], l->fixed, l->name);
    return l->name;
}

static bool worth_measuring(const struct candidate_list *l)
{
    return l->count > 1 && l->p->core.options.tune;
}

/* The rule's candidate is the first. */
static enum ls_status choose(void *context, struct ls_tuning_answer *answer)
{
    const struct candidate_list *l = context;
    struct ls_kernel_selection selection = {
        .n = l->count, .margin = 1.5, .noise = 0.15, .time = time_candidate, .context = context};
    answer->best = 0;
    return worth_measuring(l) ? ls_kernel_select(&selection, &answer->best, &answer->ms) : LS_OK;
}

enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct dnn_spec *spec,
                         const struct dnn_md *fixed, struct choice *choice)
{
    struct choice list[MAX_CANDIDATES] = {0};
    struct candidate_list l = {.p = p, .spec = spec, .fixed = fixed, .list = list};
    struct ls_tuning_answer answer = {0};
    char question[320];
    l.count = candidates(p, spec, fixed, list);
    if (l.count == 0)
        return ls_fail(LS_FAILED, "layer %s: oneDNN has no implementation for this %s", layer,
                       spec->kind == DNN_CONV ? "convolution" : "dense layer");
    question_text(spec, fixed, question, sizeof question);
    enum ls_status st = ls_tuning_ask(p,
                                      &(struct ls_tuning_question){.layer = layer,
                                                                   .where = "this processor",
                                                                   .text = question,
                                                                   .n = l.count,
                                                                   .measure = worth_measuring(&l),
                                                                   .context = &l,
                                                                   .name = candidate_name,
                                                                   .choose = choose},
                                      &answer);
    for (int i = 0; i < l.count; i++)
        if (i != answer.best || st != LS_OK)
            choice_release(&list[i]);
    if (st == LS_OK)
        *choice = list[answer.best];
    return st;
}
