/* Our own kernels of large dense layers on every instruction set that this processor has, in f32 and bf16: all passes against
 * sums in double precision; and the bits of the whole layer from its rows divided among 2 to 8 workers (SPLIT-1, SPLIT-2), in
 * both layouts of the weights, on one to three threads (LOOP-1). And weights as pairs of bf16. */
#include "bf16.h"
#include "backend/onednn/kernels/kernels.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const sets[] = {"avx512bf16", "avx512", "avx2", "sse2"};

/* samples, inputs, rows: chunks of full and of odd size, 8 and fewer of them, columns beyond the last whole block */
static const int64_t shapes[][3] = {{7, 130, 512}, {37, 70, 500}, {3, 1100, 259},
                                    {1, 65, 128},  {18, 33, 130}, {2, 64, 200}};

/* A kernel, and the type of its activations. */
struct kernel {
    const struct ls_dense_kernel *k;
    bool bf16;
};

struct layer {
    int64_t n, inputs, rows, first, whole, block;
    float *x, *w, *b, *dy, *y, *dx, *dw, *db; /* owned; dx has room for all parts */
};

/* bf16 has them all. */
static float *numbers(uint64_t stream, int64_t count)
{
    float *values = ls_alloc((size_t)count, sizeof *values);
    assert_non_null(values);
    ls_random_fill_normal(7, stream, 1, count, values);
    for (int64_t i = 0; i < count; i++)
        values[i] = from_bf16(to_bf16(values[i]));
    return values;
}

/* Not a number, as long as nothing is written. */
static float *room(int64_t count)
{
    float *values = ls_alloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return memset(values, 0xff, (size_t)count * sizeof *values);
}

/* Values as a kernel has them, and back. The memory is of exact size, so that a tool for memory errors sees what is read beyond
 * it. */
static void *stored(bool bf16, const float *values, int64_t count)
{
    uint16_t *half = ls_alloc((size_t)count, bf16 ? sizeof *half : sizeof *values);
    assert_non_null(half);
    if (!bf16)
        return memcpy(half, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        half[i] = to_bf16(values[i]);
    return half;
}
static void take(bool bf16, void *memory, float *values, int64_t count)
{
    if (!bf16)
        memcpy(values, memory, (size_t)count * sizeof *values);
    for (int64_t i = 0; bf16 && i < count; i++)
        values[i] = from_bf16(((uint16_t *)memory)[i]);
    ls_free(memory);
}

static int64_t stored_rows(const struct layer *l)
{
    return l->block ? (l->rows + l->block - 1) / l->block * l->block : l->rows;
}
static int64_t weight_at(const struct layer *l, int64_t row, int64_t input)
{
    return l->block ? (row / l->block * l->inputs + input) * l->block + row % l->block : row * l->inputs + input;
}

/* Rows [first, first + rows) of the layer. */
static void layer_init(struct layer *l, const int64_t *shape, int64_t first, int64_t rows, int64_t block)
{
    *l = (struct layer){shape[0], shape[1], rows, first, shape[2], block, 0, 0, 0, 0, 0, 0, 0, 0};
    float *w = numbers(1, l->inputs * l->whole), *b = numbers(2, l->whole), *dy = numbers(3, l->n * l->whole);
    l->x = numbers(4, l->n * l->inputs);
    l->w = room(stored_rows(l) * l->inputs);
    l->b = room(rows);
    l->dy = room(l->n * rows);
    l->y = room(l->n * rows);
    l->dx = room(LS_SPLIT_CHUNKS * l->n * l->inputs);
    l->dw = room(stored_rows(l) * l->inputs);
    l->db = room(rows);
    memset(l->w, 0, (size_t)(stored_rows(l) * l->inputs) * sizeof *l->w);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < l->inputs; i++)
            l->w[weight_at(l, r, i)] = w[(first + r) * l->inputs + i];
        l->b[r] = b[first + r];
        for (int64_t n = 0; n < l->n; n++)
            l->dy[n * rows + r] = dy[n * l->whole + first + r];
    }
    ls_free(w);
    ls_free(b);
    ls_free(dy);
}

static void layer_release(struct layer *l)
{
    float *all[] = {l->x, l->w, l->b, l->dy, l->y, l->dx, l->dw, l->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ls_free(all[i]);
}

/* parts: the gradient of the inputs is left in parts, and not rounded. */
static void compute(const struct kernel *k, const struct layer *l, int threads, bool parts)
{
    struct ls_attr attr = {.whole_rows = l->whole, .first_row = l->first};
    struct ls_shape shape = {2, {l->rows, l->inputs}};
    struct ls_dense d = {
        .threads = threads, .n = l->n, .rows = l->rows, .inputs = l->inputs, .block = l->block, .sums = parts};
    void *x = stored(k->bf16, l->x, l->n * l->inputs), *dy = stored(k->bf16, l->dy, l->n * l->rows);
    ls_split_range_of(&attr, &shape, &d.range);
    d.act = LS_ACT_RELU;
    for (d.pass = LS_CONV_FORWARD; d.pass <= LS_CONV_WEIGHTS; d.pass++) {
        bool half = k->bf16 && d.pass != LS_CONV_WEIGHTS && !(d.pass == LS_CONV_DATA && parts);
        float *out = d.pass == LS_CONV_FORWARD ? l->y : d.pass == LS_CONV_DATA ? l->dx : l->dw;
        int64_t count = d.pass == LS_CONV_FORWARD ? l->n * l->rows
                        : d.pass == LS_CONV_DATA  ? (parts ? LS_SPLIT_CHUNKS : 1) * l->n * l->inputs
                                                  : stored_rows(l) * l->inputs;
        d.w = l->w;
        d.bias = l->b;
        d.in = d.pass == LS_CONV_DATA ? dy : x;
        d.dy = dy;
        d.out = stored(half, out, count);
        d.out_bias = l->db;
        d.scratch = ls_alloc(k->k->scratch(&d), 1);
        assert_non_null(d.scratch);
        memset(d.scratch, 0xff, k->k->scratch(&d)); /* NaN: whatever is read must have been written */
        k->k->run(&d);
        ls_free(d.scratch);
        take(half, d.out, out, count);
    }
    ls_free(x);
    ls_free(dy);
}

static void assert_near(double a, double b, double error)
{
    assert_true(fabs(a - b) < error * (1 + fabs(b)));
}

static void compare_with_doubles(const struct layer *l, bool bf16)
{
    double error = bf16 ? 4e-3 : 1e-4;
    for (int64_t n = 0; n < l->n; n++)
        for (int64_t r = 0; r < l->rows; r++) {
            double sum = (double)l->b[r];
            for (int64_t i = 0; i < l->inputs; i++)
                sum += (double)l->x[n * l->inputs + i] * (double)l->w[weight_at(l, r, i)];
            assert_near((double)l->y[n * l->rows + r], sum > 0 ? sum : 0, error);
        }
    for (int64_t n = 0; n < l->n; n++)
        for (int64_t i = 0; i < l->inputs; i++) {
            double sum = 0;
            for (int64_t r = 0; r < l->rows; r++)
                sum += (double)l->dy[n * l->rows + r] * (double)l->w[weight_at(l, r, i)];
            assert_near((double)l->dx[n * l->inputs + i], sum, error);
        }
    for (int64_t r = 0; r < l->rows; r++)
        for (int64_t i = 0; i < l->inputs; i++) {
            double sum = 0;
            for (int64_t n = 0; n < l->n; n++)
                sum += (double)l->dy[n * l->rows + r] * (double)l->x[n * l->inputs + i];
            assert_near((double)l->dw[weight_at(l, r, i)], sum, 1e-4);
        }
}

/* A part's results have the bits of the whole's. */
static void compare_rows(const struct layer *part, const struct layer *whole)
{
    int differ = memcmp(part->db, whole->db + part->first, (size_t)part->rows * sizeof(float)) != 0;
    for (int64_t r = 0; r < part->rows; r++) {
        for (int64_t n = 0; n < part->n; n++)
            differ += part->y[n * part->rows + r] != whole->y[n * whole->rows + part->first + r];
        for (int64_t i = 0; i < part->inputs; i++)
            differ += part->dw[weight_at(part, r, i)] != whole->dw[weight_at(whole, part->first + r, i)];
    }
    assert_int_equal(differ, 0);
}

/* The parts of all workers, added along the tree. */
struct sums {
    float *values; /* owned */
    int at[LS_SPLIT_CHUNKS + 1], n;
};

static void add_parts(struct sums *s, const struct layer *l, int first, int end, int chunks)
{
    int at[LS_SPLIT_CHUNKS + 1], parts = ls_split_parts(first, end, chunks, at);
    int64_t size = l->n * l->inputs;
    assert_true(parts <= LS_SPLIT_PARTS);
    for (int part = 0; part < parts; part++) {
        memcpy(s->values + s->n * size, l->dx + part * size, (size_t)size * sizeof(float));
        s->at[s->n++] = at[part];
        while (s->n > 1 && ls_split_joins(s->at[s->n - 2], s->at[s->n - 1], at[part + 1], chunks)) {
            s->n--;
            for (int64_t i = 0; i < size; i++)
                s->values[(s->n - 1) * size + i] += s->values[s->n * size + i];
        }
    }
}

static void divide(const struct kernel *k, const struct layer *whole, int workers, int64_t block)
{
    int64_t shape[] = {whole->n, whole->inputs, whole->whole}, chunk = ls_split_chunk(whole->whole);
    int chunks = ls_split_count(whole->whole);
    struct sums sums = {.values = room(LS_SPLIT_CHUNKS * whole->n * whole->inputs)};
    for (int w = 0; w < workers; w++) {
        int first = chunks * w / workers, end = chunks * (w + 1) / workers;
        int64_t last = end * chunk < whole->whole ? end * chunk : whole->whole;
        struct layer part;
        if (first == end)
            continue;
        layer_init(&part, shape, first * chunk, last - first * chunk, block);
        compute(k, &part, 1 + w % 3, true);
        compare_rows(&part, whole);
        add_parts(&sums, &part, first, end, chunks);
        layer_release(&part);
    }
    assert_int_equal(sums.n, 1);
    for (int64_t i = 0; k->bf16 && i < whole->n * whole->inputs; i++)
        sums.values[i] = from_bf16(to_bf16(sums.values[i]));
    assert_memory_equal(sums.values, whole->dx, (size_t)(whole->n * whole->inputs) * sizeof(float));
    ls_free(sums.values);
}

static void try_kernel(const struct kernel *k, int vector)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct layer whole;
        layer_init(&whole, shapes[s], 0, shapes[s][2], 0);
        compute(k, &whole, 2, false);
        compare_with_doubles(&whole, k->bf16);
        for (int workers = 1; workers <= LS_SPLIT_CHUNKS; workers += workers < 4 ? 1 : 2)
            divide(k, &whole, workers, workers != 2 || vector != 16 ? 64 : 0);
        layer_release(&whole);
    }
}

static void dense_test(void **state)
{
    (void)state;
    int tried = 0;
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct ls_kernels k = {0};
            if (!ls_kernels_pick(bf16 ? LS_BF16 : LS_F32, sets[set], &k))
                continue;
            const struct ls_dense_kernel *list[] = {&k.dense, &k.dense_amx};
            for (size_t i = 0; i < sizeof list / sizeof *list; i++)
                if (list[i]->run) {
                    tried++;
                    try_kernel(&(struct kernel){list[i], bf16}, k.block);
                }
        }
    assert_true(tried > 0);
}

/* Weights in blocks as pairs in bf16, with one block and odd numbers of them. */
static void try_pairs(const struct ls_kernels *k, const struct ls_pairs *how)
{
    int64_t b = k->block, blocks = how->outs * how->ins * how->taps, differ = 0;
    struct ls_pairs p = *how;
    float *from = ls_alloc((size_t)(blocks * b * b), sizeof *from);
    uint16_t *to = ls_alloc((size_t)(blocks * b * b), sizeof *to);
    assert_non_null(from);
    assert_non_null(to);
    ls_random_fill_normal(7, 5, 1, blocks * b * b, from);
    p.from = from;
    p.to = to;
    k->pairs(&p);
    for (int64_t at = 0; at < blocks * b * b; at++) {
        int64_t block = at / b / b, in = at / b % b, out = at % b, tap = block % p.taps;
        int64_t i = block / p.taps % p.ins, o = block / p.taps / p.ins;
        int64_t place = (p.ins_first ? (i * p.outs + o) * p.taps + tap : block) * b * b;
        place += p.of_results ? (out / 2 * b + in) * 2 + out % 2 : (in / 2 * b + out) * 2 + in % 2;
        differ += to[place] != to_bf16(from[at]);
    }
    assert_int_equal(differ, 0);
    ls_free(from);
    ls_free(to);
}

static void pairs_test(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 9}, {3, 5, 1}};
    (void)state;
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        struct ls_kernels k = {0};
        if (!ls_kernels_pick(LS_BF16, sets[set], &k) || !k.pairs)
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int form = 0; form < 4; form++)
                try_pairs(&k, &(struct ls_pairs){.outs = sizes[s][0],
                                                 .ins = sizes[s][1],
                                                 .taps = sizes[s][2],
                                                 .of_results = form & 1,
                                                 .ins_first = form & 2});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense_test), cmocka_unit_test(pairs_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
