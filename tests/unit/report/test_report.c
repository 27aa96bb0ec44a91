/* Figures, tables, metrics.jsonl, the lines of --log-format and the live line. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/console.h"
#include "report/metrics/metrics.h"
#include "report/stats.h"
#include "report/formats/table.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/lockstep-report-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    ls_log_mute(1);
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ls_log_close();
    return chdir("/") == 0 && ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * (1 + fabs(b)));
}

/* The wall clock of each line becomes T, after a look at its form. */
static void hide_times(char *text)
{
    static const char key[] = "\"time\": \"", form[] = "dddd-dd-ddTdd:dd:dd.dddZ\"";
    for (char *at = text; (at = strstr(at, key)); at++) {
        char *time = at + strlen(key);
        if (*time == 'T')
            continue;
        for (size_t i = 0; form[i]; i++)
            assert_true(form[i] == 'd' ? time[i] >= '0' && time[i] <= '9' : time[i] == form[i]);
        *time = 'T';
        memmove(time + 1, time + strlen(form) - 1, strlen(time + strlen(form) - 1) + 1);
    }
}

/* The file's text, which must be what is expected but for times. */
static void assert_file(const char *path, const char *expected)
{
    char *text;
    size_t size;
    assert_int_equal(ls_file_read(path, 1 << 20, &text, &size), LS_OK);
    hide_times(text);
    assert_string_equal(text, expected);
    ls_free(text);
}

/* --- figures and tables
 * ------------------------------------------------------------------------------------- */

static void figures(void **state)
{
    (void)state;
    struct ls_stats s;
    const double eight[] = {9, 2, 4, 4, 5, 4, 5, 7};
    assert_int_equal(ls_stats_of(eight, 8, &s), LS_OK);
    assert_near(s.mean, 5);
    assert_near(s.median, 4.5);
    assert_near(s.deviation, sqrt(32.0 / 7));
    assert_near(s.variation, sqrt(32.0 / 7) / 5);
    assert_true(s.min == 2 && s.max == 9 && s.n == 8);
    assert_true(eight[0] == 9);
    const double odd[] = {3, 1, 2};
    assert_int_equal(ls_stats_of(odd, 3, &s), LS_OK);
    assert_near(s.median, 2);
    assert_near(s.deviation, 1);
    const double one[] = {7};
    assert_int_equal(ls_stats_of(one, 1, &s), LS_OK);
    assert_true(s.median == 7 && s.mean == 7 && s.deviation == 0 && s.variation == 0);
    assert_int_equal(ls_stats_of(one, 0, &s), LS_FAILED);
}

static void tables(void **state)
{
    (void)state;
    const char *const headings[] = {"model", "parameters", "note"};
    struct ls_table t;
    char *text;
    size_t size;
    ls_table_init(&t, "lrl", headings);
    for (int i = 0; i < 40; i++) {
        ls_table_row(&t);
        ls_table_cell(&t, "net%d", i);
        ls_table_cell(&t, "%d", i * i * i);
    }
    ls_table_row(&t);
    ls_table_cell(&t, "Grünetz");
    ls_table_cell(&t, "%s", "");
    ls_table_cell(&t, "wide");
    ls_table_cell(&t, "one too many");
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(ls_table_print(&t, out), LS_OK);
    fclose(out);
    const char *head = "model    parameters  note\nnet0              0\n",
               *tail = "net39         59319\nGrünetz              wide\n";
    assert_memory_equal(text, head, strlen(head));
    assert_string_equal(text + size - strlen(tail), tail);
    free(text);
    ls_table_release(&t);
}

static void sums(void **state)
{
    (void)state;
    struct ls_report sum = {0};
    struct ls_report a = {.step = 1, .samples = 3, .loss = 1, .top1 = 1, .top5 = 1, .seconds = 2, .input_seconds = 1};
    struct ls_report b = {.step = 2, .samples = 1, .loss = 5, .seconds = 2, .compute_seconds = 1, .lr = 0.5};
    struct ls_report none = {.step = 3, .loss = NAN, .top1 = NAN, .top5 = NAN};
    ls_report_add(&sum, &a);
    ls_report_add(&sum, &b);
    ls_report_add(&sum, &none);
    assert_true(sum.step == 3 && sum.samples == 4);
    assert_near(sum.loss, 2);
    assert_near(sum.top1, 0.75);
    assert_near(sum.seconds, 4);
    assert_near(sum.input_seconds, 1);
    assert_near(sum.compute_seconds, 1);
    assert_near(ls_report_speed(&sum), 1);
    assert_true(ls_report_speed(&none) == 0);
}

/* --- metrics.jsonl
 * ------------------------------------------------------------------------------------------ */

static struct ls_report report_of(int64_t step)
{
    return (struct ls_report){.step = step,
                              .epoch = step / 10,
                              .epochs = 5,
                              .step_in_epoch = step % 10,
                              .steps_per_epoch = 10,
                              .samples = 64,
                              .loss = 2.25,
                              .top1 = 0.5,
                              .top5 = 0.875,
                              .lr = 0.05,
                              .seconds = 0.5,
                              .input_seconds = 0.125,
                              .compute_seconds = 0.25,
                              .update_seconds = 0.0625};
}

static const char step_1[] =
    "{\"kind\": \"step\", \"step\": 1, \"epoch\": 1, \"samples\": 64, \"loss\": 2.25, \"lr\": 0.05, "
    "\"top1\": 0.5, \"top5\": 0.875, \"samples_per_s\": 128, \"seconds\": 0.5, \"time\": \"T\", \"input_share\": 0.25, "
    "\"compute_share\": 0.5, \"wait_share\": 0, \"update_share\": 0.125}\n";

static void write_steps(struct ls_metrics *m, int64_t first, int64_t last)
{
    for (int64_t i = first; i <= last; i++) {
        struct ls_report r = report_of(i);
        assert_int_equal(ls_metrics_write(m, LS_METRICS_STEP, &r), LS_OK);
    }
}

/* The steps in the file, one digit each; every line must be an object. */
static void assert_steps(const char *path, const char *expected)
{
    char *text, found[64] = "";
    size_t size, n = 0;
    assert_int_equal(ls_file_read(path, 1 << 20, &text, &size), LS_OK);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        n += (size_t)snprintf(found + n, sizeof found - n, "%d",
                              (int)json_integer_value(json_object_get(object, "step")));
        json_decref(object);
    }
    assert_string_equal(found, expected);
    ls_free(text);
}

static void metrics_are_one_object_a_line(void **state)
{
    (void)state;
    struct ls_metrics m;
    assert_int_equal(ls_metrics_open(&m, "m1", -1, 0), LS_OK);
    uint64_t calls = ls_memory_calls();
    write_steps(&m, 1, 1);
    assert_true(ls_memory_calls() == calls);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_file("m1", step_1);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
}

static void metrics_of_an_evaluation(void **state)
{
    (void)state;
    struct ls_metrics m;
    struct ls_report r = report_of(3);
    r.loss = NAN;
    r.top5 = INFINITY;
    r.seconds = 0;
    assert_int_equal(ls_metrics_open(&m, "m2", -1, 0), LS_OK);
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_EVAL, &r), LS_OK);
    /* Seen at once, before the file is closed. */
    assert_file("m2", "{\"kind\": \"eval\", \"step\": 3, \"epoch\": 1, \"samples\": 64, \"loss\": null, \"top1\": 0.5, "
                      "\"top5\": null, \"samples_per_s\": 0, \"seconds\": 0, \"time\": \"T\", \"input_share\": null, "
                      "\"compute_share\": null}\n");
    assert_int_equal(ls_metrics_close(&m), LS_OK);
}

static void metrics_go_on_after_a_resume(void **state)
{
    (void)state;
    struct ls_metrics m;
    assert_int_equal(ls_metrics_open(&m, "m3", 0, 0), LS_OK);
    write_steps(&m, 1, 7);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m3", "1234567");
    assert_int_equal(ls_metrics_open(&m, "m3", 4, 0), LS_OK);
    write_steps(&m, 5, 6);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m3", "123456");
    assert_int_equal(ls_metrics_open(&m, "m3", 6, 1u << LS_METRICS_EVAL), LS_OK);
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_EVAL, &(struct ls_report){.step = 6}), LS_OK);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m3", "1234566");
    assert_int_equal(ls_metrics_open(&m, "m3", 6, 1u << LS_METRICS_EVAL), LS_OK); /* it will be evaluated again */
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m3", "123456");
    assert_int_equal(ls_metrics_open(&m, "m3", -1, 0), LS_OK);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m3", "");
}

static void metrics_drop_what_a_crash_tore(void **state)
{
    (void)state;
    struct ls_metrics m;
    char text[2048];
    for (size_t cut = 1; cut < sizeof step_1 - 1; cut++) {
        snprintf(text, sizeof text, "%s%.*s", step_1, (int)cut, step_1);
        assert_int_equal(ls_file_write("m4", text, strlen(text)), LS_OK);
        assert_int_equal(ls_metrics_open(&m, "m4", 100, 0), LS_OK);
        assert_int_equal(ls_metrics_close(&m), LS_OK);
        assert_file("m4", step_1);
        cut += 16;
    }
    snprintf(text, sizeof text, "%s{\"kind\": \"st\nx\n%s", step_1, step_1);
    assert_int_equal(ls_file_write("m4", text, strlen(text)), LS_OK);
    assert_int_equal(ls_metrics_open(&m, "m4", 100, 0), LS_OK);
    assert_string_equal(ls_log_last(), "m4:3: not a line of metrics; dropped");
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_steps("m4", "11");
}

static void metrics_of_older_runs_count_on(void **state)
{
    (void)state;
    struct ls_metrics m;
    const char *old = "{\"kind\": \"step\", \"step\": 1, \"epoch\": 0, \"loss\": 0.05, \"top1\": null}\n";
    assert_int_equal(ls_file_write("m5", old, strlen(old)), LS_OK);
    assert_int_equal(ls_metrics_open(&m, "m5", 1, 0), LS_OK);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_file("m5", "{\"kind\": \"step\", \"step\": 1, \"epoch\": 1, \"loss\": 0.05, \"top1\": null}\n");
}

static void metrics_say_that_the_disk_is_full(void **state)
{
    (void)state;
    struct ls_report r = report_of(1);
    struct ls_metrics m = {.file = fopen("/dev/full", "a"), .path = ls_strdup("full.jsonl")};
    assert_non_null(m.file);
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_EPOCH, &r), LS_FAILED);
    assert_string_equal(ls_log_last(), "full.jsonl: writing failed: No space left on device");
    ls_metrics_close(&m);
    assert_int_equal(ls_metrics_open(&m, "nowhere/m.jsonl", -1, 0), LS_FAILED);
}

/* --- lines
 * -------------------------------------------------------------------------------------------------- */

/* What a run of two epochs of `steps` steps leaves in log.txt. */
static void run_console(const char *format, int64_t log_every, int64_t steps, double seconds, const char *expected)
{
    struct ls_options o = {.log_format = (char *)format, .log_every = log_every, .progress = true};
    struct ls_console c;
    unlink("log.txt");
    assert_int_equal(ls_log_open("log.txt"), LS_OK);
    ls_console_begin(&c, &o, 2 * steps);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        struct ls_report sum = {0};
        for (int64_t i = 1; i <= steps; i++) {
            struct ls_report r = report_of(epoch * steps + i);
            r.epoch = epoch;
            r.epochs = 2;
            r.step_in_epoch = i;
            r.steps_per_epoch = steps;
            r.loss = 1 / (double)r.step;
            r.seconds = seconds;
            uint64_t calls = ls_memory_calls();
            ls_console_step(&c, &r);
            assert_true(ls_memory_calls() == calls);
            ls_report_add(&sum, &r);
        }
        ls_console_progress(&c, "evaluating", 1, 2);
        ls_console_epoch(&c, &sum);
    }
    struct ls_report eval = {
        .loss = 0.04125, .top1 = 0.9941, .top5 = 1, .samples = 10000, .step_in_epoch = 40, .seconds = 0.5};
    ls_console_eval(&c, &eval);
    ls_console_end(&c);
    ls_console_end(&c);
    ls_log_close();
    assert_file("log.txt", expected);
}

static void plain_lines(void **state)
{
    (void)state;
    run_console("plain", 2, 3, 0.5,
                "epoch 1/2  step 2/3  loss 0.7500  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 1/2: loss 0.6111, top1 50.00%, 1.5 s at 128 samples/s (input 25%)\n"
                "epoch 2/2  step 1/3  loss 0.2500  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 2/2  step 3/3  loss 0.1833  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 2/2: loss 0.2056, top1 50.00%, 1.5 s at 128 samples/s (input 25%)\n"
                "evaluation: loss 0.0413, top1 99.41%, top5 100.00%, 10000 samples in 0.50 s\n");
}

static void plain_lines_left_to_choice(void **state)
{
    (void)state;
    /* At tenths of an epoch (here every step), but a second apart. */
    run_console("plain", 0, 5, 0.5,
                "epoch 1/2  step 2/5  loss 0.7500  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 1/2  step 4/5  loss 0.2917  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 1/2: loss 0.4567, top1 50.00%, 2.5 s at 128 samples/s (input 25%)\n"
                "epoch 2/2  step 2/5  loss 0.1548  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 2/2  step 4/5  loss 0.1181  top1 50.00%  lr 0.05  128 samples/s\n"
                "epoch 2/2: loss 0.1291, top1 50.00%, 2.5 s at 128 samples/s (input 25%)\n"
                "evaluation: loss 0.0413, top1 99.41%, top5 100.00%, 10000 samples in 0.50 s\n");
}

static void lines_of_cntk(void **state)
{
    (void)state;
    run_console(
        "cntk", 0, 3, 0.5,
        "Finished Epoch[1 of 2]: [Training] loss = 0.611111 * 192, metric = 50.00% * 192 1.500s (128.0 samples/s);\n"
        "Finished Epoch[2 of 2]: [Training] loss = 0.205556 * 192, metric = 50.00% * 192 1.500s (128.0 samples/s);\n"
        "Finished Evaluation [1]: Minibatch[1-40]: metric = 0.59% * 10000;\n");
    run_console(
        "cntk", 2, 3, 0.5,
        " Minibatch[1-2]: loss = 0.750000 * 128, metric = 50.00% * 128;\n"
        "Finished Epoch[1 of 2]: [Training] loss = 0.611111 * 192, metric = 50.00% * 192 1.500s (128.0 samples/s);\n"
        " Minibatch[1-2]: loss = 0.225000 * 128, metric = 50.00% * 128;\n"
        "Finished Epoch[2 of 2]: [Training] loss = 0.205556 * 192, metric = 50.00% * 192 1.500s (128.0 samples/s);\n"
        "Finished Evaluation [1]: Minibatch[1-40]: metric = 0.59% * 10000;\n");
    struct ls_report r = {
        .epoch = 0, .epochs = 300, .samples = 50000, .loss = 2.103217, .top1 = 0.22, .seconds = 12.345};
    char line[LS_LINE_ROOM];
    ls_line_epoch(LS_LINE_CNTK, &r, line);
    assert_string_equal(line, "Finished Epoch[1 of 300]: [Training] loss = 2.103217 * 50000, metric = 78.00% * 50000 "
                              "12.345s (4050.2 samples/s);");
    r.epochs = 0;
    ls_line_epoch(LS_LINE_CNTK, &r, line);
    assert_memory_equal(line, "Finished Epoch[1]: ", 19);
}

static void lines_of_the_thesis(void **state)
{
    (void)state;
    run_console(
        "thesis", 0, 11, 0.25,
        "Epoch: [0][10/11]\tTime 0.250 (0.250)\tData 0.125 (0.125)\tLoss 0.1000 (0.2929)\tAcc@1 50.000 (50.000)\t"
        "Acc@5 87.500 (87.500)\n"
        "Epoch: [0][11/11]\tTime 0.250 (0.250)\tData 0.125 (0.125)\tLoss 0.0909 (0.2745)\tAcc@1 50.000 (50.000)\t"
        "Acc@5 87.500 (87.500)\n"
        "Epoch: [1][10/11]\tTime 0.250 (0.250)\tData 0.125 (0.125)\tLoss 0.0476 (0.0625)\tAcc@1 50.000 (50.000)\t"
        "Acc@5 87.500 (87.500)\n"
        "Epoch: [1][11/11]\tTime 0.250 (0.250)\tData 0.125 (0.125)\tLoss 0.0455 (0.0610)\tAcc@1 50.000 (50.000)\t"
        "Acc@5 87.500 (87.500)\n"
        " * Acc@1 99.410 Acc@5 100.000\n");
    struct ls_report step = {
        .step_in_epoch = 10, .steps_per_epoch = 5005, .seconds = 0.581, .input_seconds = 0.273, .loss = 6.901};
    struct ls_report sum = {.seconds = 6.33, .input_seconds = 2.83, .loss = 6.9523};
    struct ls_line_steps s = {&step, &sum, &sum, 10, 1};
    char line[LS_LINE_ROOM];
    ls_line_step(LS_LINE_THESIS, &s, line);
    const char *expected = "Epoch: [0][10/5005]\tTime 0.581 (0.633)\tData 0.273 (0.283)\tLoss 6.9010 (6.9523)\t";
    assert_memory_equal(line, expected, strlen(expected));
}

/* --- the live line
 * ------------------------------------------------------------------------------------------ */

static void durations(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00"},           {6.7, "0:07"},      {754, "12:34"}, {3723, "1:02:03"},
                 {2 * 86400, "2d 00h"}, {273600, "3d 04h"}, {NAN, "?"},     {-1, "?"}};
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_format_duration(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void live_lines(void **state)
{
    (void)state;
    const char *const fields[] = {"loss 0.123", "top1 96.1%", "", "1:07 left", "14252 samples/s"};
    char text[LS_BAR_ROOM];
    struct ls_bar_style look = {.width = 90};
    ls_progress_bar(&look, "epoch 2/5", 5, 10, fields, 5, text);
    assert_string_equal(text,
                        "epoch 2/5 [##########----------] 5/10  loss 0.123  top1 96.1%  1:07 left  14252 samples/s");
    look.utf8 = true;
    look.width = 76;
    ls_progress_bar(&look, "epoch 2/5", 7, 16, fields, 5, text);
    assert_string_equal(text, "epoch 2/5 ━━━╸──── 7/16  loss 0.123  top1 96.1%  1:07 left  14252 samples/s");
    look.colour = true;
    look.width = 30;
    ls_progress_bar(&look, "evaluating", 5, 8, NULL, 0, text);
    assert_string_equal(text, "evaluating \033[36m━━━━━━━━╸\033[0;2m─────\033[0m 5/8");
}

/* Columns of a line on the screen. */
static int columns_of(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        if (*text == '\033')
            text = strchr(text, 'm');
        else
            n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

static void live_lines_fit_any_width(void **state)
{
    (void)state;
    const char *const fields[] = {"loss 0.1234", "top1 96.12%", "1:07 left", "14252 samples/s"};
    char text[LS_BAR_ROOM];
    for (int width = 0; width < 300; width++)
        for (int kind = 0; kind < 4; kind++)
            for (int64_t done = 0; done <= 940; done += 47) {
                struct ls_bar_style look = {.width = width, .utf8 = kind & 1, .colour = kind & 2};
                ls_progress_bar(&look, "epoch 2/5", done, 938, fields, 4, text);
                assert_true(columns_of(text) <= (width > 0 ? width - 1 : 0));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures),
        cmocka_unit_test(tables),
        cmocka_unit_test(sums),
        cmocka_unit_test(metrics_are_one_object_a_line),
        cmocka_unit_test(metrics_of_an_evaluation),
        cmocka_unit_test(metrics_go_on_after_a_resume),
        cmocka_unit_test(metrics_drop_what_a_crash_tore),
        cmocka_unit_test(metrics_of_older_runs_count_on),
        cmocka_unit_test(metrics_say_that_the_disk_is_full),
        cmocka_unit_test(plain_lines),
        cmocka_unit_test(plain_lines_left_to_choice),
        cmocka_unit_test(lines_of_cntk),
        cmocka_unit_test(lines_of_the_thesis),
        cmocka_unit_test(durations),
        cmocka_unit_test(live_lines),
        cmocka_unit_test(live_lines_fit_any_width),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
