/* The implementations that a convolution or dense layer can run: oneDNN's, and our own. They are listed in the
 * order of a rule on the shape, the likely fastest first (SELECT-1 of core/kernel_selection.h). */
#include "backend/onednn/candidates.h"

#include <stdio.h>
#include <string.h>

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
           s->stride[1] == 1 && s->dilation[0] == 0 && s->dilation[1] == 0;
}

/* Can oneDNN reorder the weights from the stored layout to that of the candidate (for a gradient: back)? */
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

/* Reference implementations are hundreds of times slower: they stay only where there are no others. */
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

static int add_own(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed,
                   enum ls_conv_method method, struct choice *list, int count)
{
    struct choice c = {.own = method};
    static const char *const names[] = {[LS_CONV_WINOGRAD] = "winograd",
                                        [LS_CONV_AMX] = "amx",
                                        [LS_CONV_IMAGES] = "amx images",
                                        [LS_CONV_GROUPS] = "groups"};
    snprintf(c.pd.name, sizeof c.pd.name, "%s:%s", names[method], p->k.isa);
    if (count < MAX_CANDIDATES && own_conv_fits(p, spec, method) && own_conv_layout(p, spec, method, &c.wei) == LS_OK &&
        reachable(p, spec, fixed, &c.wei))
        list[count++] = c;
    else
        choice_release(&c);
    return count;
}

/* The candidate's name: implementation, and "+reorder" when the weights must change their layout for it. */
void choice_name(const struct choice *c, const struct dnn_md *fixed, char name[64])
{
    snprintf(name, 64, "%.50s%s", c->pd.name, fixed && !dnn_md_equal(&c->wei, fixed) ? "+reorder" : "");
}

/* Names are unique: of several candidates with one name the first stays. */
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

/* --- the rule (SELECT-1) ----------------------------------------------------------------------------------------- */

enum method { DIRECT, OWN_WINOGRAD, LIBRARY_WINOGRAD, OWN_AMX, OWN_GROUPS };

static enum method method_of(const struct choice *c)
{
    return c->own == LS_CONV_AMX || c->own == LS_CONV_IMAGES ? OWN_AMX
           : c->own == LS_CONV_GROUPS                        ? OWN_GROUPS
           : c->own == LS_CONV_WINOGRAD                      ? OWN_WINOGRAD
           : strstr(c->pd.name, "wino")                      ? LIBRARY_WINOGRAD
                                                             : DIRECT;
}

/* Which method is likely to be fastest. Winograd's transforms cost more than they save with fewer than two blocks of
 * channels, and on maps smaller than a tile, except in sums over the whole batch. On maps of one pixel a single tap counts,
 * which f32 computes directly. In bf16, transformed weights cost more than they save where tiles are few. The Winograd of
 * oneDNN beats the native one, which transforms weights again for each portion of tiles, where those are many and large; in
 * gradients of weights, where tiles are many and threads share them. Measured with 16 to 512 channels, maps of 1x1 to 224x224,
 * batches of 1 to 256, 1, 2 and 16 threads, on three processors with AVX-512: within some 5 % of the fastest, summed over the
 * 3x3 convolutions of a network. */
static enum method likely_method(const struct ls_program *p, const struct dnn_spec *s)
{
    int64_t tiles = s->dst[0] * ((s->dst[2] + 3) / 4) * ((s->dst[3] + 3) / 4);
    int64_t channels = s->src[1] < s->dst[1] ? s->src[1] : s->dst[1];
    bool weights = s->pass == DNN_BWD_WEIGHTS;
    if (s->w_rank == 5)
        return OWN_GROUPS; /* likewise */
    if (s->dtype == LS_BF16 && p->k.conv[LS_CONV_AMX].run)
        return OWN_AMX;
    int threads = p->core.options.threads;
    if (!may_winograd(s) || channels < 32 || (!weights && (s->dst[2] < 4 || s->dst[3] < 4)))
        return DIRECT;
    if (s->dtype == LS_BF16) /* tiles of 2x2; the library has no Winograd */
        return 12 * s->dst[0] * ((s->dst[2] + 1) / 2) * ((s->dst[3] + 1) / 2) < channels ? DIRECT : OWN_WINOGRAD;
    if (s->dst[2] * s->dst[3] == 1)
        return DIRECT;
    bool large = tiles * s->src[1] * s->dst[1] >= (threads > 1 ? 24 << 20 : 12 << 20) || (threads > 1 && tiles >= 128);
    bool library = weights ? tiles * threads >= 4096 : channels >= 128 && large;
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

/* First the implementations that read the weights as stored, then those that need another layout. */
int candidates(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed, struct choice *list)
{
    int count = 0;
    struct dnn_spec s = *spec;
    for (int free_layout = fixed == NULL; free_layout < 2; free_layout++) {
        s.wei_md = free_layout ? NULL : fixed;
        s.winograd = false;
        count = add_candidates(p, &s, fixed, list, count);
    }
    count = add_own(p, spec, fixed, LS_CONV_AMX, list, count);
    count = add_own(p, spec, fixed, LS_CONV_IMAGES, list, count);
    count = add_own(p, spec, fixed, LS_CONV_GROUPS, list, count);
    if (may_winograd(spec)) {
        count = add_own(p, spec, fixed, LS_CONV_WINOGRAD, list, count);
        for (int free_layout = fixed == NULL; free_layout < 2 && s.dtype == LS_F32; free_layout++) {
            s.wei_md = free_layout ? NULL : fixed;
            s.winograd = true;
            count = add_candidates(p, &s, fixed, list, count);
        }
    }
    count = drop_namesakes(fixed, list, drop_references(list, count));
    order_by_rule(p, spec, list, count);
    return count;
}
