/* ls_sync_cut: where gradients are cut into buckets such that the last sum ends soonest. */
#include "base/random.h"
#include "sync/sync.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MOST = 10 };

struct tensors {
    int n;
    double ready[MOST];
    size_t bytes[MOST];
    struct ls_cost cost;
};

/* When the last sum ends: sums follow each other, and each begins when its last tensor is ready. */
static double end_of(const struct tensors *t, const bool *last)
{
    double end = 0;
    size_t sum = 0;
    for (int i = 0; i < t->n; i++) {
        sum += t->bytes[i];
        if (!last[i])
            continue;
        end = (end > t->ready[i] ? end : t->ready[i]) + t->cost.alpha + t->cost.beta * (double)sum;
        sum = 0;
    }
    return end;
}

static void expect_cut(struct tensors t, const char *expected)
{
    bool last[MOST];
    assert_int_equal(ls_sync_cut(t.n, t.ready, t.bytes, t.cost, last), LS_OK);
    for (int i = 0; i < t.n; i++)
        assert_int_equal(last[i], expected[i] == '|');
}

static void one_tensor_is_one_bucket(void **state)
{
    (void)state;
    expect_cut((struct tensors){1, {1}, {4}, {1, 1}}, "|");
}

static void a_dear_start_makes_one_bucket(void **state)
{
    (void)state;
    expect_cut((struct tensors){4, {1, 2, 3, 4}, {4, 4, 4, 4}, {100, 1e-3}}, "...|");
}

static void a_free_start_makes_a_bucket_of_each(void **state)
{
    (void)state;
    expect_cut((struct tensors){4, {1, 2, 3, 4}, {8, 8, 8, 8}, {0, 0.1}}, "||||");
}

/* The sum of the first two ends at 0 + 1 + 8 = 9, before the third is ready, and that of the third at 10 + 1 + 4 = 15. One
 * sum of all three would end at 10 + 1 + 12 = 23. */
static void what_is_ready_early_is_summed_while_the_last_is_computed(void **state)
{
    (void)state;
    expect_cut((struct tensors){3, {0, 0, 10}, {4, 4, 4}, {1, 1}}, ".||");
}

/* Every other cut is tried: one for each set of tensors that end a bucket, the last of them always. */
static void no_cut_ends_sooner(void **state)
{
    (void)state;
    enum { EACH = 2 * MOST + 2 };
    float unit[300 * EACH];
    ls_random_fill_uniform(1, 1, 0, 1, 300 * EACH, unit);
    for (int round = 0; round < 300; round++) {
        const float *u = unit + round * EACH;
        struct tensors t = {.n = 1 + round % MOST, .cost = {u[0], 1e-3 * u[1]}};
        bool found[MOST], other[MOST];
        double now = 0;
        for (int i = 0; i < t.n; i++) {
            t.ready[i] = now += u[2 + i];
            t.bytes[i] = 4 + (size_t)(2000 * u[2 + MOST + i]);
        }
        assert_int_equal(ls_sync_cut(t.n, t.ready, t.bytes, t.cost, found), LS_OK);
        assert_true(found[t.n - 1]);
        for (int set = 0; set < 1 << (t.n - 1); set++) {
            for (int i = 0; i < t.n; i++)
                other[i] = i == t.n - 1 || (set >> i & 1);
            assert_true(end_of(&t, found) <= end_of(&t, other) * (1 + 1e-12));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tensor_is_one_bucket),
        cmocka_unit_test(a_dear_start_makes_one_bucket),
        cmocka_unit_test(a_free_start_makes_a_bucket_of_each),
        cmocka_unit_test(what_is_ready_early_is_summed_while_the_last_is_computed),
        cmocka_unit_test(no_cut_ends_sooner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
