/* lockstep doctor: checks the machine, the launcher and the network between the processes, and prints what to
 * change. Where the processes cannot connect, it checks this process alone. */
#define _GNU_SOURCE
#include "backend/backend.h"
#include "base/files/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "cmd/doctor/doctor.h"
#include "launch/children/workers.h"
#include "cmd/world.h"
#include "report/formats/table.h"
#include "exec/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct doctor {
    struct ls_options *o;
    struct ls_findings found;
    struct ls_world world;
    struct ls_process mine, *all; /* all: owned */
    struct ls_pairs pairs;
    struct ls_processes processes;
    const struct ls_backend *cuda; /* NULL: there is no GPU to compute on */
    struct ls_cards cards;
    struct ls_ops ops; /* results of --gpu */
    int rank, size;
};

/* --- checks ----------------------------------------------------------------------------------------------- */

/* Processes of different builds have different struct ls_process, so the builds are compared first. */
static enum ls_status compare_versions(struct doctor *d, bool *same)
{
    char mine[64] = "", *all = ls_alloc((size_t)d->size, sizeof mine);
    snprintf(mine, sizeof mine, "lockstep %s (%zu)", LS_VERSION, sizeof(struct ls_process));
    enum ls_status st = all ? ls_comm_allgather(d->world.comm, mine, sizeof mine, all) : LS_FAILED;
    *same = true;
    for (int r = 0; st == LS_OK && r < d->size; r++) {
        const char *its = all + (size_t)r * sizeof mine;
        if (memcmp(its, mine, sizeof mine) == 0)
            continue;
        *same = false;
        ls_find(&d->found, LS_HEALTH_ERROR, "version", ls_comm_host(d->world.comm, r),
                "rank %d is %.63s, rank %d is %s", r, its, d->rank, mine);
        ls_advise(&d->found, "Install the same build of Lockstep everywhere.");
    }
    ls_free(all);
    return st;
}

/* Collects struct ls_process of all ranks and measures each pair. Does nothing when the ranks are of different
 * builds. */
static enum ls_status examine_together(struct doctor *d)
{
    struct ls_comm *comm = d->world.comm;
    bool same;
    LS_TRY(compare_versions(d, &same));
    if (!same)
        return LS_OK;
    d->all = ls_alloc((size_t)d->size, sizeof *d->all);
    if (!d->all)
        return LS_FAILED;
    d->mine.node = ls_comm_node(comm, d->rank);
    LS_TRY(ls_comm_allgather(comm, &d->mine, sizeof d->mine, d->all));
    d->processes.all = d->all;
    d->processes.n = d->size;
    return ls_pairs_measure(comm, &d->pairs);
}

static void check_plan_cache(struct doctor *d)
{
    static const char advice[] = "Give --plan-cache FILE, or kernels are measured anew in each run.";
    char *path = ls_engine_plan_cache(d->o);
    if (!path)
        ls_find(&d->found, LS_HEALTH_WARNING, "plan cache", "", "nowhere: there is no home directory");
    else if (!ls_file_can_write(path))
        ls_find(&d->found, LS_HEALTH_WARNING, "plan cache", "", "%s cannot be written", path);
    else
        ls_find(&d->found, LS_HEALTH_OK, "plan cache", "", "%s%s", path, ls_file_exists(path) ? "" : ", still empty");
    if (d->found.n > 0 && d->found.list[d->found.n - 1].health != LS_HEALTH_OK)
        ls_advise(&d->found, "%s", advice);
    ls_free(path);
}

/* Runs before the processes connect: it loads modules in child processes, and MPI must not be loaded before a fork. */
static void check_program(struct doctor *d, const struct ls_launch *launch)
{
    struct ls_findings *f = &d->found;
    ls_find(f, LS_HEALTH_OK, "version", "", "lockstep %s", LS_VERSION);
    check_plan_cache(d);
    ls_check_transports(f, launch);
    ls_check_launch(f, launch, ls_log_last());
    d->cuda = ls_check_cuda(f, d->o->gpu, &d->cards); /* last: no fork after CUDA is loaded */
}

/* --gpu: tests every op on the GPU of this process. */
static enum ls_status check_card(struct doctor *d)
{
    struct ls_console console;
    if (!d->o->gpu || !d->cuda)
        return LS_OK;
    ls_console_begin(&console, d->o, 0);
    enum ls_status st = ls_ops_examine(&d->ops, d->cuda, true, &console);
    ls_console_end(&console);
    ls_check_ops(&d->found, &d->ops);
    return st;
}

static void check_rest(struct doctor *d)
{
    d->processes.threads = d->o->threads > 0 ? (int)d->o->threads : ls_engine_cores();
    ls_check_machines(&d->found, &d->processes);
    ls_check_cores(&d->found, &d->processes);
    ls_check_differences(&d->found, &d->processes);
    ls_check_pairs(&d->found, &d->processes, &d->pairs);
}

/* --- output ----------------------------------------------------------------------------------------------- */

static enum ls_status print_ranks(const struct doctor *d)
{
    static const char *const headings[] = {"rank", "host", "pid", "cores", "threads"};
    struct ls_table t;
    ls_table_init(&t, "rlrlr", headings);
    for (int r = 0; r < d->processes.n; r++) {
        const struct ls_process *v = &d->processes.all[r];
        char cpus[64];
        ls_table_row(&t);
        ls_table_cell(&t, "%d", r);
        ls_table_cell(&t, "%s", v->host);
        ls_table_cell(&t, "%d", v->pid);
        ls_table_cell(&t, "%s", ls_cpus_text(&v->cpus, cpus));
        ls_table_cell(&t, "%d", d->processes.threads);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status print_text(const struct doctor *d)
{
    const struct ls_findings *f = &d->found;
    bool colour = d->o->color && isatty(STDOUT_FILENO);
    if (d->pairs.n > 0 && !d->o->quiet) {
        LS_TRY(print_ranks(d));
        printf("\n");
        LS_TRY(ls_pairs_print(&d->processes, &d->pairs, stdout));
        printf("\n");
    }
    ls_findings_print(f, d->o->quiet, colour, stdout);
    if (!d->o->quiet)
        printf("\n%d error%s, %d warning%s\n", f->counts[LS_HEALTH_ERROR], f->counts[LS_HEALTH_ERROR] == 1 ? "" : "s",
               f->counts[LS_HEALTH_WARNING], f->counts[LS_HEALTH_WARNING] == 1 ? "" : "s");
    return f->status;
}

static json_t *rank_json(const struct doctor *d, int rank)
{
    const struct ls_process *v = &d->processes.all[rank];
    json_t *cpus = json_array();
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &v->cpus))
            json_array_append_new(cpus, json_integer(cpu));
    return json_pack("{s:i, s:s, s:i, s:i, s:o, s:i, s:s, s:s, s:s, s:I, s:I}", "rank", rank, "host", v->host, "node",
                     v->node, "pid", v->pid, "cores", cpus, "threads", d->processes.threads, "processor", v->processor,
                     "kernels", v->isa, "library", v->library, "memory_bytes", (json_int_t)v->memory, "available_bytes",
                     (json_int_t)v->available);
}

static enum ls_status print_json(const struct doctor *d, const struct ls_launch *launch)
{
    const struct ls_findings *f = &d->found;
    json_t *ranks = json_array();
    for (int r = 0; r < d->processes.n; r++)
        json_array_append_new(ranks, rank_json(d, r));
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "doctor", "version",
                  LS_VERSION, "size", d->size, "launcher", launch ? launch->how : "not understood", "transport",
                  d->world.comm ? ls_comm_transport(d->world.comm) : "self", "errors", f->counts[LS_HEALTH_ERROR],
                  "warnings", f->counts[LS_HEALTH_WARNING], "findings", ls_findings_json(f), "ranks", ranks, "pairs",
                  ls_pairs_json(&d->pairs), "clocks", ls_skews_json(&d->processes, &d->pairs), "cards",
                  ls_cards_json(&d->cards), "ops", ls_ops_json(&d->ops));
    int bad = !out || ls_json_print(out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the findings cannot be written to standard output") : f->status;
}

/* --- the command ------------------------------------------------------------------------------------------ */

/* Detects how this process was started. Returns NULL on an error; ls_log_last has its text. */
static const struct ls_launch *detect(struct doctor *d, struct ls_launch *launch)
{
    bool muted = ls_log_mute(true);
    enum ls_status st = ls_launch_detect(d->o, launch);
    ls_log_mute(muted);
    return st == LS_OK ? launch : NULL;
}

static enum ls_status examine(struct doctor *d, const struct ls_launch *launch)
{
    bool speaks = !launch || launch->rank <= 0; /* below 0: not known before the processes connect */
    enum ls_status joined = LS_OK;
    if (speaks)
        check_program(d, launch);
    if (launch)
        joined = ls_world_open(&d->world, d->o);
    if (d->world.comm) {
        d->rank = ls_comm_rank(d->world.comm);
        d->size = ls_comm_size(d->world.comm);
        speaks = d->rank == 0;
        LS_TRY(examine_together(d));
    }
    if (!speaks)
        return joined;
    if (joined != LS_OK) {
        ls_find(&d->found, LS_HEALTH_ERROR, "joining", "", "the processes did not come together: %s", ls_log_last());
        ls_advise(&d->found, "Mend that first; the findings below are of this process alone.");
    }
    check_rest(d);
    LS_TRY(check_card(d));
    return d->o->json ? print_json(d, launch) : print_text(d);
}

enum ls_status ls_cmd_doctor(struct ls_options *o)
{
    struct doctor d = {.o = o, .size = 1};
    struct ls_launch own, alone = {.kind = LS_LAUNCH_ALONE, .how = "alone"};
    enum ls_status st;
    if (ls_workers_took_over(o, &st))
        return st;
    ls_process_read(&d.mine);
    const struct ls_launch *launch = detect(&d, &own);
    d.processes = (struct ls_processes){.all = &d.mine, .n = 1, .launch = launch ? launch : &alone};
    st = examine(&d, launch);
    ls_world_close(&d.world, st); /* a finding of health error is not a failure of the command */
    if (launch)
        ls_launch_release(&own);
    if (st == LS_OK && d.found.counts[LS_HEALTH_ERROR] > 0)
        st = LS_FAILED;
    ls_findings_release(&d.found);
    ls_pairs_release(&d.pairs);
    ls_ops_release(&d.ops);
    ls_free(d.all);
    return st;
}
