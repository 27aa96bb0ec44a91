/* metrics.jsonl read back: the writer's own lines, other writers' lines, damage, and a file that grows. */
#include "base/files/file.h"
#include "base/log.h"
#include "report/metrics/metrics.h"
#include "report/metrics/metrics_reader.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/lockstep-reader-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    ls_log_mute(1);
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") == 0 && ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

struct kept {
    int n;
    struct ls_record records[64];
};

static enum ls_status keep(const struct ls_record *r, void *context)
{
    struct kept *k = context;
    assert_true(k->n < 64);
    k->records[k->n++] = *r;
    return LS_OK;
}

/* Reads text through a file. */
static struct ls_metrics_tally read_text(const char *text, struct kept *k)
{
    struct ls_metrics_tally tally;
    k->n = 0;
    assert_int_equal(ls_file_write("m.jsonl", text, strlen(text)), LS_OK);
    assert_int_equal(ls_metrics_read("m.jsonl", keep, k, &tally), LS_OK);
    return tally;
}

/* Reads one line, which must be a record. */
static struct ls_record read_line(const char *line)
{
    struct kept k;
    char text[4096];
    snprintf(text, sizeof text, "%s\n", line);
    struct ls_metrics_tally t = read_text(text, &k);
    assert_int_equal(t.broken, 0);
    assert_int_equal(k.n, 1);
    return k.records[0];
}

static bool is_broken(const char *line)
{
    struct kept k;
    char text[4096];
    snprintf(text, sizeof text, "%s\n", line);
    struct ls_metrics_tally t = read_text(text, &k);
    assert_int_equal(t.lines, 1);
    assert_int_equal(k.n + t.broken, 1);
    return k.n == 0;
}

static void what_was_written_is_read_back(void **state)
{
    (void)state;
    struct ls_metrics m;
    struct kept k = {0};
    struct ls_metrics_tally t;
    struct ls_report r = {.step = 7,
                          .epoch = 1,
                          .samples = 64,
                          .loss = 1.0 / 3,
                          .top1 = 0.1f,
                          .top5 = 0.5,
                          .lr = 1e-23,
                          .seconds = 0.25,
                          .input_seconds = 0.05,
                          .compute_seconds = 0.1,
                          .wait_seconds = 0.075,
                          .update_seconds = 0.025,
                          .gradients = 3,
                          .staleness = 1.5,
                          .loader_threads = 2,
                          .on_gpu = true,
                          .gpu = {.utilisation = 97, .memory = 8589934592.0, .power = 310.5}};
    assert_int_equal(ls_metrics_open(&m, "w.jsonl", -1, 0), LS_OK);
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_STEP, &r), LS_OK);
    r.loss = INFINITY;
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_EPOCH, &r), LS_OK);
    assert_int_equal(ls_metrics_write(&m, LS_METRICS_EVAL, &r), LS_OK);
    assert_int_equal(ls_metrics_close(&m), LS_OK);
    assert_int_equal(ls_metrics_read("w.jsonl", keep, &k, &t), LS_OK);
    assert_int_equal(k.n, 3);
    assert_int_equal(t.lines, 3);
    assert_int_equal(t.broken + t.other + t.is_cut, 0);
    const struct ls_record *a = k.records, *b = a + 1, *c = a + 2;
    assert_int_equal(a->kind, LS_RECORD_STEP);
    assert_int_equal(a->step, 7);
    assert_int_equal(a->epoch, 2);
    assert_int_equal(a->samples, 64);
    assert_true((float)a->loss == (float)(1.0 / 3) && a->lr == 1e-23 && (float)a->top1 == 0.1f && a->top5 == 0.5);
    assert_true(a->samples_per_s == 256 && a->seconds == 0.25 && a->input_share == 0.2 && a->compute_share == 0.4);
    assert_true(a->wait_share == 0.3 && a->update_share == 0.1 && a->staleness == 1.5 && a->loader_threads == 2);
    assert_true(a->gpu_utilisation == 97 && a->gpu_memory_bytes == 8589934592.0 && a->gpu_power_w == 310.5);
    assert_true(a->gpu_clock_mhz == 0 && !a->is_diverged && ls_record_time(a->time) > 1.7e9);
    assert_true(b->kind == LS_RECORD_EPOCH && isnan(b->loss) && b->is_diverged);
    assert_true(c->kind == LS_RECORD_EVAL && isnan(c->lr) && isnan(c->update_share) && c->rank == -1 && !c->host[0]);
}

static void a_line_of_a_rank_has_its_collectives(void **state)
{
    (void)state;
    struct ls_record r = read_line(
        "{\"kind\":\"rank\",\"step\":40,\"epoch\":1,\"time\":\"2026-03-01T12:34:56.789Z\",\"rank\":3,"
        "\"host\":\"n\\u00f6de <1>\",\"steps\":40,\"seconds\":10,\"input_seconds\":1,\"compute_seconds\":6.5,"
        "\"exposed_seconds\":0.5,\"hidden_seconds\":2,\"late_seconds\":1.5,\"waited_for\":1,\"waited_for_seconds\":1.25,"
        "\"update_seconds\":0.5,\"collectives\":{\"allreduce\":{\"calls\":80,\"bytes\":1e9},\"x\":{}},"
        "\"gpu_utilisation\":55,\"later\":[1,{\"a\":null}]}");
    assert_int_equal(r.kind, LS_RECORD_RANK);
    assert_true(r.rank == 3 && r.steps == 40 && r.waited_for == 1 && r.epoch == 1);
    assert_string_equal(r.host, "n\u00f6de <1>");
    assert_true(r.seconds == 10 && r.input_seconds == 1 && r.compute_seconds == 6.5 && r.exposed_seconds == 0.5);
    assert_true(r.hidden_seconds == 2 && r.late_seconds == 1.5 && r.waited_for_seconds == 1.25);
    assert_true(r.update_seconds == 0.5 && r.gpu_utilisation == 55 && isnan(r.loss));
    assert_int_equal(r.n_collectives, 2);
    assert_string_equal(r.collectives[0].name, "allreduce");
    assert_true(r.collectives[0].calls == 80 && r.collectives[0].bytes == 1e9);
}

/* The fast scanner and jansson must agree: each number is read alone and behind an object, which only jansson reads. */
static void numbers_are_those_of_strtod(void **state)
{
    (void)state;
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "-1.5",
                                          "0.1",
                                          "1e3",
                                          "1E+3",
                                          "1.25e-7",
                                          "123456789012345",
                                          "0.30000000000000004",
                                          "1234567890123456789",
                                          "123456789012345678901234567890",
                                          "9.87654321e-30",
                                          "1.7976931348623157e308",
                                          "4.9e-324",
                                          "2.5e22",
                                          "2.5e23",
                                          "0.000001",
                                          "3.14159265"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char line[256];
        double expected = strtod(numbers[i], NULL);
        snprintf(line, sizeof line, "{\"kind\":\"step\",\"step\":1,\"loss\":%s}", numbers[i]);
        assert_true(read_line(line).loss == expected);
        snprintf(line, sizeof line, "{\"x\":{},\"kind\":\"step\",\"step\":1,\"loss\":%s}", numbers[i]);
        assert_true(read_line(line).loss == expected);
    }
}

static void keys_may_come_in_any_order_and_number(void **state)
{
    (void)state;
    struct kept k;
    struct ls_metrics_tally t =
        read_text("{\"kind\":\"step\",\"step\":1,\"epoch\":1,\"loss\":2,\"time\":\"T\"}\n"
                  " { \"loss\" : 3 ,\t\"time\" :\"T\", \"step\" : 2, \"kind\" : \"step\" } \r\n"
                  "\n"
                  "{\"step\":3,\"new\":\"x\",\"loss\":4,\"kind\":\"eval\",\"los\":9,\"losses\":8}\n"
                  "{\"kind\":\"weather\",\"step\":3}\n"
                  "{\"kind\":\"step\",\"step\":4,\"loss\":\"a word\",\"host\":5,\"top1\":true}\n",
                  &k);
    assert_int_equal(t.lines, 5);
    assert_int_equal(t.broken, 0);
    assert_int_equal(t.other, 1);
    assert_int_equal(k.n, 4);
    assert_true(k.records[0].loss == 2 && k.records[0].epoch == 1);
    assert_true(k.records[1].loss == 3 && k.records[1].step == 2 && k.records[1].epoch == -1);
    assert_true(k.records[2].loss == 4 && k.records[2].kind == LS_RECORD_EVAL);
    assert_true(isnan(k.records[3].loss) && !k.records[3].is_diverged && !k.records[3].host[0]);
}

static void epochs_of_old_lines_count_from_1(void **state)
{
    (void)state;
    assert_int_equal(read_line("{\"kind\":\"step\",\"step\":1,\"epoch\":0}").epoch, 1);
    assert_int_equal(read_line("{\"kind\":\"step\",\"step\":1,\"epoch\":1,\"time\":\"T\"}").epoch, 1);
}

static void broken_lines_are_counted(void **state)
{
    (void)state;
    static const char *const lines[] = {"{",
                                        "}",
                                        "[]",
                                        "1",
                                        "{}",
                                        "not json",
                                        "{\"kind\":\"step\"}",
                                        "{\"step\":1}",
                                        "{\"kind\":1,\"step\":1}",
                                        "{\"kind\":null,\"step\":1}",
                                        "{\"kind\":\"step\",\"step\":-1}",
                                        "{\"kind\":\"step\",\"step\":\"1\"}",
                                        "{\"kind\":\"step\",\"step\":1",
                                        "{\"kind\":\"step\",\"step\":1}}",
                                        "{\"kind\":\"step\",\"step\":1,}",
                                        "{\"kind\":\"step\",\"step\":1} x",
                                        "{\"kind\":\"step\",\"step\":01}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":NaN}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":1.}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":.5}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":1e}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":nul}",
                                        "{\"kind\":\"step\",\"step\":1,\"host\":\"\xff\"}",
                                        "{\"kind\":\"step\" \"step\":1}",
                                        "{\"kind\":\"step\",\"step\":1,\"loss\":-}"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!is_broken(lines[i]))
            fail_msg("read as a record: %s", lines[i]);
    struct kept k;
    struct ls_metrics_tally t =
        read_text("{\"kind\":\"step\",\"step\":1}\n\nx\ny\n{\"kind\":\"step\",\"step\":2}\n", &k);
    assert_true(t.lines == 4 && t.broken == 2 && t.first_broken == 3 && k.n == 2 && !t.is_cut);
}

static void the_last_line_is_complete_or_cut(void **state)
{
    (void)state;
    struct kept k;
    struct ls_metrics_tally t = read_text("{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",\"step\":2}", &k);
    assert_true(k.n == 2 && !t.is_cut && t.lines == 2);
    t = read_text("{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",\"st", &k);
    assert_true(k.n == 1 && t.is_cut && t.broken == 0 && t.lines == 1);
    t = read_text("", &k);
    assert_true(k.n == 0 && !t.is_cut && t.lines == 0);
}

static void an_endless_line_takes_no_memory(void **state)
{
    (void)state;
    struct ls_metrics_reader m;
    struct kept k = {0};
    char part[1000];
    memset(part, 'x', sizeof part);
    assert_int_equal(ls_metrics_reader_open(&m, NULL), LS_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ls_metrics_reader_feed(&m, part, sizeof part, keep, &k), LS_OK);
    static const char rest[] = "\n{\"kind\":\"step\",\"step\":2}\n";
    assert_int_equal(ls_metrics_reader_feed(&m, rest, sizeof rest - 1, keep, &k), LS_OK);
    assert_int_equal(ls_metrics_reader_finish(&m, keep, &k), LS_OK);
    assert_true(k.n == 1 && m.tally.broken == 1 && m.tally.first_broken == 1 && !m.tally.is_cut);
    ls_metrics_reader_close(&m);
}

static void a_line_may_come_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] =
        "{\"kind\":\"step\",\"step\":1,\"loss\":0.5}\n{\"kind\":\"rank\",\"step\":2,\"c\":{}}\nx\n";
    const size_t length = sizeof text - 1;
    for (size_t cut = 0; cut <= length; cut++) {
        struct ls_metrics_reader m;
        struct kept k = {0};
        assert_int_equal(ls_metrics_reader_open(&m, NULL), LS_OK);
        assert_int_equal(ls_metrics_reader_feed(&m, text, cut, keep, &k), LS_OK);
        assert_int_equal(ls_metrics_reader_feed(&m, text + cut, length - cut, keep, &k), LS_OK);
        assert_true(k.n == 2 && k.records[0].loss == 0.5 && m.tally.broken == 1 && m.tally.first_broken == 3);
        ls_metrics_reader_close(&m);
    }
}

static void append(const char *text)
{
    FILE *f = fopen("grow.jsonl", "a");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void a_growing_file_is_followed(void **state)
{
    (void)state;
    struct ls_metrics_reader m;
    struct kept k = {0};
    append("{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"st");
    assert_int_equal(ls_metrics_reader_open(&m, "grow.jsonl"), LS_OK);
    assert_int_equal(ls_metrics_reader_read(&m, keep, &k), LS_OK);
    assert_int_equal(k.n, 1);
    append("ep\",\"step\":2}\n");
    assert_int_equal(ls_metrics_reader_read(&m, keep, &k), LS_OK);
    assert_int_equal(k.n, 2);
    assert_int_equal(k.records[1].step, 2);
    assert_false(ls_metrics_reader_is_stale(&m));
    assert_int_equal(ls_file_write("grow.jsonl", "{}\n", 3), LS_OK); /* a rename, as a resumed run does it */
    assert_true(ls_metrics_reader_is_stale(&m));
    ls_metrics_reader_close(&m);
    ls_metrics_reader_close(&m);
}

static void a_missing_file_is_bad_input(void **state)
{
    (void)state;
    struct kept k;
    struct ls_metrics_tally t;
    assert_int_equal(ls_metrics_read("none.jsonl", keep, &k, &t), LS_BAD_INPUT);
    assert_int_equal(ls_metrics_read(".", keep, &k, &t), LS_BAD_INPUT);
}

static void times_are_seconds_since_1970(void **state)
{
    (void)state;
    assert_true(ls_record_time("1970-01-01T00:00:00.000Z") == 0);
    assert_true(ls_record_time("2000-02-29T23:59:59.500Z") == 951868799.5);
    assert_true(ls_record_time("2026-03-01T12:34:56Z") == 1772368496);
    assert_true(isnan(ls_record_time("")) && isnan(ls_record_time("T")) &&
                isnan(ls_record_time("2026-13-01T00:00:00Z")));
    assert_true(isnan(ls_record_time("2026-03-01T12:34:56Zx")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_back),    cmocka_unit_test(a_line_of_a_rank_has_its_collectives),
        cmocka_unit_test(numbers_are_those_of_strtod),      cmocka_unit_test(keys_may_come_in_any_order_and_number),
        cmocka_unit_test(epochs_of_old_lines_count_from_1), cmocka_unit_test(broken_lines_are_counted),
        cmocka_unit_test(the_last_line_is_complete_or_cut), cmocka_unit_test(an_endless_line_takes_no_memory),
        cmocka_unit_test(a_line_may_come_in_any_pieces),    cmocka_unit_test(a_growing_file_is_followed),
        cmocka_unit_test(a_missing_file_is_bad_input),      cmocka_unit_test(times_are_seconds_since_1970),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
