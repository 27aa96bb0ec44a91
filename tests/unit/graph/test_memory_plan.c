/* The memory plan's promises, P1 to P4 of graph/plan.h, on random lifetimes. */
#include "base/random.h"
#include "graph/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SPANS = 300, NODES = 120 };

static uint64_t pick(uint64_t *index, uint64_t below)
{
    return ls_random_below(7, 1, (*index)++, below);
}

static void make(struct ls_span *spans, uint64_t *index)
{
    for (int s = 0; s < SPANS; s++) {
        int first = (int)pick(index, NODES);
        spans[s] = (struct ls_span){
            .bytes = 1 + pick(index, 5000), .first = first, .last = first + (int)pick(index, 30), .over = LS_NONE};
    }
}

static bool meet(const struct ls_span *a, const struct ls_span *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool overlap(const struct ls_span *a, const struct ls_span *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void check_apart(const struct ls_span *spans, size_t bytes)
{
    for (int a = 0; a < SPANS; a++) {
        assert_int_equal(spans[a].offset % LS_ALIGN, 0);
        assert_true(spans[a].offset + spans[a].bytes <= bytes);
        for (int b = 0; b < a; b++)
            if (spans[a].over != b && spans[b].over != a && meet(&spans[a], &spans[b]))
                assert_false(overlap(&spans[a], &spans[b]));
    }
}

static void lives_that_meet_lie_apart(void **state)
{
    (void)state;
    struct ls_span spans[SPANS];
    uint64_t index = 0;
    for (int round = 0; round < 20; round++) {
        size_t with, without;
        make(spans, &index);
        assert_int_equal(ls_plan_place(spans, SPANS, true, &with), LS_OK);
        check_apart(spans, with);
        assert_int_equal(ls_plan_place(spans, SPANS, false, &without), LS_OK);
        check_apart(spans, without);
        assert_true(with < without);
    }
}

static void in_place_results_share_memory(void **state)
{
    (void)state;
    size_t bytes;
    struct ls_span spans[] = {
        {.bytes = 1000, .first = 0, .last = 3, .over = LS_NONE},
        {.bytes = 1000, .first = 3, .last = 9, .over = 0},
        {.bytes = 1000, .first = 5, .last = 6, .over = LS_NONE},
    };
    assert_int_equal(ls_plan_place(spans, 3, true, &bytes), LS_OK);
    assert_true(spans[1].offset == spans[0].offset);
    assert_false(overlap(&spans[2], &spans[1])); /* the life of the first lasts as long as that of the second */
}

static void nothing_needs_nothing(void **state)
{
    (void)state;
    size_t bytes = 1;
    assert_int_equal(ls_plan_place(NULL, 0, true, &bytes), LS_OK);
    assert_int_equal(bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_that_meet_lie_apart),
        cmocka_unit_test(in_place_results_share_memory),
        cmocka_unit_test(nothing_needs_nothing),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
