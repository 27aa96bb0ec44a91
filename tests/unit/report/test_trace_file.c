/* Traces as files: the lines of a process, and the files that ranks write after a failure. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/formats/trace_file.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/lockstep-trace-XXXXXX";
static const struct ls_trace_about about = {.version = "1.2.3", .first = 1, .last = 2, .ranks = 3};

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A slice that begins and ends so many seconds after the file's time 0, which is 100 s. */
static struct ls_slice slice(enum ls_slice_kind kind, const char *name, double begin, double end)
{
    return (struct ls_slice){
        .kind = kind, .name = name, .begin = 100 + begin, .end = 100 + end, .late_rank = -1, .stall_rank = -1};
}

static struct ls_trace *make(struct ls_track **track, int id)
{
    struct ls_trace *t;
    assert_int_equal(ls_trace_new(1, 2, &t), LS_OK);
    assert_int_equal(ls_trace_track(t, id, id == LS_TRACK_MAIN ? "main" : "messages", 10, track), LS_OK);
    ls_trace_step(t, 1);
    atomic_store(&t->since, 0); /* slices of any time */
    return t;
}

static json_t *events_of(const struct ls_trace *t, int rank, const char *host)
{
    char *text, *whole;
    size_t size;
    struct ls_trace_process process = {.rank = rank, .host = host, .zero = 100};
    assert_int_equal(ls_trace_text(t, &process, &text, &size), LS_OK);
    whole = ls_format("[%.*s]", (int)size, text);
    json_t *list = json_loads(whole, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(list);
    ls_free(whole);
    ls_free(text);
    return list;
}

/* The i-th event that is no metadata. */
static json_t *event(json_t *list, size_t i)
{
    size_t at;
    json_t *one;
    json_array_foreach(list, at,
                       one) if (strcmp(json_string_value(json_object_get(one, "ph")), "M") != 0 && i-- == 0) return one;
    fail_msg("there are fewer events");
    return NULL;
}

static const char *text_of(json_t *one, const char *key)
{
    return json_string_value(json_object_get(one, key));
}

static double number_of(json_t *one, const char *key)
{
    return json_number_value(json_object_get(one, key));
}

static void test_names_are_escaped(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_MAIN);
    (void)state;
    struct ls_slice strange = slice(LS_SLICE_NODE, "a \"b\"\\\n größe", 0.5, 0.75);
    strange.detail = "conv";
    ls_trace_add(track, &strange);
    json_t *list = events_of(t, 4, "höst \"x\"");
    assert_string_equal(text_of(event(list, 0), "name"), "a \"b\"\\\n größe conv");
    assert_string_equal(text_of(json_object_get(json_array_get(list, 0), "args"), "name"), "rank 4 (höst \"x\")");
    assert_int_equal(number_of(event(list, 0), "pid"), 5);
    assert_true(number_of(event(list, 0), "ts") == 500000);
    assert_true(number_of(event(list, 0), "dur") == 250000);
    json_decref(list);
    ls_trace_free(t);
}

/* Slices are added when they end, and stand in the file as they begin, the enclosing one first. */
static void test_the_outer_slice_comes_first(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_MAIN);
    static const char *const expected[] = {"step 2", "pass", "in", "later"};
    (void)state;
    struct ls_slice inner = slice(LS_SLICE_INPUT, "in", 1, 2), later = slice(LS_SLICE_WAIT, "later", 2, 4);
    struct ls_slice pass = slice(LS_SLICE_PASS, "pass", 1, 4), step = slice(LS_SLICE_STEP, "step", 1, 4);
    step.number = 2;
    ls_trace_add(track, &inner);
    ls_trace_add(track, &later);
    ls_trace_add(track, &pass);
    ls_trace_add(track, &step);
    json_t *list = events_of(t, 0, "h");
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(text_of(event(list, i), "name"), expected[i]);
    json_decref(list);
    ls_trace_free(t);
}

/* A node of a card has its kernel, and the number of nodes that this computes; a copy has its bytes. */
static void test_nodes_of_a_card(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_CARD);
    (void)state;
    struct ls_slice node = slice(LS_SLICE_NODE, "conv1", 1, 2), copy = slice(LS_SLICE_COPY, "input", 2, 3);
    node.detail = "conv";
    node.kernel = "engine \"5\"";
    node.number = 3;
    copy.number = -1;
    copy.bytes = 77;
    ls_trace_add(track, &node);
    ls_trace_add(track, &copy);
    json_t *list = events_of(t, 0, "h");
    json_t *args = json_object_get(event(list, 0), "args");
    assert_string_equal(text_of(event(list, 0), "name"), "conv1 conv");
    assert_string_equal(text_of(args, "kernel"), "engine \"5\"");
    assert_int_equal(json_integer_value(json_object_get(args, "nodes")), 3);
    args = json_object_get(event(list, 1), "args");
    assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 77);
    assert_int_equal(json_object_size(args), 1);
    json_decref(list);
    ls_trace_free(t);
}

static void test_messages_are_pairs(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_MESSAGES);
    (void)state;
    struct ls_slice one = slice(LS_SLICE_MESSAGE, "send", 1, 3), two = slice(LS_SLICE_MESSAGE, "receive", 2, 4);
    ls_trace_add(track, &one);
    ls_trace_add(track, &two);
    json_t *list = events_of(t, 1, "h");
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(text_of(event(list, i), "ph"), i % 2 ? "e" : "b");
        assert_string_equal(text_of(event(list, i), "id"), text_of(event(list, i / 2 * 2), "id"));
    }
    assert_string_not_equal(text_of(event(list, 0), "id"), text_of(event(list, 2), "id"));
    json_decref(list);
    ls_trace_free(t);
}

/* What is known of the clock, and what is missing, is a label of the process. */
static void test_labels(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_MAIN);
    struct ls_trace_process process = {.rank = 1, .host = "h", .zero = 100, .error = 1.5e-6};
    char *text;
    size_t size;
    (void)state;
    atomic_store(&track->dropped, 3);
    assert_int_equal(ls_trace_text(t, &process, &text, &size), LS_OK);
    char *ended = ls_format("%.*s", (int)size, text);
    assert_non_null(
        strstr(ended, "{\"labels\":\"clock within 1.500 us of rank 0; 3 slices did not fit and are missing\"}}"));
    ls_free(ended);
    ls_free(text);
    ls_trace_free(t);
}

/* A clock that is a little ahead of its estimate. */
static void test_times_before_zero(void **state)
{
    struct ls_track *track;
    struct ls_trace *t = make(&track, LS_TRACK_MAIN);
    (void)state;
    struct ls_slice early = slice(LS_SLICE_WAIT, "wait", -0.0000005, 0.0000015);
    ls_trace_add(track, &early);
    json_t *list = events_of(t, 0, "h");
    assert_true(number_of(event(list, 0), "ts") == -0.5);
    assert_true(number_of(event(list, 0), "dur") == 2);
    json_decref(list);
    ls_trace_free(t);
}

/* --- after a failure ----------------------------------------------------------------------------------- */

static json_t *read_merged(void)
{
    json_t *file = json_load_file(in_folder("trace.json"), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(file);
    assert_true(json_is_array(json_object_get(file, "traceEvents")));
    return file;
}

static enum ls_status rescue(int rank)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"pid\":%d},\n{\"pid\":%d}", rank, rank);
    return ls_trace_file_rescue(folder, rank, text, (size_t)n, &about);
}

static void test_each_rank_adds_its_part(void **state)
{
    (void)state;
    for (int rank = 2; rank >= 0; rank--) {
        assert_int_equal(rescue(rank), LS_OK);
        json_t *file = read_merged();
        assert_int_equal(json_array_size(json_object_get(file, "traceEvents")), 2 * (3 - rank));
        json_decref(file);
    }
    ls_trace_file_remove_parts(folder);
    assert_false(ls_file_exists(in_folder("trace-rank-0.json")));
    assert_true(ls_file_exists(in_folder("trace.json")));
}

/* Whoever ends last has merged all. */
static void test_ranks_may_merge_at_once(void **state)
{
    enum { RANKS = 8 };
    (void)state;
    for (int round = 0; round < 5; round++) {
        pid_t pids[RANKS];
        ls_trace_file_remove_parts(folder);
        fflush(stdout);
        for (int r = 0; r < RANKS; r++)
            if ((pids[r] = fork()) == 0)
                _exit(rescue(r) != LS_OK);
        for (int r = 0; r < RANKS; r++) {
            int status;
            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            assert_int_equal(status, 0);
        }
        json_t *file = read_merged();
        assert_int_equal(json_array_size(json_object_get(file, "traceEvents")), 2 * RANKS);
        json_decref(file);
    }
}

/* A part that is no such file, cut off or empty, costs only itself. */
static void test_a_broken_part_is_left_out(void **state)
{
    (void)state;
    ls_trace_file_remove_parts(folder);
    assert_int_equal(ls_file_write(in_folder("trace-rank-7.json"), "", 0), LS_OK);
    assert_int_equal(ls_file_write(in_folder("trace-rank-8.json"), "{\"traceEvents\":[\n{\"pid\":8", 25), LS_OK);
    assert_int_equal(rescue(9), LS_OK);
    json_t *file = read_merged();
    assert_int_equal(json_array_size(json_object_get(file, "traceEvents")), 2);
    json_decref(file);
}

static int begin(void **state)
{
    (void)state;
    ls_log_mute(1);
    return mkdtemp(folder) == NULL;
}

static int end(void **state)
{
    (void)state;
    return ls_dir_remove(folder) != LS_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_escaped),
        cmocka_unit_test(test_the_outer_slice_comes_first),
        cmocka_unit_test(test_nodes_of_a_card),
        cmocka_unit_test(test_messages_are_pairs),
        cmocka_unit_test(test_times_before_zero),
        cmocka_unit_test(test_each_rank_adds_its_part),
        cmocka_unit_test(test_ranks_may_merge_at_once),
        cmocka_unit_test(test_a_broken_part_is_left_out),
        cmocka_unit_test(test_labels),
    };
    return cmocka_run_group_tests_name("trace file", tests, begin, end);
}
