/* The lines about ranks in metrics.jsonl: arithmetic, the rank that is slow, and the line as JSON. */
#include "report/metrics/rank_line.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[LS_RANK_KINDS] = {"allreduce", "reduce",  "scatter", "collect", "broadcast",
                                                 "allgather", "barrier", "send",    "receive"};

static void expect_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

static struct ls_report some_report(void)
{
    return (struct ls_report){.samples = 100,
                              .loss = 0.5,
                              .seconds = 10,
                              .input_seconds = 1,
                              .compute_seconds = 5,
                              .wait_seconds = 3,
                              .late_seconds = 2.25,
                              .update_seconds = 1,
                              .hidden_seconds = 4};
}

static void the_parts_add_up_to_the_seconds(void **state)
{
    (void)state;
    struct ls_report sum = some_report();
    double waited[3] = {0, 0.25, 2};
    struct ls_rank_line line = ls_rank_line_of(&sum, 7, waited, 3);
    expect_near(line.exposed, 0.75);
    expect_near(line.late, 2.25);
    expect_near(line.input + line.compute + line.exposed + line.late + line.update, line.seconds);
    expect_near(line.hidden, 4);
    assert_int_equal(line.steps, 7);
    assert_int_equal(line.waited_for, 2);
    expect_near(line.waited_for_seconds, 2);
}

static void nobody_is_waited_for_by_one_process(void **state)
{
    (void)state;
    struct ls_report sum = {.seconds = 1};
    double none[2] = {0, 0};
    struct ls_rank_line line = ls_rank_line_of(&sum, 1, NULL, 1);
    assert_int_equal(line.waited_for, -1);
    assert_true(isnan(line.loss));
    assert_int_equal(ls_rank_line_of(&sum, 1, none, 2).waited_for, -1);
}

static void lines_add_up(void **state)
{
    (void)state;
    struct ls_report sum = some_report();
    double waited[2] = {0, 1}, later[2] = {0.5, 0};
    struct ls_rank_line total = {0}, one = ls_rank_line_of(&sum, 7, waited, 2);
    one.first = 3;
    one.kinds[0] = (struct ls_rank_kind){3, 300};
    ls_rank_line_add(&total, &one);
    expect_near(total.loss, 0.5);
    sum.samples = 300;
    sum.loss = 0.1;
    struct ls_rank_line two = ls_rank_line_of(&sum, 3, later, 2);
    two.first = 3;
    two.kinds[0] = (struct ls_rank_kind){1, 5};
    ls_rank_line_add(&total, &two);
    assert_int_equal(total.steps, 10);
    assert_int_equal(total.samples, 400);
    expect_near(total.loss, 0.2); /* (0.5 * 100 + 0.1 * 300) / 400 */
    expect_near(total.seconds, 20);
    expect_near(total.late, 4.5);
    assert_int_equal(total.waited_for, 1);
    assert_int_equal(total.kinds[0].calls, 4);
    assert_int_equal(total.kinds[0].bytes, 305);
    expect_near(ls_rank_line_pace(&total), (20.0 - 3) / 9);
    struct ls_rank_line empty = ls_rank_line_of(&(struct ls_report){0}, 0, NULL, 1);
    ls_rank_line_add(&total, &empty);
    expect_near(total.loss, 0.2);
    expect_near(ls_rank_line_pace(&empty), 0);
}

static void one_step_is_its_own_pace(void **state)
{
    (void)state;
    struct ls_rank_line line = {.steps = 1, .seconds = 2, .first = 2};
    expect_near(ls_rank_line_pace(&line), 2);
}

static void a_slow_rank_is_waited_for_and_does_not_wait(void **state)
{
    (void)state;
    struct ls_rank_line totals[3] = {
        {.seconds = 10, .late = 4}, {.seconds = 10, .late = 0.1}, {.seconds = 10, .late = 4}};
    double waited[3] = {0.1, 8, 0};
    assert_int_equal(ls_rank_straggler(totals, waited, 3), 1);
    totals[1].late = 3.5; /* all wait for each other in turn */
    assert_int_equal(ls_rank_straggler(totals, waited, 3), -1);
    for (int i = 0; i < 3; i++)
        totals[i] = (struct ls_rank_line){.seconds = 1};
    double briefly[3] = {0, 0.8, 0}; /* 0.4 s each */
    assert_int_equal(ls_rank_straggler(totals, briefly, 3), -1);
    assert_int_equal(ls_rank_straggler(totals, waited, 1), -1);
}

/* Writes one line and parses it. */
static json_t *written(const char *host, const struct ls_rank_line *line)
{
    char path[] = "/tmp/test-rank-line-XXXXXX", text[4096] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct ls_metrics m;
    assert_int_equal(ls_metrics_open(&m, path, -1, 0), LS_OK);
    assert_int_equal(ls_rank_line_write(&m, 42, 1, 3, host, names, line), LS_OK);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_non_null(fgets(text, sizeof text, in));
    fclose(in);
    unlink(path);
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    return object;
}

static void the_line_is_json(void **state)
{
    (void)state;
    struct ls_report sum = some_report();
    double waited[2] = {0, 2};
    struct ls_rank_line line = ls_rank_line_of(&sum, 7, waited, 2);
    line.kinds[0] = (struct ls_rank_kind){3, 300};
    line.kinds[5] = (struct ls_rank_kind){7, 280};
    json_t *o = written("a\"b\\ \xc3\xa9", &line);
    const char *kind, *host;
    json_int_t step, epoch, rank, steps, waited_for, calls, bytes;
    double exposed, late;
    assert_int_equal(json_unpack(o, "{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:F, s:F, s:{s:{s:I, s:I}, s:{}}}", "kind",
                                 &kind, "step", &step, "epoch", &epoch, "rank", &rank, "host", &host, "steps", &steps,
                                 "waited_for", &waited_for, "exposed_seconds", &exposed, "late_seconds", &late,
                                 "collectives", "allreduce", "calls", &calls, "bytes", &bytes, "allgather"),
                     0);
    assert_string_equal(kind, "rank");
    assert_string_equal(host, "a\"b\\ \xc3\xa9");
    assert_true(step == 42 && epoch == 2 && rank == 3 && steps == 7 && waited_for == 1 && calls == 3 && bytes == 300);
    expect_near(exposed, 0.75);
    expect_near(late, 2.25);
    assert_int_equal(json_object_size(json_object_get(o, "collectives")), 2);
    assert_null(json_object_get(o, "gpu_power_w"));
    json_decref(o);
    line.on_gpu = 1;
    line.gpu = (struct ls_gpu_state){97, 1e9, NAN, 1755, 60};
    o = written("\xff", &line); /* not UTF-8 */
    assert_string_equal(json_string_value(json_object_get(o, "host")), "");
    assert_true(json_is_null(json_object_get(o, "gpu_power_w")));
    expect_near(json_number_value(json_object_get(o, "gpu_utilisation")), 97);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_add_up_to_the_seconds),
        cmocka_unit_test(nobody_is_waited_for_by_one_process),
        cmocka_unit_test(lines_add_up),
        cmocka_unit_test(one_step_is_its_own_pace),
        cmocka_unit_test(a_slow_rank_is_waited_for_and_does_not_wait),
        cmocka_unit_test(the_line_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
