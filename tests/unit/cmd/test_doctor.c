/* What doctor makes of machines that are not there. */
#define _GNU_SOURCE
#include "base/log.h"
#include "cmd/doctor/doctor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 8 };

static const struct ls_launch by_mpirun = {.kind = LS_LAUNCH_MPI, .how = "mpirun (Open MPI)", .mpi = "openmpi"};

/* Two hosts of 16 cores with 4 ranks each, every rank on 4 cores of its own: nothing to find fault with. */
struct doctor_case {
    struct ls_process all[RANKS];
    struct ls_processes processes;
    struct ls_findings found;
};

static void begin_case(struct doctor_case *w)
{
    *w = (struct doctor_case){.processes = {.all = w->all, .n = RANKS, .launch = &by_mpirun, .threads = 4}};
    for (int r = 0; r < RANKS; r++) {
        struct ls_process *v = &w->all[r];
        *v = (struct ls_process){
            .memory = (int64_t)64 << 30,
            .available = (int64_t)60 << 30,
            .shm = (int64_t)32 << 30,
            .load = 0.1,
            .machine = {.sockets = 1, .numa = 1, .cores = 16, .cpus = 16, .usable = 16, .l2 = 1 << 20, .l3 = 32 << 20},
            .pid = 100 + r,
            .node = r / 4,
            .system = "Linux",
            .processor = "A processor",
            .library = "oneDNN 2.6.0",
            .isa = "avx512",
            .huge_pages = "madvise",
        };
        snprintf(v->host, sizeof v->host, "host%d", r / 4);
        for (int cpu = 4 * (r % 4); cpu < 4 * (r % 4) + 4; cpu++)
            CPU_SET(cpu, &v->cpus);
    }
}

static void examine(struct doctor_case *w)
{
    ls_check_machines(&w->found, &w->processes);
    ls_check_cores(&w->found, &w->processes);
    ls_check_differences(&w->found, &w->processes);
    assert_int_equal(w->found.status, LS_OK);
}

/* The one finding that is not ok; it has advice. */
static const struct ls_finding *only_fault(const struct doctor_case *w)
{
    const struct ls_finding *fault = NULL;
    for (int i = 0; i < w->found.n; i++)
        if (w->found.list[i].health != LS_HEALTH_OK) {
            assert_null(fault);
            fault = &w->found.list[i];
        }
    assert_non_null(fault);
    assert_non_null(fault->advice);
    return fault;
}

static void expect_fault(struct doctor_case *w, enum ls_health health, const char *topic, const char *host,
                         const char *part)
{
    examine(w);
    const struct ls_finding *fault = only_fault(w);
    assert_int_equal(fault->health, health);
    assert_string_equal(fault->topic, topic);
    assert_string_equal(fault->where, host);
    if (!strstr(fault->text, part))
        fail_msg("'%s' is not in '%s'", part, fault->text);
    ls_findings_release(&w->found);
}

static void nothing_is_found_where_nothing_is_wrong(void **state)
{
    (void)state;
    struct doctor_case w;
    begin_case(&w);
    examine(&w);
    assert_int_equal(w.found.counts[LS_HEALTH_WARNING] + w.found.counts[LS_HEALTH_ERROR], 0);
    ls_findings_release(&w.found);
}

static void ranks_on_the_same_cores_are_named(void **state)
{
    (void)state;
    struct doctor_case w;
    begin_case(&w);
    CPU_SET(0, &w.all[5].cpus);
    expect_fault(&w, LS_HEALTH_WARNING, "cores", "host1", "ranks 4 and 5 share cores 0");
    begin_case(&w);
    for (int r = 4; r < 8; r++) {
        CPU_ZERO(&w.all[r].cpus);
        w.all[r].machine.usable = 3;
        for (int cpu = 0; cpu < 3; cpu++)
            CPU_SET(cpu, &w.all[r].cpus);
    }
    expect_fault(&w, LS_HEALTH_WARNING, "cores", "host1", "4 ranks share 3 cores");
}

/* mpirun binds each rank to one core unless told otherwise. */
static void cores_that_nobody_may_use_are_seen(void **state)
{
    (void)state;
    struct doctor_case w;
    begin_case(&w);
    for (int r = 0; r < 4; r++) {
        CPU_ZERO(&w.all[r].cpus);
        CPU_SET(r, &w.all[r].cpus);
    }
    w.processes.threads = 1;
    examine(&w);
    const struct ls_finding *fault = only_fault(&w);
    assert_string_equal(fault->topic, "affinity");
    assert_string_equal(fault->text, "4 of 16 cpus may be used: 0-3");
    assert_non_null(strstr(fault->advice, "mpirun"));
    ls_findings_release(&w.found);
}

static void more_threads_than_cores_are_seen(void **state)
{
    (void)state;
    struct doctor_case w;
    begin_case(&w);
    w.processes.threads = 5;
    examine(&w);
    assert_int_equal(w.found.counts[LS_HEALTH_WARNING], 2);
    ls_findings_release(&w.found);
    begin_case(&w);
    w.all[4].omp_threads = 2;
    expect_fault(&w, LS_HEALTH_WARNING, "threads", "host1", "OMP_NUM_THREADS=2");
    begin_case(&w);
    w.all[0].omp_limit = 2;
    expect_fault(&w, LS_HEALTH_WARNING, "threads", "host0", "OMP_THREAD_LIMIT=2");
    begin_case(&w);
    w.all[0].quota = 2.5;
    expect_fault(&w, LS_HEALTH_WARNING, "quota", "host0", "2.5 cores, but 16");
}

static void faults_of_a_host_name_it(void **state)
{
    (void)state;
    struct doctor_case w;
    begin_case(&w);
    w.all[4].available = 3 << 29;
    expect_fault(&w, LS_HEALTH_WARNING, "memory", "host1", "1.5 free for 4 processes");
    begin_case(&w);
    w.all[0].shm = -1;
    expect_fault(&w, LS_HEALTH_ERROR, "/dev/shm", "host0", "missing");
    begin_case(&w);
    w.all[0].shm = 1 << 20;
    expect_fault(&w, LS_HEALTH_WARNING, "/dev/shm", "host0", "1 MiB");
    begin_case(&w);
    snprintf(w.all[4].huge_pages, sizeof w.all[4].huge_pages, "never");
    expect_fault(&w, LS_HEALTH_WARNING, "huge pages", "host1", "never");
    begin_case(&w);
    snprintf(w.all[0].caution, sizeof w.all[0].caution, "faults");
    expect_fault(&w, LS_HEALTH_WARNING, "amx", "host0", "faults");
    begin_case(&w);
    w.all[4].load = 12;
    expect_fault(&w, LS_HEALTH_WARNING, "load", "host1", "12.00");
    begin_case(&w);
    snprintf(w.all[4].isa, sizeof w.all[4].isa, "avx2");
    expect_fault(&w, LS_HEALTH_WARNING, "kernels", "host1", "avx2 here, avx512 at rank 0");
}

/* --- pairs ------------------------------------------------------------------------------------------------------ */

static void expect_pair_fault(struct ls_pairs *p, const char *topic, const char *part, const char *advice)
{
    struct doctor_case w;
    begin_case(&w);
    ls_check_pairs(&w.found, &w.processes, p);
    const struct ls_finding *fault = only_fault(&w);
    assert_string_equal(fault->topic, topic);
    if (!strstr(fault->text, part))
        fail_msg("'%s' is not in '%s'", part, fault->text);
    assert_non_null(strstr(fault->advice, advice));
    ls_findings_release(&w.found);
}

static void slow_pairs_and_wrong_clocks_are_named(void **state)
{
    (void)state;
    struct ls_skew skews[1] = {{.rank = 4, .offset = 0.01, .error = 0.001}};
    struct ls_pair list[] = {
        {.a = 0, .b = 4, .latency = 1e-5, .bandwidth = 1.0e9}, {.a = 0, .b = 5, .latency = 1e-5, .bandwidth = 1.1e9},
        {.a = 1, .b = 4, .latency = 1e-5, .bandwidth = 1.2e9}, {.a = 0, .b = 1, .latency = 1e-6, .bandwidth = 9e9},
        {.a = 0, .b = 2, .latency = 1e-6, .bandwidth = 10e9},  {.a = 1, .b = 2, .latency = 1e-6, .bandwidth = 10e9},
    };
    struct ls_pairs p = {.list = list, .n = 6, .possible = 28, .skews = skews, .n_skews = 1};
    struct doctor_case w;
    begin_case(&w);
    ls_check_pairs(&w.found, &w.processes, &p);
    assert_int_equal(w.found.n, 3);
    assert_int_equal(w.found.counts[LS_HEALTH_OK], 3);
    ls_findings_release(&w.found);

    list[0].bandwidth = 0.3e9;
    expect_pair_fault(&p, "network", "ranks 0 (host0) and 4 (host1) with 0.3 GB/s", "cable");
    list[0].bandwidth = list[1].bandwidth = list[2].bandwidth = 0.11e9;
    expect_pair_fault(&p, "network", "0.11 GB/s is usual", "--compress");
    list[0].bandwidth = list[1].bandwidth = list[2].bandwidth = 1e9;
    list[3].bandwidth = 2e9;
    expect_pair_fault(&p, "memory path", "ranks 0 (host0) and 1 (host0)", "cores");
    list[3].bandwidth = 9e9;
    skews[0].offset = -3.25;
    expect_pair_fault(&p, "clock", "3.250 s behind", "chrony");
    skews[0].error = 3.2; /* the network may be that slow: nothing is known */
    begin_case(&w);
    ls_check_pairs(&w.found, &w.processes, &p);
    assert_int_equal(w.found.counts[LS_HEALTH_WARNING], 0);
    ls_findings_release(&w.found);
}

/* --- this machine -------------------------------------------------------------------------------------------------- */

static void this_process_is_described(void **state)
{
    (void)state;
    struct ls_process v;
    ls_process_read(&v);
    assert_true(v.memory > 0 && v.available > 0 && v.available <= v.memory);
    assert_true(CPU_COUNT(&v.cpus) > 0);
    assert_true(v.machine.sockets > 0 && v.machine.numa > 0 && v.machine.cores > 0);
    assert_true(v.machine.cores <= v.machine.cpus && v.machine.usable <= v.machine.cpus);
    assert_non_null(strstr(v.library, "oneDNN"));
    assert_string_not_equal(v.isa, "unknown");
}

static void cores_are_written_as_ranges(void **state)
{
    (void)state;
    cpu_set_t set;
    char text[64];
    CPU_ZERO(&set);
    assert_string_equal(ls_cpus_text(&set, text), "");
    CPU_SET(0, &set);
    CPU_SET(2, &set);
    CPU_SET(3, &set);
    CPU_SET(CPU_SETSIZE - 1, &set);
    assert_string_equal(ls_cpus_text(&set, text), "0,2-3,1023");
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu += 2)
        CPU_SET(cpu, &set);
    ls_cpus_text(&set, text);
    assert_true(strlen(text) < sizeof text);
    assert_string_equal(text + strlen(text) - 4, ",...");
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

static void ops_that_are_wrong_are_named(void **state)
{
    (void)state;
    const struct ls_precision *f32 = ls_precision_find("f32"), *bf16 = ls_precision_find("bf16");
    struct ls_op_health list[] = {
        {.op = "conv", .precision = f32, .cases = 3, .worst = "conv 3x3", .error = 1e-7, .tolerance = 1e-5},
        {.op = "conv",
         .precision = bf16,
         .cases = 3,
         .worst = "conv 3x3",
         .error = 0.3,
         .tolerance = 2e-2,
         .tensor = "y"},
        {.op = "bn",
         .precision = f32,
         .cases = 3,
         .worst = "bn pool",
         .error = INFINITY,
         .tolerance = 1e-5,
         .tensor = "dx"},
        {.op = "lrn", .precision = f32, .cases = 1, .failed = "lrn 5", .why = "no such kernel", .tolerance = 1e-5},
        {.op = "add", .precision = f32, .cases = 1, .worst = "add", .error = NAN, .tolerance = 1e-5},
    };
    struct ls_ops ops = {.list = list, .n = 5, .gave_up = true};
    struct ls_findings f = {0};
    ls_check_ops(&f, &ops);
    assert_int_equal(f.status, LS_OK);
    assert_int_equal(f.counts[LS_HEALTH_OK], 1);
    assert_int_equal(f.counts[LS_HEALTH_ERROR], 5);
    assert_string_equal(f.list[0].text, "f32: relative error 1.0e-07 at most, 3 cases");
    assert_string_equal(f.list[1].text, "bf16: case \"conv 3x3\": y has a relative error of 3.0e-01; 2e-02 is allowed");
    assert_string_equal(f.list[2].text, "f32: case \"bn pool\": dx has values that are not finite");
    assert_string_equal(f.list[3].text, "f32: case \"lrn 5\" cannot be run: no such kernel");
    for (int i = 1; i < f.n; i++)
        assert_non_null(f.list[i].advice);
    json_t *json = ls_ops_json(&ops);
    assert_int_equal(json_array_size(json), 5);
    assert_true(json_is_null(json_object_get(json_array_get(json, 2), "error")));
    assert_true(json_is_true(json_object_get(json_array_get(json, 0), "ok")));
    json_decref(json);
    ls_findings_release(&f);
}

/* onednn stands in for a card. */
static void every_op_is_examined(void **state)
{
    (void)state;
    struct ls_ops ops = {0};
    struct ls_findings f = {0};
    struct ls_console console = {0};
    assert_int_equal(ls_ops_examine(&ops, ls_backend_find("onednn"), false, &console), LS_OK);
    ls_check_ops(&f, &ops);
    int cases = 0, expected = 0, half = 0;
    for (int i = 0; ls_case_at(i); i++)
        expected += !ls_case_at(i)->large;
    for (int i = 0; i < ops.n; i++) {
        cases += strcmp(ops.list[i].precision->name, "f32") == 0 ? ops.list[i].cases : 0;
        half += strcmp(ops.list[i].precision->name, "bf16") == 0 ? ops.list[i].cases : 0;
        assert_true(strcmp(ops.list[i].precision->name, "fp16") != 0 &&
                    strcmp(ops.list[i].precision->name, "tf32") != 0);
    }
    assert_int_equal(cases, expected);
    assert_true(half == expected || half == 0);
    assert_int_equal(f.counts[LS_HEALTH_ERROR], 0);
    assert_false(ops.gave_up);
    ls_findings_release(&f);
    ls_ops_release(&ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found_where_nothing_is_wrong),
        cmocka_unit_test(ranks_on_the_same_cores_are_named),
        cmocka_unit_test(cores_that_nobody_may_use_are_seen),
        cmocka_unit_test(more_threads_than_cores_are_seen),
        cmocka_unit_test(faults_of_a_host_name_it),
        cmocka_unit_test(slow_pairs_and_wrong_clocks_are_named),
        cmocka_unit_test(this_process_is_described),
        cmocka_unit_test(cores_are_written_as_ranges),
        cmocka_unit_test(ops_that_are_wrong_are_named),
        cmocka_unit_test(every_op_is_examined),
    };
    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
