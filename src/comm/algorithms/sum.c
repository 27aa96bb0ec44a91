#include "comm/algorithms/sum.h"
#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* Values per pass through the tree; partial sums stay in the first-level cache. */
enum { BLOCK = 1024 };

typedef void add2_function(const float *a, const float *b, size_t count, float *x, float *y);
typedef void add4_function(const float *const *in, size_t count, float *const *out);

struct kernels {
    add2_function *add2; /* x = y = a + b */
    add4_function *add4; /* out[0..3] = (in[0] + in[2]) + (in[1] + in[3]) */
};

struct ls_summer {
    const struct ls_tree *tree; /* borrowed */
    struct kernels k;
    float *unfinished;   /* owned; LS_CODEC_BLOCK for each part, reserved only */
    const float **place; /* owned; where a part's sum so far lies */
    bool pair, four;     /* the tree has two or four parts, for which there are kernels */
};

/* --- kernels -------------------------------------------------------------------------------------------------- */

/* Additions give the same bits in every instruction set (SUM-1). */
#define KERNELS(isa, attribute)                                                                        \
    attribute static void add2_##isa(const float *a, const float *b, size_t count, float *x, float *y) \
    {                                                                                                  \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) x[i] = y[i] = a[i] + b[i];              \
    }                                                                                                  \
    attribute static void add4_##isa(const float *const *in, size_t count, float *const *out)          \
    {                                                                                                  \
        const float *a = in[0], *b = in[1], *c = in[2], *d = in[3];                                    \
        float *w = out[0], *x = out[1], *y = out[2], *z = out[3];                                      \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) w[i] = x[i] = y[i] = z[i] =             \
            (a[i] + c[i]) + (b[i] + d[i]);                                                             \
    }

#if defined(__x86_64__)
KERNELS(avx512, __attribute__((target("avx512f"))))
KERNELS(avx2, __attribute__((target("avx2"))))
#endif
KERNELS(plain, )

static struct kernels pick(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return (struct kernels){add2_avx512, add4_avx512};
    if (__builtin_cpu_supports("avx2"))
        return (struct kernels){add2_avx2, add4_avx2};
#endif
    return (struct kernels){add2_plain, add4_plain};
}

void ls_sum_add(float *sum, const float *a, const float *b, size_t count)
{
    pick().add2(a, b, count, sum, sum);
}

/* --- trees ---------------------------------------------------------------------------------------------------- */

static bool is_sum(const struct ls_tree *t, int i, int to, int from)
{
    return t->sums[i].to == to && t->sums[i].from == from;
}

enum ls_status ls_summer_new(const struct ls_tree *tree, struct ls_summer **summer)
{
    struct ls_summer *s = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->tree = tree;
    s->k = pick();
    s->pair = tree->n_parts == 2;
    s->four = tree->n_parts == 4 && is_sum(tree, 0, 0, 2) && is_sum(tree, 1, 1, 3) && is_sum(tree, 2, 0, 1);
    s->place = ls_alloc((size_t)tree->n_parts, sizeof *s->place);
    void *region = NULL;
    size_t bytes = (size_t)tree->n_parts * LS_CODEC_BLOCK * sizeof(float);
    if (!s->place || ls_region_map(bytes, &region) != LS_OK) {
        ls_summer_free(s);
        return LS_FAILED;
    }
    s->unfinished = region;
    *summer = s;
    return LS_OK;
}

void ls_summer_free(struct ls_summer *s)
{
    if (!s)
        return;
    ls_region_unmap(s->unfinished, (size_t)s->tree->n_parts * LS_CODEC_BLOCK * sizeof(float));
    ls_free(s->place);
    ls_free(s);
}

static float *unfinished(struct ls_summer *s, int part)
{
    return s->unfinished + (size_t)part * LS_CODEC_BLOCK;
}

/* One block of any tree. The total ends up at place[0]. */
static void run_block(struct ls_summer *s, size_t count)
{
    const struct ls_tree *t = s->tree;
    for (int i = 0; i < t->n_sums; i++) {
        int to = t->sums[i].to;
        float *sum = unfinished(s, to);
        s->k.add2(s->place[to], s->place[t->sums[i].from], count, sum, sum);
        s->place[to] = sum;
    }
}

static void run_any(struct ls_summer *s, const float *const *operands, size_t count, float *const *results,
                    int n_results)
{
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        for (int i = 0; i < s->tree->n_parts; i++)
            s->place[i] = operands[i] + first;
        run_block(s, n);
        for (int r = 0; r < n_results; r++)
            if (results[r] + first != s->place[0])
                memcpy(results[r] + first, s->place[0], n * sizeof(float));
    }
}

void ls_summer_run(struct ls_summer *s, const float *const *operands, size_t count, float *const *results,
                   int n_results)
{
    if (count == 0 || n_results == 0)
        return;
    if (s->pair && n_results <= 2)
        s->k.add2(operands[0], operands[1], count, results[0], results[n_results - 1]);
    else if (s->four && n_results == 4)
        s->k.add4(operands, count, results);
    else if (s->four && n_results == 1)
        s->k.add4(operands, count, (float *const[]){results[0], results[0], results[0], results[0]});
    else
        run_any(s, operands, count, results, n_results);
}

void ls_summer_decode(struct ls_summer *s, const struct ls_codec *codec, const void *const *wires,
                      const float *const *operands, size_t count, float *result)
{
    const struct ls_tree *t = s->tree;
    for (int i = 0; i < t->n_parts; i++)
        s->place[i] = wires[i] ? NULL : operands[i];
    for (int i = 0; i < t->n_sums; i++) {
        int to = t->sums[i].to, from = t->sums[i].from;
        float *sum = unfinished(s, to);
        if (!s->place[to])
            codec->decode(wires[to], count, sum);
        else if (!s->place[from] && s->place[to] != sum)
            memcpy(sum, s->place[to], count * sizeof(float));
        if (!s->place[from])
            codec->decode_add(wires[from], count, sum);
        else
            s->k.add2(s->place[to] ? s->place[to] : sum, s->place[from], count, sum, sum);
        s->place[to] = sum;
    }
    if (!s->place[0])
        codec->decode(wires[0], count, result);
    else if (s->place[0] != result)
        memcpy(result, s->place[0], count * sizeof(float));
}

/* --- long ranges ---------------------------------------------------------------------------------------------- */

size_t ls_wire_bytes(const struct ls_codec *codec, size_t count)
{
    size_t whole = count / LS_CODEC_BLOCK, rest = count % LS_CODEC_BLOCK;
    return whole * codec->bytes(LS_CODEC_BLOCK) + (rest ? codec->bytes(rest) : 0);
}

void ls_wire_encode(const struct ls_codec *codec, const float *values, float *feedback, size_t count, void *wire)
{
    char *to = wire;
    for (size_t first = 0; first < count; first += LS_CODEC_BLOCK) {
        size_t n = count - first < LS_CODEC_BLOCK ? count - first : LS_CODEC_BLOCK;
        codec->encode(values + first, feedback ? feedback + first : NULL, n, to);
        to += codec->bytes(n);
    }
}

void ls_wire_decode(const struct ls_codec *codec, const void *wire, size_t count, float *values)
{
    const char *from = wire;
    for (size_t first = 0; first < count; first += LS_CODEC_BLOCK) {
        size_t n = count - first < LS_CODEC_BLOCK ? count - first : LS_CODEC_BLOCK;
        codec->decode(from, n, values + first);
        from += codec->bytes(n);
    }
}
