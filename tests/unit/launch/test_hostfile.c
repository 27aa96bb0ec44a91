/* Hostfiles: what Open MPI and MPICH write, and what is wrong with others. */
#include "base/log.h"
#include "launch/hostfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/lockstep-hosts-XXXXXX";

static enum ls_status read_text(const char *text, size_t size, struct ls_hostfile *h)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
    return ls_hostfile_read(path, h);
}

static const struct {
    const char *text, *hosts; /* "name*slots@line ..." */
} good[] = {
    {"a", "a*1@1"},
    {"a\n\n b slots=4\n", "a*1@1 b*4@3"},
    {"a:2\r\nb\tslots=3 max-slots=4 # more\r\n#c\n", "a*2@1 b*3@2"},
    {"a\nb:2\nA slots=3\n", "a*4@1 b*2@2"},
    {"[fe80::1]:2\nfe80::2\n[fe80::3]\nfe80::4 slots=2", "fe80::1*2@1 fe80::2*1@2 fe80::3*1@3 fe80::4*2@4"},
    {"n1.example.org:4096 ifname=ib0 binding=user:0-3\n", "n1.example.org*4096@1"},
    {"a:2 slots=3", "a*3@1"},
};

static void reads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ls_hostfile h;
        char found[512] = "";
        if (read_text(good[i].text, strlen(good[i].text), &h) != LS_OK)
            fail_msg("row %zu: %s", i, ls_log_last());
        for (int k = 0; k < h.n; k++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s*%d@%d", k ? " " : "", h.hosts[k].name,
                     h.hosts[k].slots, h.hosts[k].line);
        assert_string_equal(found, good[i].hosts);
        ls_hostfile_release(&h);
        assert_null(h.hosts);
    }
}

static const struct {
    const char *text, *error;
} bad[] = {
    {"", "no hosts; expected HOST, HOST:N or HOST slots=N"},
    {"# a\n\n", "no hosts"},
    {"a\nb:0", ":2: 'b:0'; expected HOST, HOST:N or HOST slots=N"},
    {"b:x", ":1: 'b:x'; expected"},
    {":4", ":1: '"},
    {"a slots=0", ":1: 'slots=0' behind the host a; expected slots=N, with N from 1 to 4096"},
    {"a slots=4097", "'slots=4097'"},
    {"a slots=2x", "'slots=2x'"},
    {"a slots", "'slots' behind the host a"},
    {"a 4", "'4' behind the host a; expected slots=N"},
};

static void refuses(void **state)
{
    (void)state;
    struct ls_hostfile h;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum ls_status st = read_text(bad[i].text, strlen(bad[i].text), &h);
        if (st != LS_BAD_INPUT || !strstr(ls_log_last(), bad[i].error))
            fail_msg("row %zu: %d, %s", i, (int)st, ls_log_last());
    }
    assert_int_equal(read_text("a\0b", 3, &h), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), "a zero byte at offset 1"));
    assert_int_equal(ls_hostfile_read("/nonexistent/hosts", &h), LS_BAD_INPUT);
}

static void finds_this_host(void **state)
{
    (void)state;
    struct ls_hostfile h;
    char text[600], own[256] = "";
    int host = -1;
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    int n = snprintf(text, sizeof text, "a.example\n%s:2\n", own);
    assert_int_equal(read_text(text, (size_t)n, &h), LS_OK);
    assert_int_equal(ls_hostfile_find_this(&h, path, &host), LS_OK);
    assert_int_equal(host, 1);
    ls_hostfile_release(&h);
    n = snprintf(text, sizeof text, "%.*s.some.domain\n10.255.255.1\n", (int)strcspn(own, "."), own);
    if (!strchr(own, '.')) { /* a name without a domain is equal to that with one */
        assert_int_equal(read_text(text, (size_t)n, &h), LS_OK);
        assert_int_equal(ls_hostfile_find_this(&h, path, &host), LS_OK);
        assert_int_equal(host, 0);
        ls_hostfile_release(&h);
    }
    assert_int_equal(read_text("10.255.255.1\n127.0.0.1\n", 23, &h), LS_OK);
    assert_int_equal(ls_hostfile_find_this(&h, path, &host), LS_OK);
    assert_int_equal(host, 1);
    ls_hostfile_release(&h);
    assert_int_equal(read_text("127.0.0.1\nlocalhost\n", 20, &h), LS_OK);
    assert_int_equal(ls_hostfile_find_this(&h, path, &host), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "2 of its hosts are this one"));
    ls_hostfile_release(&h);
}

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    ls_log_mute(1);
    return fd < 0 || close(fd) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(refuses),
        cmocka_unit_test(finds_this_host),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
