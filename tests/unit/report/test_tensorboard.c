/* Event files: bytes by hand, and no allocation for a step. tests/cli/test-tensorboard.sh reads them with TensorBoard. */
#include "base/memory.h"
#include "config/options.h"
#include "report/observer.h"
#include "report/tensorboard/event_file.h"
#include "report/tensorboard/summary.h"

#include <dirent.h>
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

extern const struct ls_observer_ops ls_observer_tensorboard;

static void encodes_fields(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {
        0x08, 0x96, 0x01,                                                 /* field 1, whole 150 */
        0x12, 0x02, 'h',  'i',                                            /* field 2, text */
        0x19, 0,    0,    0,    0,    0,    0,    0xf8, 0x3f,             /* field 3, double 1.5 */
        0x25, 0,    0,    0,    0xc0,                                     /* field 4, float -2 */
        0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, /* field 5, whole -1 */
        0x82, 0x01, 0x02, 0x08, 0x01,                                     /* field 16, a message */
    };
    struct ls_pb pb = {0};
    ls_pb_whole(&pb, 1, 150);
    ls_pb_text(&pb, 2, "hi");
    ls_pb_double(&pb, 3, 1.5);
    ls_pb_float(&pb, 4, -2);
    ls_pb_whole(&pb, 5, -1);
    size_t mark = ls_pb_open(&pb, 16);
    ls_pb_whole(&pb, 1, 1);
    ls_pb_close(&pb, mark);
    assert_int_equal(pb.size, sizeof wanted);
    assert_memory_equal(pb.bytes, wanted, sizeof wanted);
    ls_pb_release(&pb);
}

/* The length of a message may need more bytes than were kept free for it. */
static void encodes_long_messages(void **state)
{
    (void)state;
    static char text[40000];
    memset(text, 'x', sizeof text - 1);
    for (size_t size = 120; size < sizeof text; size = size * 5 / 2) {
        struct ls_pb pb = {0}, flat = {0};
        text[size] = 0;
        size_t outer = ls_pb_open(&pb, 1), inner = ls_pb_open(&pb, 2);
        ls_pb_text(&pb, 3, text);
        ls_pb_close(&pb, inner);
        ls_pb_close(&pb, outer);
        /* The same from the inside out. */
        ls_pb_text(&flat, 3, text);
        struct ls_pb middle = {0}, whole = {0};
        ls_pb_bytes(&middle, 2, flat.bytes, flat.size);
        ls_pb_bytes(&whole, 1, middle.bytes, middle.size);
        assert_int_equal(pb.size, whole.size);
        assert_memory_equal(pb.bytes, whole.bytes, pb.size);
        text[size] = 'x';
        ls_pb_release(&pb);
        ls_pb_release(&flat);
        ls_pb_release(&middle);
        ls_pb_release(&whole);
    }
}

static void escapes_text_that_is_not_utf8(void **state)
{
    (void)state;
    struct ls_pb pb = {0};
    ls_pb_text(&pb, 1, "a\xff");
    assert_int_equal(pb.size, 7);
    assert_memory_equal(pb.bytes,
                        "\x0a\x05"
                        "a\\xff",
                        7);
    ls_pb_release(&pb);
}

static char *only_file(const char *folder)
{
    char *path = NULL;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, "events.", 7) == 0)
            path = ls_format("%s/%s", folder, e->d_name);
    closedir(dir);
    return path;
}

/* The checksums are those that TensorBoard's Python code computes for the length and for the message. */
static void frames_records(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {0x0b, 0,   0,   0,   0,   0,   0,   0,   0x86, 0x15, 0xf5, 0x04, 0x0a, 0x09,
                                     '1',  '2', '3', '4', '5', '6', '7', '8', '9',  0xf6, 0xdb, 0x1c, 0xe4};
    char folder[] = "/tmp/lockstep-events-XXXXXX", bytes[256];
    struct ls_event_file f;
    struct ls_pb pb = {0};
    bool others = true;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ls_event_file_open(&f, folder, &others), LS_OK);
    assert_false(others);
    ls_pb_text(&pb, 1, "123456789");
    assert_int_equal(ls_event_file_put(&f, &pb, true), LS_OK);
    assert_int_equal(ls_event_file_close(&f), LS_OK);
    char *path = only_file(folder);
    FILE *in = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_true(size > sizeof wanted);
    assert_memory_equal(bytes + size - sizeof wanted, wanted, sizeof wanted);
    unlink(path);
    rmdir(folder);
    ls_free(path);
    ls_pb_release(&pb);
}

static void histogram_of_equal_and_strange_values(void **state)
{
    (void)state;
    static const float equal[] = {2, 2, 2}, none[] = {NAN, INFINITY};
    struct ls_pb pb = {0};
    ls_summary_histogram(&pb, "equal", equal, 3);
    ls_summary_histogram(&pb, "none", none, 2);
    ls_summary_histogram(&pb, "empty", NULL, 0);
    assert_false(pb.failed);
    ls_pb_release(&pb);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-events-XXXXXX";
    struct ls_options o;
    void *self;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ls_options_default(&o), LS_OK);
    struct ls_run_facts facts = {.o = &o, .run = folder, .identity = "none", .ranks = 1};
    assert_int_equal(ls_observer_tensorboard.open(&facts, &self), LS_OK);
    struct ls_report r = {.seconds = 1, .samples = 4, .gradients = 1, .on_gpu = true};
    uint64_t calls = ls_memory_calls();
    for (r.step = 1; r.step <= 300; r.step++)
        assert_int_equal(ls_observer_tensorboard.report(self, LS_METRICS_STEP, &r), LS_OK);
    assert_int_equal(ls_memory_calls(), calls);
    assert_int_equal(ls_observer_tensorboard.close(self, LS_OK), LS_OK);
    char *inner = ls_format("%s/tensorboard", folder), *path = only_file(inner);
    unlink(path);
    rmdir(inner);
    rmdir(folder);
    ls_free(inner);
    ls_free(path);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_fields),
        cmocka_unit_test(encodes_long_messages),
        cmocka_unit_test(escapes_text_that_is_not_utf8),
        cmocka_unit_test(frames_records),
        cmocka_unit_test(histogram_of_equal_and_strange_values),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
