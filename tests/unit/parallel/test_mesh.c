/* Layouts of processes as --parallel names them. */
#include "base/log.h"
#include "base/memory.h"
#include "parallel/mesh.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static void data_takes_all_processes(void **state)
{
    (void)state;
    struct ls_mesh m;
    static const char *const texts[] = {"data", "data:6"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_mesh_parse(texts[i], 6, 4, &m), LS_OK);
        assert_int_equal(m.axes[LS_PARALLEL_DATA].size, 6);
        assert_int_equal(m.axes[LS_PARALLEL_DATA].place, 4);
        assert_int_equal(ls_mesh_rank(&m, LS_PARALLEL_DATA, 2), 2);
    }
}

static void pipelines_take_neighbouring_ranks(void **state)
{
    (void)state;
    struct ls_mesh m;
    static const char *const texts[] = {"data:4,pipeline:2", "pipeline:2,data:4", "pipeline:2", "data,pipeline:2"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_mesh_parse(texts[i], 8, 5, &m), LS_OK);
        assert_int_equal(m.axes[LS_PARALLEL_DATA].size, 4);
        assert_int_equal(m.axes[LS_PARALLEL_DATA].place, 2);
        assert_int_equal(m.axes[LS_PARALLEL_PIPELINE].place, 1);
        assert_int_equal(ls_mesh_rank(&m, LS_PARALLEL_PIPELINE, 0), 4);
        assert_int_equal(ls_mesh_rank(&m, LS_PARALLEL_DATA, 0), 1);
        assert_true(ls_mesh_has_pipeline(texts[i]));
    }
    assert_int_equal(ls_mesh_size("data:4,pipeline:2"), 8);
    assert_int_equal(ls_mesh_size("pipeline:3@a+b"), 3);
    assert_int_equal(ls_mesh_size("nothing"), 1);
    static const char *const whole[][2] = {{"pipeline:2@fc1", "data:4,pipeline:2@fc1"},
                                           {"dense:4,data", "data:2,dense:4"},
                                           {"pipeline:8", "pipeline:8"},
                                           {"data", "data:8"}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        assert_int_equal(ls_mesh_parse(whole[i][0], 8, 0, &m), LS_OK);
        char *text = ls_mesh_text(&m);
        assert_string_equal(text, whole[i][1]);
        ls_free(text);
    }
    assert_int_equal(ls_mesh_parse("pipeline:3@a+b", 3, 0, &m), LS_OK);
    assert_int_equal(m.axes[LS_PARALLEL_PIPELINE].at_length, 3);
    assert_false(ls_mesh_has_pipeline("data") || ls_mesh_has_pipeline("data:4") || ls_mesh_has_pipeline("dense:2") ||
                 ls_mesh_has_pipeline("data:3,pipeline:1"));
}

static void expect_refused(const char *text, int size, const char *why)
{
    struct ls_mesh m;
    bool muted = ls_log_mute(true);
    assert_int_equal(ls_mesh_parse(text, size, 0, &m), LS_USAGE);
    ls_log_mute(muted);
    if (!strstr(ls_log_last(), why))
        fail_msg("%s: %s", text, ls_log_last());
}

static void wrong_texts_are_refused(void **state)
{
    (void)state;
    expect_refused("", 1, "is no axis");
    expect_refused("rows:2", 2, "'rows:2' is no axis");
    expect_refused("data,data", 2, "twice");
    expect_refused("data:0", 2, "needs a number");
    expect_refused("data:x", 2, "needs a number");
    expect_refused("data:99999999999999999999", 2, "needs a number");
    expect_refused("data:2x", 2, "not understood");
    expect_refused("data:2,", 2, "is no axis");
    expect_refused("data:3", 2, "is a layout of 3 processes, and there are 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_takes_all_processes),
        cmocka_unit_test(pipelines_take_neighbouring_ranks),
        cmocka_unit_test(wrong_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
