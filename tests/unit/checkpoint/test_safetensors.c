/* safetensors: round trips, every malformed file, checksums, and the safetensors package as the judge. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/files/checksum.h"
#include "checkpoint/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/lockstep-safetensors-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    ls_log_mute(1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    ls_log_mute(0);
    return ls_dir_remove(folder) != LS_OK;
}

/* --- checksum ----------------------------------------------------------------------------------------- */

/* Values of the reference implementation of XXH64, seed 0. */
static void test_checksum(void **state)
{
    (void)state;
    assert_true(ls_checksum_of("", 0) == 0xEF46DB3751D8E999u);
    assert_true(ls_checksum_of("a", 1) == 0xD24EC4F1A98C6E5Bu);
    assert_true(ls_checksum_of("abc", 3) == 0x44BC2CF5AD770999u);
    const char *text = "Nobody inspects the spammish repetition";
    assert_true(ls_checksum_of(text, strlen(text)) == 0xFBCEA83C8A378BF1u);
}

static void test_checksum_in_pieces(void **state)
{
    (void)state;
    unsigned char data[300];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37);
    for (size_t piece = 1; piece < 100; piece++) {
        struct ls_checksum c;
        ls_checksum_init(&c);
        for (size_t at = 0; at < sizeof data; at += piece)
            ls_checksum_add(&c, data + at, piece < sizeof data - at ? piece : sizeof data - at);
        assert_true(ls_checksum_value(&c) == ls_checksum_of(data, sizeof data));
    }
}

/* --- round trip --------------------------------------------------------------------------------------- */

static const float weights[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
static const int64_t tracked = 1234567890123;
static const uint8_t bytes[3] = {7, 8, 255};

static enum ls_status fill(void *context, int i, void *values)
{
    assert_ptr_equal(context, weights);
    assert_int_equal(i, 1);
    memcpy(values, weights, sizeof weights);
    return LS_OK;
}

static uint64_t write_example(void)
{
    static const int64_t matrix[2] = {2, 3}, three[1] = {3}, empty[2] = {0, 5};
    const struct ls_st_tensor tensors[] = {
        {.name = "bytes", .type = LS_ST_U8, .rank = 1, .dim = three, .data = bytes},
        {.name = "weight", .type = LS_ST_F32, .rank = 2, .dim = matrix},
        {.name = "a.count", .type = LS_ST_I64, .rank = 0, .data = &tracked},
        {.name = "empty \"\\ \xc3\xa9", .type = LS_ST_F32, .rank = 2, .dim = empty, .data = weights},
    };
    const struct ls_st_pair metadata[] = {{"format", "pt"}, {"text", "two\nlines"}};
    uint64_t sum;
    assert_int_equal(ls_safetensors_write(path, metadata, 2, tensors, 4, fill, (void *)(uintptr_t)weights, &sum),
                     LS_OK);
    return sum;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct ls_safetensors s;
    float values[6];
    uint64_t sum = write_example();
    assert_int_equal(ls_safetensors_open(path, &s), LS_OK);
    assert_int_equal(s.n_tensors, 4);
    assert_string_equal(s.tensors[0].name, "a.count");
    assert_string_equal(s.tensors[3].name, "bytes");
    const struct ls_st_tensor *weight = ls_safetensors_find(&s, "weight");
    assert_int_equal(weight->rank, 2);
    assert_int_equal(weight->dim[1], 3);
    assert_int_equal(ls_safetensors_f32(weight, path, values), LS_OK);
    assert_memory_equal(values, weights, sizeof weights);
    assert_memory_equal(ls_safetensors_find(&s, "a.count")->data, &tracked, sizeof tracked);
    assert_memory_equal(ls_safetensors_find(&s, "bytes")->data, bytes, sizeof bytes);
    assert_int_equal(ls_safetensors_find(&s, "empty \"\\ \xc3\xa9")->bytes, 0);
    assert_null(ls_safetensors_find(&s, "nothing"));
    assert_string_equal(ls_safetensors_metadata(&s, "text"), "two\nlines");
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&s, "bytes"), path, values), LS_BAD_INPUT);
    assert_true(ls_checksum_of(s.map, s.map_bytes) == sum);
    uint64_t header;
    memcpy(&header, s.map, sizeof header);
    assert_int_equal(header % 8, 0);
    ls_safetensors_release(&s);
}

static void test_conversions(void **state)
{
    (void)state;
    static const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x7c00, 0x0400};
    static const float from_half[] = {1, -2, 65504, 0x1p-24f, -0.0f, INFINITY, 0x1p-14f};
    static const uint16_t brain[] = {0x3f80, 0xc000, 0x7f80};
    static const float from_brain[] = {1, -2, INFINITY};
    static const double wide[] = {0.1, -1e300};
    static const int64_t n[] = {7, 3, 2};
    const struct ls_st_tensor tensors[] = {
        {.name = "half", .type = LS_ST_F16, .rank = 1, .dim = &n[0], .data = half},
        {.name = "brain", .type = LS_ST_BF16, .rank = 1, .dim = &n[1], .data = brain},
        {.name = "wide", .type = LS_ST_F64, .rank = 1, .dim = &n[2], .data = wide},
    };
    struct ls_safetensors s;
    float values[7];
    assert_int_equal(ls_safetensors_write(path, NULL, 0, tensors, 3, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_safetensors_open(path, &s), LS_OK);
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&s, "half"), path, values), LS_OK);
    assert_memory_equal(values, from_half, sizeof from_half);
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&s, "brain"), path, values), LS_OK);
    assert_memory_equal(values, from_brain, sizeof from_brain);
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&s, "wide"), path, values), LS_OK);
    assert_true(values[0] == 0.1f && isinf(values[1]));
    ls_safetensors_release(&s);
}

/* --- malformed files ---------------------------------------------------------------------------------- */

static enum ls_status parse(const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header);
    char *file = malloc(8 + n + data_bytes);
    struct ls_safetensors s;
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    memset(file + 8 + n, 0, data_bytes);
    enum ls_status st = ls_safetensors_parse(file, 8 + n + data_bytes, "file", &s);
    if (st == LS_OK)
        ls_safetensors_release(&s);
    free(file);
    return st;
}

#define T(name, type, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void test_accepted(void **state)
{
    (void)state;
    assert_int_equal(parse("{}", 0), LS_OK);
    assert_int_equal(parse("{}      ", 0), LS_OK);
    assert_int_equal(parse("{\"__metadata__\":{}}", 0), LS_OK);
    assert_int_equal(parse("{" T("a", "F32", "[]", "0", "4") "}", 4), LS_OK);
    assert_int_equal(parse("{" T("a", "F32", "[0]", "0", "0") "," T("b", "U8", "[2]", "0", "2") "}", 2), LS_OK);
    assert_int_equal(parse("{" T("b", "U8", "[2]", "4", "6") "," T("a", "F32", "[1]", "0", "4") "}", 6), LS_OK);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *said;
    } cases[] = {
        {"", 0, "begin with '{'"},
        {" {}", 0, "begin with '{'"},
        {"[]", 0, "begin with '{'"},
        {"{\"a\":", 0, "JSON"},
        {"{} x", 0, "JSON"},
        {"{\"a\":{},\"a\":{}}", 0, "JSON"},                  /* S4 */
        {"{\"__metadata__\":[]}", 0, "__metadata__"},        /* S4 */
        {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__"}, /* S4 */
        {"{\"a\":5}", 0, "tensor a"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"{" T("a", "F31", "[]", "0", "4") "}", 4, "F31"},
        {"{" T("a", "F32", "3", "0", "4") "}", 4, "shape"},
        {"{" T("a", "F32", "[-1]", "0", "4") "}", 4, "dimension 0"},
        {"{" T("a", "F32", "[1.5]", "0", "4") "}", 4, "dimension 0"},
        {"{" T("a", "F32", "[4294967296,4294967296,4]", "0", "4") "}", 4, "overflows"}, /* S3 */
        {"{" T("a", "F32", "[4611686018427387904]", "0", "0") "}", 0, "need"},          /* S3 */
        {"{" T("a", "F32", "[2]", "0", "4") "}", 4, "need 8"},                          /* S3 */
        {"{" T("a", "F32", "[1]", "4", "0") "}", 4, "expected 0 <= begin <= end"},
        {"{" T("a", "F32", "[1]", "-4", "0") "}", 4, "expected 0 <= begin <= end"},
        {"{" T("a", "F32", "[1]", "0", "\"4\"") "}", 4, "data_offsets"},
        {"{" T("a", "F32", "[1]", "4", "8") "}", 8, "a gap"}, /* S2 */
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12, "a gap"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8, "an overlap"},
        {"{" T("a", "F32", "[2]", "0", "8") "}", 7, "truncated"},       /* S2 */
        {"{" T("a", "F32", "[2]", "0", "8") "}", 9, "follow the last"}, /* S2 */
        {"{" T("a", "F32", "[1]", "0", "9223372036854775808") "}", 4, "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].header, cases[i].data) != LS_BAD_INPUT)
            fail_msg("accepted: %s", cases[i].header);
        if (!strstr(ls_log_last(), cases[i].said) || strncmp(ls_log_last(), "file: ", 6) != 0)
            fail_msg("%s: said \"%s\", expected \"file: ... %s\"", cases[i].header, ls_log_last(), cases[i].said);
    }
}

/* S1 */
static void test_header_length(void **state)
{
    (void)state;
    struct ls_safetensors s;
    static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < 4; i++) {
        char file[10] = "........{}";
        memcpy(file, &lengths[i], 8);
        assert_int_equal(ls_safetensors_parse(file, sizeof file, "file", &s), LS_BAD_INPUT);
    }
    assert_int_equal(ls_safetensors_parse("short", 5, "file", &s), LS_BAD_INPUT);
    assert_int_equal(ls_safetensors_parse("", 0, "file", &s), LS_BAD_INPUT);
}

static void test_files(void **state)
{
    (void)state;
    struct ls_safetensors s;
    assert_int_equal(ls_safetensors_open("/nonexistent/x.safetensors", &s), LS_BAD_INPUT);
    assert_int_equal(ls_safetensors_open(folder, &s), LS_BAD_INPUT);
    assert_int_equal(ls_file_write(path, "{}", 2), LS_OK);
    assert_int_equal(ls_safetensors_open(path, &s), LS_BAD_INPUT);
}

/* Every prefix of a good file is refused, and no byte of the header can be changed into a crash. */
static void test_truncated_and_flipped(void **state)
{
    (void)state;
    char *file;
    size_t size;
    struct ls_safetensors s;
    write_example();
    assert_int_equal(ls_file_read(path, 1 << 20, &file, &size), LS_OK);
    for (size_t n = 0; n < size; n++) {
        char *part = malloc(n ? n : 1);
        memcpy(part, file, n);
        assert_int_equal(ls_safetensors_parse(part, n, "file", &s), LS_BAD_INPUT);
        free(part);
    }
    for (size_t at = 0; at < size; at++)
        for (int bit = 0; bit < 8; bit++) {
            file[at] = (char)(file[at] ^ 1 << bit);
            if (ls_safetensors_parse(file, size, "file", &s) == LS_OK)
                ls_safetensors_release(&s);
            file[at] = (char)(file[at] ^ 1 << bit);
        }
    ls_free(file);
}

/* A file that may not grow stands for a full disk: what was there before stays, nothing half-written is left.
 */
static void test_full_disk(void **state)
{
    (void)state;
    static const int64_t many[1] = {100000};
    struct rlimit before, little;
    float *values = calloc(100000, sizeof *values);
    const struct ls_st_tensor t = {.name = "t", .type = LS_ST_F32, .rank = 1, .dim = many, .data = values};
    uint64_t sum = write_example();
    getrlimit(RLIMIT_FSIZE, &before);
    little = before;
    little.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    enum ls_status st = ls_safetensors_write(path, NULL, 0, &t, 1, NULL, NULL, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    free(values);
    assert_int_equal(st, LS_FAILED);
    assert_non_null(strstr(ls_log_last(), path));
    char *file;
    size_t size;
    assert_int_equal(ls_file_read(path, 1 << 20, &file, &size), LS_OK);
    assert_true(ls_checksum_of(file, size) == sum);
    ls_free(file);
    assert_int_equal(ls_safetensors_write("/nonexistent/x", NULL, 0, &t, 1, NULL, NULL, NULL), LS_FAILED);
    assert_non_null(strstr(ls_log_last(), "/nonexistent/x"));
}

/* --- the safetensors package -------------------------------------------------------------------------- */

/* $PYTHON, which ./test sets to one that has the packages, or the system's. */
static const char *python(void)
{
    const char *interpreter = getenv("PYTHON") ? getenv("PYTHON") : "python3";
    char command[1024];
    snprintf(command, sizeof command, "%s -c 'import numpy, safetensors.numpy' 2>/dev/null", interpreter);
    return system(command) == 0 ? interpreter : NULL;
}

static void test_against_package(void **state)
{
    (void)state;
    const char *interpreter = python();
    if (!interpreter) {
        print_message("no python with numpy and safetensors: not compared with the package\n");
        skip();
    }
    char command[1024], theirs[80];
    write_example();
    snprintf(theirs, sizeof theirs, "%s/theirs.safetensors", folder);
    snprintf(
        command, sizeof command,
        "%s -c \"import numpy as n, safetensors.numpy as s\n"
        "t = s.load_file('%s')\n"
        "assert sorted(t) == ['a.count', 'bytes', 'empty \\\"\\\\\\\\ \\u00e9', 'weight'], sorted(t)\n"
        "assert t['weight'].tolist() == [[1, -2, 3.5], [0, n.float32(1e-30), 6]] and t['a.count'] == 1234567890123\n"
        "assert t['bytes'].tolist() == [7, 8, 255] and t['a.count'].shape == ()\n"
        "s.save_file({'x': n.arange(12, dtype='f4').reshape(3, 4), 'h': n.ones(3, 'f2'), 'i': n.array(5)}, '%s', {'k': 'v'})\"",
        interpreter, path, theirs);
    assert_int_equal(system(command), 0);
    struct ls_safetensors s;
    float values[12];
    assert_int_equal(ls_safetensors_open(theirs, &s), LS_OK);
    assert_string_equal(ls_safetensors_metadata(&s, "k"), "v");
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&s, "x"), theirs, values), LS_OK);
    for (int i = 0; i < 12; i++)
        assert_true(values[i] == (float)i);
    assert_int_equal(ls_safetensors_find(&s, "i")->rank, 0);
    ls_safetensors_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_checksum_in_pieces),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_against_package),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
