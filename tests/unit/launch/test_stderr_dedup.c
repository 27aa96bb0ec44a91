/* What the parent prints of the standard error of its workers. */
#define _GNU_SOURCE
#include "launch/children/failed_rank.h"
#include "launch/children/stderr_dedup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3 };

/* Gives rank i the text texts[i], reads the ranks in the order of `order`, and returns what was printed. */
static const char *printed(const char *const texts[RANKS], const int order[RANKS])
{
    static char text[8192];
    struct ls_stderr_dedup c;
    int out[2], before = dup(STDERR_FILENO);
    assert_int_equal(ls_stderr_dedup_init(&c, RANKS), LS_OK);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    for (int i = 0; i < RANKS; i++) {
        int in[2];
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(write(in[1], texts[i], strlen(texts[i])), strlen(texts[i]));
        close(in[1]);
        c.streams[i].fd = in[0];
    }
    dup2(out[1], STDERR_FILENO);
    close(out[1]);
    for (int i = 0; i < RANKS; i++)
        while (c.streams[order[i]].fd >= 0)
            ls_stderr_dedup_read(&c, order[i]);
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t n = read(out[0], text, sizeof text - 1);
    close(out[0]);
    text[n < 0 ? 0 : n] = 0;
    ls_stderr_dedup_release(&c);
    return text;
}

static void prints_equal_lines_of_several_ranks_once(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"lockstep: error: a\n", "lockstep: error: a\nlockstep: error: b",
                                      "lockstep: error: a\n"};
    assert_string_equal(printed(texts, (const int[]){0, 1, 2}), "lockstep: error: a\nlockstep: error: b\n");
}

static void prints_the_error_of_a_rank_once_whoever_reports_it(void **state)
{
    (void)state;
    char forwarded[512];
    snprintf(forwarded, sizeof forwarded, "lockstep: error: " LS_FAILED_RANK "\n", 1, "a", "x.png: is no image");
    const char *const texts[RANKS] = {forwarded, "lockstep: error: x.png: is no image\n", forwarded};
    assert_string_equal(printed(texts, (const int[]){1, 0, 2}), "lockstep: error: x.png: is no image\n");
    assert_string_equal(printed(texts, (const int[]){0, 1, 2}), forwarded);
}

static void prints_once_why_the_ranks_do_not_meet(void **state)
{
    (void)state;
    char one[512], two[512];
    snprintf(one, sizeof one, "lockstep: error: " LS_REFUSED_RANK "\n", "h", 29500, 1,
             "rank 3 did not come to h:29500");
    snprintf(two, sizeof two, "lockstep: error: " LS_REFUSED_RANK "\n", "h", 29500, 2,
             "rank 3 did not come to h:29500");
    const char *const first[RANKS] = {"lockstep: error: rank 3 did not come to h:29500\n", one, two};
    assert_string_equal(printed(first, (const int[]){0, 1, 2}), first[0]);
    const char *const others[RANKS] = {"", one, two};
    assert_string_equal(printed(others, (const int[]){0, 1, 2}), one);
}

static void prints_the_repeated_line_of_one_rank(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"note\nnote\n", "", ""};
    assert_string_equal(printed(texts, (const int[]){0, 1, 2}), "note\nnote\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_equal_lines_of_several_ranks_once),
        cmocka_unit_test(prints_the_error_of_a_rank_once_whoever_reports_it),
        cmocka_unit_test(prints_once_why_the_ranks_do_not_meet),
        cmocka_unit_test(prints_the_repeated_line_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
