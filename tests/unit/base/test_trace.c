/* Recording: what fits, what does not, and when. */
#include "base/memory.h"
#include "base/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void add(struct ls_track *track, int64_t number)
{
    double begin = ls_trace_begin(track);
    ls_trace_end(track, begin, &(struct ls_slice){.kind = LS_SLICE_UPDATE, .name = "update", .number = number});
}

static void test_only_the_steps_asked_for(void **state)
{
    struct ls_trace *t;
    struct ls_track *track, *again;
    (void)state;
    assert_int_equal(ls_trace_new(3, 5, &t), LS_OK);
    assert_int_equal(ls_trace_track(t, LS_TRACK_MAIN, "main", 10, &track), LS_OK);
    assert_int_equal(ls_trace_track(t, LS_TRACK_MAIN, "main", 10, &again), LS_OK);
    assert_ptr_equal(track, again);
    uint64_t calls = ls_memory_calls();
    for (uint64_t step = 1; step <= 7; step++) {
        ls_trace_step(t, step);
        assert_int_equal(ls_trace_on(track), step >= 3 && step <= 5);
        add(track, (int64_t)step);
    }
    assert_int_equal(ls_memory_calls(), calls);
    assert_int_equal(ls_trace_count(track), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(track->slices[i].number, 3 + i);
        assert_true(track->slices[i].begin > 0 && track->slices[i].end >= track->slices[i].begin);
    }
    ls_trace_free(t);
}

static void test_no_trace(void **state)
{
    struct ls_track *track;
    (void)state;
    assert_int_equal(ls_trace_track(NULL, LS_TRACK_MAIN, "main", 10, &track), LS_OK);
    assert_null(track);
    assert_true(ls_trace_begin(track) == 0);
    add(track, 1);
    ls_trace_step(NULL, 1);
    ls_trace_stop(NULL);
    ls_trace_free(NULL);
}

/* A slice that began within the window is added also if it ends after it. */
static void test_a_slice_across_the_end(void **state)
{
    struct ls_trace *t;
    struct ls_track *track;
    (void)state;
    assert_int_equal(ls_trace_new(1, 1, &t), LS_OK);
    assert_int_equal(ls_trace_track(t, LS_TRACK_LOADER, "loader 0", 1, &track), LS_OK);
    ls_trace_step(t, 1);
    double begin = ls_trace_begin(track);
    ls_trace_stop(t);
    ls_trace_end(track, begin, &(struct ls_slice){.kind = LS_SLICE_FILL, .name = "fill"});
    assert_int_equal(ls_trace_count(track), 1);
    ls_trace_free(t);
}

/* A slice that began before the window is not. */
static void test_a_slice_across_the_begin(void **state)
{
    struct ls_trace *t;
    struct ls_track *track;
    (void)state;
    assert_int_equal(ls_trace_new(2, 3, &t), LS_OK);
    assert_int_equal(ls_trace_track(t, LS_TRACK_LOADER, "loader 0", 1, &track), LS_OK);
    double before = ls_now();
    for (double now = before; now == before;) /* the clock goes on */
        now = ls_now();
    ls_trace_step(t, 2);
    ls_trace_add_since(track, before, &(struct ls_slice){.kind = LS_SLICE_FILL, .name = "fill"});
    assert_int_equal(ls_trace_count(track), 0);
    double within = ls_trace_begin(track);
    ls_trace_step(t, 3); /* the window goes on */
    ls_trace_end(track, within, &(struct ls_slice){.kind = LS_SLICE_FILL, .name = "fill"});
    assert_int_equal(ls_trace_count(track), 1);
    ls_trace_free(t);
}

static void test_what_does_not_fit_is_counted(void **state)
{
    enum { MORE = 7 };
    struct ls_trace *t;
    struct ls_track *track;
    (void)state;
    assert_int_equal(ls_trace_new(1, UINT64_MAX, &t), LS_OK); /* as long as a window can be */
    assert_int_equal(ls_trace_track(t, LS_TRACK_MAIN, "main", SIZE_MAX, &track), LS_OK);
    ls_trace_step(t, 1);
    for (size_t i = 0; i < track->room + MORE; i++)
        add(track, (int64_t)i);
    assert_int_equal(ls_trace_count(track), track->room);
    assert_int_equal(atomic_load(&track->dropped), MORE);
    assert_int_equal(track->slices[track->room - 1].number, track->room - 1); /* the first ones are kept */
    ls_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_steps_asked_for),     cmocka_unit_test(test_no_trace),
        cmocka_unit_test(test_a_slice_across_the_end),       cmocka_unit_test(test_a_slice_across_the_begin),
        cmocka_unit_test(test_what_does_not_fit_is_counted),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
