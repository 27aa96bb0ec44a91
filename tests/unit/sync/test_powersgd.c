/* PowerSGD: promises W1 to W4 of sync/powersgd/powersgd.h, for matrices row after row and in blocks. */
#include "compress_help.h"

#include "base/memory.h"
#include "sync/powersgd/powersgd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

enum { RANKS = 3, ROWS = 48, COLS = 130, RANK = 2, AREA = ROWS * COLS };

/* Some ranks that train together, and their sums. */
struct group {
    int n;
    struct ls_lowrank_shape shape;
    struct ls_powersgd s[RANKS];
    float p[RANKS][8 * COLS], q[RANKS][8 * COLS];
};

static void group_open(struct group *g, int n, struct ls_lowrank_shape shape)
{
    g->n = n;
    g->shape = shape;
    for (int r = 0; r < n; r++)
        assert_int_equal(ls_powersgd_init(&g->s[r], &shape, 1, 2, g->p[r], g->q[r]), LS_OK);
}

static void group_close(struct group *g)
{
    for (int r = 0; r < g->n; r++)
        ls_powersgd_release(&g->s[r]);
}

static void sum_over(struct group *g, float part[RANKS][8 * COLS], size_t count)
{
    for (int r = 1; r < g->n; r++)
        for (size_t i = 0; i < count; i++)
            part[0][i] += part[r][i];
    for (int r = 1; r < g->n; r++)
        memcpy(part[r], part[0], count * sizeof part[0][0]);
}

/* grads become the group's sum. */
static void group_step(struct group *g, float grads[RANKS][AREA])
{
    for (int r = 0; r < g->n; r++)
        ls_powersgd_begin(&g->s[r], grads[r]);
    sum_over(g, g->p, (size_t)g->shape.rank * g->shape.rows);
    for (int r = 0; r < g->n; r++)
        ls_powersgd_middle(&g->s[r], grads[r]);
    sum_over(g, g->q, (size_t)g->shape.rank * g->shape.cols);
    for (int r = 0; r < g->n; r++)
        ls_powersgd_end(&g->s[r], grads[r]);
}

static size_t position(const struct ls_lowrank_shape *s, size_t i, size_t j)
{
    return (i / s->block * s->cols + j) * s->block + i % s->block;
}

/* A matrix of rank k, in the storage order of the shape. */
static void low_rank(const struct ls_lowrank_shape *s, int k, uint64_t stream, float *m)
{
    float a[8 * COLS], b[8 * COLS];
    fill(a, sizeof a / sizeof *a, stream);
    fill(b, sizeof b / sizeof *b, stream + 1);
    for (size_t i = 0; i < s->rows; i++)
        for (size_t j = 0; j < s->cols; j++) {
            double x = 0;
            for (int c = 0; c < k; c++)
                x += (double)a[(size_t)c * s->rows + i] * (double)b[(size_t)c * s->cols + j];
            m[position(s, i, j)] = (float)x;
        }
}

static const struct ls_lowrank_shape shapes[] = {
    {ROWS, COLS, 1, RANK}, {ROWS, COLS, 8, RANK},  {ROWS, COLS, 16, 1}, {ROWS, COLS, 48, 3},
    {ROWS, COLS, 16, 5},   {COLS - 1, ROWS, 1, 4}, {47, 129, 1, 7},
};

static void powersgd_is_exact_up_to_its_rank(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], before[AREA];
    static struct group g;
    for (const struct ls_lowrank_shape *shape = shapes; shape < shapes + LENGTH(shapes); shape++)
        for (int k = 1; k <= shape->rank; k++) {
            group_open(&g, 1, *shape);
            low_rank(shape, k, 20, grads[0]);
            memcpy(before, grads[0], sizeof before);
            group_step(&g, grads);
            assert_true(distance(grads[0], before, shape->rows * shape->cols) < 1e-5);
            assert_true(sqrt(squares(g.s[0].feedback, shape->rows * shape->cols) /
                             squares(before, shape->rows * shape->cols)) < 1e-5);
            group_close(&g);
        }
}

static void powersgd_nears_a_fixed_matrix(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], fixed[AREA];
    static struct group g;
    for (const struct ls_lowrank_shape *shape = shapes; shape < shapes + LENGTH(shapes); shape++) {
        size_t area = shape->rows * shape->cols;
        group_open(&g, 1, *shape);
        fill(fixed, area, 30);
        double first = 0, last = 0;
        for (int step = 0; step < 12; step++) {
            memcpy(grads[0], fixed, sizeof fixed);
            memset(g.s[0].feedback, 0, area * sizeof(float)); /* the same matrix each time */
            group_step(&g, grads);
            last = distance(grads[0], fixed, area);
            if (step == 0)
                first = last;
            assert_true(last < 1.0);
            assert_true(fabs(sqrt(squares(g.s[0].feedback, area) / squares(fixed, area)) / last - 1) < 1e-3);
        }
        assert_true(last < first);
        group_close(&g);
    }
}

/* With feedback the running sum of what came out follows that of what went in. W2 */
static void powersgd_makes_up_for_its_error(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], fixed[RANKS][AREA];
    static double in[AREA], out[AREA];
    static struct group g;
    const struct ls_lowrank_shape shape = {ROWS, COLS, 16, RANK};
    double early = 0, late = 0;
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    group_open(&g, RANKS, shape);
    for (int r = 0; r < RANKS; r++)
        fill(fixed[r], AREA, 40 + (uint64_t)r);
    for (int step = 1; step <= 200; step++) {
        memcpy(grads, fixed, sizeof grads);
        group_step(&g, grads);
        double apart = 0, whole = 0;
        for (int i = 0; i < AREA; i++) {
            double kept = 0;
            for (int r = 0; r < RANKS; r++) {
                in[i] += (double)fixed[r][i];
                kept += (double)g.s[r].feedback[i];
            }
            out[i] += (double)grads[0][i];
            assert_true(fabs(in[i] - out[i] - kept) < 1e-3);
            apart += (in[i] - out[i]) * (in[i] - out[i]);
            whole += in[i] * in[i];
        }
        late = sqrt(apart / whole);
        if (step == 20)
            early = late;
    }
    assert_true(late < early / 3);
    group_close(&g);
}

/* W1 */
static void powersgd_gives_all_ranks_the_same_bits(void **state)
{
    (void)state;
    static float grads[RANKS][AREA];
    static struct group g;
    for (const struct ls_lowrank_shape *shape = shapes; shape < shapes + LENGTH(shapes); shape++) {
        group_open(&g, RANKS, *shape);
        for (int r = 0; r < RANKS; r++) /* each on another instruction set, where there are several */
            if (ls_lowrank_pick(isas[r]))
                g.s[r].passes = ls_lowrank_pick(isas[r]);
        for (int step = 0; step < 5; step++) {
            for (int r = 0; r < RANKS; r++)
                fill(grads[r], AREA, 50 + (uint64_t)(step * RANKS + r));
            group_step(&g, grads);
            for (int r = 1; r < RANKS; r++) {
                assert_memory_equal(grads[0], grads[r], shape->rows * shape->cols * sizeof(float));
                assert_memory_equal(g.q[0], g.q[r], (size_t)shape->rank * shape->cols * sizeof(float));
            }
        }
        group_close(&g);
    }
}

/* And one rank's own passes do not depend on the instruction set either. */
static void lowrank_instruction_sets_agree(void **state)
{
    (void)state;
    static float m[2][AREA], feedback[2][AREA], p[2][8 * COLS], q[2][8 * COLS];
    const struct ls_lowrank *base = ls_lowrank_pick("sse2");
    for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++)
        for (const struct ls_lowrank_shape *shape = shapes; shape < shapes + LENGTH(shapes); shape++) {
            const struct ls_lowrank *other = ls_lowrank_pick(*isa);
            if (!other)
                continue;
            for (int side = 0; side < 2; side++) {
                const struct ls_lowrank *l = side ? other : base;
                fill(m[side], AREA, 60);
                fill(feedback[side], AREA, 61);
                fill(q[side], 8 * COLS, 62);
                l->left(shape, m[side], feedback[side], q[side], p[side]);
                l->right(shape, m[side], p[side], q[side]);
                l->rebuild(shape, m[side], feedback[side], p[side], q[side], q[side]);
            }
            assert_memory_equal(p[0], p[1], (size_t)shape->rank * shape->rows * sizeof(float));
            assert_memory_equal(q[0], q[1], (size_t)shape->rank * shape->cols * sizeof(float));
            assert_memory_equal(m[0], m[1], sizeof m[0]);
            assert_memory_equal(feedback[0], feedback[1], sizeof m[0]);
        }
}

/* W3 */
static void powersgd_shows_what_is_no_number(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], before[AREA];
    static struct group g;
    static const float bad[] = {NAN, INFINITY};
    const struct ls_lowrank_shape shape = {ROWS, COLS, 1, RANK};
    for (int b = 0; b < 2; b++) {
        group_open(&g, RANKS, shape);
        for (int r = 0; r < RANKS; r++)
            fill(grads[r], AREA, 75);
        group_step(&g, grads); /* leaves feedback behind */
        for (int r = 0; r < RANKS; r++)
            low_rank(&shape, 1, 70, grads[r]);
        grads[1][99] = bad[b];
        group_step(&g, grads);
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < AREA; i++)
                assert_true(isnan(grads[r][i]) && g.s[r].feedback[i] == 0.0f);
        for (int r = 0; r < RANKS; r++)
            low_rank(&shape, 1, 70, grads[r]);
        for (int i = 0; i < AREA; i++)
            before[i] = grads[0][i] * RANKS;
        group_step(&g, grads); /* as if nothing had been */
        assert_true(distance(grads[2], before, AREA) < 1e-5);
        group_close(&g);
    }
}

static void powersgd_survives_zeros(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], before[AREA];
    static struct group g;
    const struct ls_lowrank_shape shape = {ROWS, COLS, 8, RANK};
    group_open(&g, 1, shape);
    memset(grads, 0, sizeof grads);
    group_step(&g, grads);
    assert_true(squares(grads[0], AREA) == 0.0);
    for (float size = 1.0f; size > 1e-19f; size *= 1e-3f) { /* and values whose squares vanish in f32 */
        low_rank(&shape, RANK, 80, grads[0]);
        for (int i = 0; i < AREA; i++)
            before[i] = grads[0][i] *= size;
        memset(g.s[0].feedback, 0, sizeof grads[0]);
        group_step(&g, grads);
        assert_true(distance(grads[0], before, AREA) < 1e-4);
    }
    group_close(&g);
}

/* W4, and a resumed run that brings q, feedback and round goes on with the same bits. */
static void powersgd_can_be_saved(void **state)
{
    (void)state;
    static float grads[RANKS][AREA], again[RANKS][AREA];
    static struct group g, resumed;
    const struct ls_lowrank_shape shape = {ROWS, COLS, 16, RANK};
    group_open(&g, 1, shape);
    group_open(&resumed, 1, shape);
    uint64_t calls = ls_memory_calls();
    for (uint64_t step = 0; step < 3; step++) {
        fill(grads[0], AREA, 90 + step);
        group_step(&g, grads);
    }
    assert_int_equal(ls_memory_calls(), calls);
    memcpy(resumed.q[0], g.q[0], sizeof g.q[0]);
    memcpy(resumed.s[0].feedback, g.s[0].feedback, sizeof grads[0]);
    resumed.s[0].round = g.s[0].round;
    fill(grads[0], AREA, 95);
    fill(again[0], AREA, 95);
    group_step(&g, grads);
    group_step(&resumed, again);
    assert_memory_equal(grads[0], again[0], sizeof grads[0]);
    group_close(&g);
    group_close(&resumed);
}

static void powersgd_knows_when_it_pays(void **state)
{
    (void)state;
    assert_false(ls_powersgd_pays(1, 4096, 1));
    assert_false(ls_powersgd_pays(64, 1, 1));
    assert_false(ls_powersgd_pays(8, 8, 4));
    assert_false(ls_powersgd_pays(10, 10, 3));
    assert_true(ls_powersgd_pays(512, 4608, 4));
}

static void sum_low_rank(void *context, float (*grads)[PARAMETERS], float *sum)
{
    static float wide[RANKS][AREA];
    for (int w = 0; w < WORKERS; w++)
        memcpy(wide[w], grads[w], sizeof grads[w]);
    group_step(context, wide);
    memcpy(sum, wide[0], sizeof grads[0]);
}

static void sgd_converges(void **state)
{
    (void)state;
    static struct group g;
    group_open(&g, WORKERS, (struct ls_lowrank_shape){SIDE, SIDE, 1, RANK});
    assert_true(descend(sum_low_rank, &g) < 0.05);
    group_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powersgd_is_exact_up_to_its_rank), cmocka_unit_test(powersgd_nears_a_fixed_matrix),
        cmocka_unit_test(powersgd_makes_up_for_its_error),  cmocka_unit_test(powersgd_gives_all_ranks_the_same_bits),
        cmocka_unit_test(lowrank_instruction_sets_agree),   cmocka_unit_test(powersgd_shows_what_is_no_number),
        cmocka_unit_test(powersgd_survives_zeros),          cmocka_unit_test(powersgd_can_be_saved),
        cmocka_unit_test(powersgd_knows_when_it_pays),      cmocka_unit_test(sgd_converges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
