/* CPU quotas and memory limits, read from trees that stand for /. */
#define _GNU_SOURCE
#include "base/system/cgroup.h"
#include "base/files/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/lockstep-cgroup-XXXXXX";

static int begin(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return ls_dir_remove(root) != LS_OK;
}

static void put(const char *path, const char *text)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    char *slash = strrchr(whole, '/');
    *slash = 0;
    assert_int_equal(ls_dir_make(whole), LS_OK);
    *slash = '/';
    assert_int_equal(ls_file_write(whole, text, strlen(text)), LS_OK);
}

#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHER "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /proc rw - proc proc rw\n"
#define V1                                                              \
    "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" \
    "32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define CPU "/sys/fs/cgroup/cpu,cpuacct"

static void expect_cpus(double cpus)
{
    double found = ls_cgroup_cpus(root, NULL);
    if (found < cpus - 1e-9 || found > cpus + 1e-9)
        fail_msg("%g cores were expected, %g found", cpus, found);
}

static void expect_left(uint64_t bytes)
{
    uint64_t left = 0;
    assert_true(ls_cgroup_memory(root, &left));
    assert_int_equal(left, bytes);
}

static void memory_of_version_2(void **state)
{
    (void)state;
    uint64_t left;
    assert_false(ls_cgroup_memory(root, &left));
    put("/proc/self/mountinfo", OTHER V2);
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/step/memory.current", "1000\n");
    assert_false(ls_cgroup_memory(root, &left));
    put("/sys/fs/cgroup/job/memory.max", "50000\n");
    put("/sys/fs/cgroup/job/memory.current", "20000\n");
    expect_left(30000);
    put("/sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 5000\ninactive_anon 9\n");
    expect_left(35000);
    put("/sys/fs/cgroup/job/step/memory.max", "20000\n");
    expect_left(19000);
    put("/sys/fs/cgroup/job/step/memory.current", "20001\n");
    expect_left(0);
}

static void memory_of_version_1(void **state)
{
    (void)state;
    uint64_t left;
    put("/proc/self/mountinfo", OTHER V1 "33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/proc/self/cgroup", "4:cpu,cpuacct:/other\n7:memory:/job\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4096\n");
    assert_false(ls_cgroup_memory(root, &left));
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 2048\n");
    expect_left(1073741824 - 4096 + 2048);
}

static void none_where_there_is_no_cgroup(void **state)
{
    (void)state;
    expect_cpus(0);
    put("/proc/self/mountinfo", OTHER);
    expect_cpus(0);
    assert_int_equal(ls_cgroup_cores(root, 12), 12);
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", OTHER V2);
    expect_cpus(0);
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    expect_cpus(0);
    assert_int_equal(ls_cgroup_cores(root, 12), 12);
}

static void version_2_counts_all_groups_around(void **state)
{
    (void)state;
    put("/proc/self/mountinfo", OTHER V2);
    put("/proc/self/cgroup", "0::/system.slice/job 7/step\n");
    put("/sys/fs/cgroup/system.slice/job 7/step/cpu.max", "400000 100000\n");
    expect_cpus(4);
    put("/sys/fs/cgroup/system.slice/cpu.max", "max 100000\n");
    expect_cpus(4);
    put("/sys/fs/cgroup/system.slice/job 7/cpu.max", "250000 100000\n");
    expect_cpus(2.5);
    assert_int_equal(ls_cgroup_cores(root, 12), 3);
    assert_int_equal(ls_cgroup_cores(root, 2), 2);
    put("/sys/fs/cgroup/cpu.max", "10000 50000\n"); /* a container's own root */
    expect_cpus(0.2);
    assert_int_equal(ls_cgroup_cores(root, 12), 1);
}

static void version_1_counts_all_groups_around(void **state)
{
    (void)state;
    put("/proc/self/mountinfo", OTHER V1);
    put("/proc/self/cgroup", "3:cpuset:/other\n2:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/\n");
    put("/sys/fs/cgroup/cpuset/other/cpu.cfs_quota_us", "100000\n"); /* not there in truth, and not looked for */
    put(CPU "/a/b/cpu.cfs_quota_us", "-1\n");
    put(CPU "/a/b/cpu.cfs_period_us", "100000\n");
    expect_cpus(0);
    put(CPU "/a/cpu.cfs_quota_us", "75000\n");
    put(CPU "/a/cpu.cfs_period_us", "50000\n");
    expect_cpus(1.5);
    assert_int_equal(ls_cgroup_cores(root, 12), 2);
}

static void a_mount_may_show_a_part(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc/in\n0::/docker/abc\n");
    put("/proc/self/mountinfo",
        OTHER "32 23 0:28 /docker/abc /sys/fs/cgroup/cpu\\040time ro - cgroup cgroup rw,cpuacct,cpu\n");
    put("/sys/fs/cgroup/cpu time/cpu.cfs_quota_us", "300000");
    put("/sys/fs/cgroup/cpu time/cpu.cfs_period_us", "100000");
    expect_cpus(3);
    put("/sys/fs/cgroup/cpu time/in/cpu.cfs_quota_us", "200000");
    put("/sys/fs/cgroup/cpu time/in/cpu.cfs_period_us", "100000");
    expect_cpus(2);
    /* a group outside of what is seen */
    put("/proc/self/cgroup", "4:cpu:/../../docker/x\n");
    expect_cpus(3);
    put("/proc/self/cgroup", "4:cpu:/docker/abcdef\n");
    expect_cpus(3);
}

static void both_versions_count(void **state)
{
    (void)state;
    put("/proc/self/mountinfo", OTHER V1 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "2:cpu,cpuacct:/a\n0::/b\n");
    put(CPU "/a/cpu.cfs_quota_us", "500000\n");
    put(CPU "/a/cpu.cfs_period_us", "100000\n");
    expect_cpus(5);
    put("/sys/fs/cgroup/unified/b/cpu.max", "400000 100000\n");
    expect_cpus(4);
}

static void groups_are_told_apart(void **state)
{
    (void)state;
    uint64_t a, b, again;
    put("/proc/self/mountinfo", V2);
    put("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/b/cpu.max", "200000 100000\n");
    put("/proc/self/cgroup", "0::/a/x\n");
    ls_cgroup_cpus(root, &a);
    put("/proc/self/cgroup", "0::/b\n");
    ls_cgroup_cpus(root, &b);
    put("/proc/self/cgroup", "0::/a/y/z\n");
    ls_cgroup_cpus(root, &again);
    assert_true(a != b && a == again);
}

static void nonsense_is_no_quota(void **state)
{
    (void)state;
    static const char *const texts[] = {"",          "\n",       "max", "100000", "100000 0",
                                        "-5 100000", "0 100000", "a b", "nan inf"};
    static const char *const mounts[] = {"", " - cgroup", "1 2 3 - cgroup2 x rw", "- - - - - - - - - cgroup2",
                                         "1 2 0:1 / /sys/fs/cgroup rw - cgroup2"};
    put("/proc/self/cgroup", "0::/\nx\n::\n0:\n");
    put("/proc/self/mountinfo", V2);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("/sys/fs/cgroup/cpu.max", texts[i]);
        expect_cpus(0);
    }
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    expect_cpus(1);
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        put("/proc/self/mountinfo", mounts[i]);
        expect_cpus(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(none_where_there_is_no_cgroup, begin, end),
        cmocka_unit_test_setup_teardown(version_2_counts_all_groups_around, begin, end),
        cmocka_unit_test_setup_teardown(version_1_counts_all_groups_around, begin, end),
        cmocka_unit_test_setup_teardown(a_mount_may_show_a_part, begin, end),
        cmocka_unit_test_setup_teardown(both_versions_count, begin, end),
        cmocka_unit_test_setup_teardown(groups_are_told_apart, begin, end),
        cmocka_unit_test_setup_teardown(nonsense_is_no_quota, begin, end),
        cmocka_unit_test_setup_teardown(memory_of_version_2, begin, end),
        cmocka_unit_test_setup_teardown(memory_of_version_1, begin, end),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
