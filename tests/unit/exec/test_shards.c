/* Shards of optimizer state: tensors that belong to one rank as a whole are given out evenly. That training gives the bits of
 * one process is tested by cli/test-shard-state.sh. */
#include "exec/shards/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MOST = 8 };

/* The largest sum of counts that a rank gets. */
static size_t heaviest(const size_t *counts, int n, int size)
{
    size_t load[MOST] = {0}, most = 0;
    int ranks[MOST] = {0};
    assert_int_equal(ls_shards_balance(counts, n, size, ranks), LS_OK);
    for (int i = 0; i < n; i++) {
        assert_in_range(ranks[i], 0, size - 1);
        load[ranks[i]] += counts[i];
        most = load[ranks[i]] > most ? load[ranks[i]] : most;
    }
    return most;
}

static void test_balances(void **state)
{
    (void)state;
    assert_int_equal(heaviest((const size_t[]){4, 4, 4, 4}, 4, 4), 4);
    assert_int_equal(heaviest((const size_t[]){1, 2, 3, 4, 5, 6}, 6, 3), 7);
    assert_int_equal(heaviest((const size_t[]){1, 1, 100, 1}, 4, 2), 100); /* no tensor is cut */
    assert_int_equal(heaviest((const size_t[]){5, 3}, 2, 1), 8);
    assert_int_equal(heaviest((const size_t[]){5, 3}, 2, 4), 5); /* ranks without a tensor */
}

static void test_leaves_out_what_is_cut(void **state)
{
    (void)state;
    int ranks[] = {-1, 7, -1, 7};
    assert_int_equal(ls_shards_balance((const size_t[]){2, 0, 2, 0}, 4, 2, ranks), LS_OK);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[1], 7);
    assert_int_equal(ranks[2], 1);
    assert_int_equal(ranks[3], 7);
}

static void test_is_the_same_everywhere(void **state)
{
    (void)state;
    int ranks[4];
    assert_int_equal(ls_shards_balance((const size_t[]){3, 3, 3, 3}, 4, 3, ranks), LS_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ranks[i], i % 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balances),
        cmocka_unit_test(test_leaves_out_what_is_cut),
        cmocka_unit_test(test_is_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
