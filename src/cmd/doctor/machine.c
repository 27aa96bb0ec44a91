#define _GNU_SOURCE
#include "cmd/doctor/doctor.h"

#include <string.h>

#define GIB ((double)(1 << 30))
enum { WHOLE = 4 /* hosts that are described in full; of others only what is not ok */ };

/* --- ranks and hosts ----------------------------------------------------------------------------------------- */

static int count_hosts(const struct ls_processes *p)
{
    int hosts = 0;
    for (int r = 0; r < p->n; r++)
        hosts = p->all[r].node >= hosts ? p->all[r].node + 1 : hosts;
    return hosts;
}

/* The host of a rank; "" where there is one host only. */
static const char *host_of(const struct ls_processes *p, int rank)
{
    return count_hosts(p) > 1 ? p->all[rank].host : "";
}

/* The first rank >= `rank` that is the first of its host; n: none. */
static int next_host(const struct ls_processes *p, int rank)
{
    for (; rank < p->n; rank++) {
        int r = 0;
        while (p->all[r].node != p->all[rank].node)
            r++;
        if (r == rank)
            break;
    }
    return rank;
}

static int ranks_with(const struct ls_processes *p, int rank)
{
    int n = 0;
    for (int r = 0; r < p->n; r++)
        n += p->all[r].node == p->all[rank].node;
    return n;
}

/* --- each host --------------------------------------------------------------------------------------------- */

static void check_processor(struct ls_findings *f, const struct ls_process *v, const char *host)
{
    const struct ls_topology *m = &v->machine;
    ls_find(f, LS_HEALTH_OK, "system", host, "%s", v->system);
    ls_find(f, LS_HEALTH_OK, "processor", host, "%s, %s kernels", v->processor, v->isa);
    ls_find(f, LS_HEALTH_OK, "library", host, "%s", v->library);
    if (*v->caution) {
        ls_find(f, LS_HEALTH_WARNING, "amx", host, "%s", v->caution);
        ls_advise(f, "Ask who runs the virtual machine to hide AMX or to support it.");
    } else
        ls_find(f, LS_HEALTH_OK, "amx", host, "does not fault, or is not there");
    ls_find(f, LS_HEALTH_OK, "topology", host,
            "%d socket%s, %d NUMA node%s, %d cores, %d hardware threads, L2 %.0f KiB, L3 %.0f MiB (%s)", m->sockets,
            m->sockets == 1 ? "" : "s", m->numa, m->numa == 1 ? "" : "s", m->cores, m->cpus, (double)m->l2 / 1024,
            (double)m->l3 / (1 << 20), ls_topology_source());
}

static void check_memory(struct ls_findings *f, const struct ls_process *v, const char *host, int ranks)
{
    double each = (double)v->available / ranks;
    bool little = each < GIB;
    ls_find(f, little ? LS_HEALTH_WARNING : LS_HEALTH_OK, "memory", host, "%.1f GiB, %.1f free for %d process%s",
            (double)v->memory / GIB, (double)v->available / GIB, ranks, ranks == 1 ? "" : "es");
    if (little)
        ls_advise(f, "Start fewer workers here, or see what else takes the memory.");
    if (v->shm < 0) {
        ls_find(f, LS_HEALTH_ERROR, "/dev/shm", host,
                "it is missing or not writable; workers of one machine meet there");
        ls_advise(f, "Mount it: mount -t tmpfs tmpfs /dev/shm");
    } else {
        bool full = v->shm < 64 << 20;
        ls_find(f, full ? LS_HEALTH_WARNING : LS_HEALTH_OK, "/dev/shm", host, "%.0f MiB free",
                (double)v->shm / (1 << 20));
        if (full)
            ls_advise(f, "MPI and UCX want room there: remove old files, or start the container with --shm-size=1g.");
    }
    bool never = strcmp(v->huge_pages, "never") == 0;
    ls_find(f, never ? LS_HEALTH_WARNING : LS_HEALTH_OK, "huge pages", host, "%s", v->huge_pages);
    if (never)
        ls_advise(f, "Let programs ask for them: echo madvise >/sys/kernel/mm/transparent_hugepage/enabled");
}

static void check_load(struct ls_findings *f, const struct ls_process *v, const char *host)
{
    bool busy = v->load > 0.5 * v->machine.usable;
    ls_find(f, busy ? LS_HEALTH_WARNING : LS_HEALTH_OK, "load", host, "%.2f over the last minute on %d cpus", v->load,
            v->machine.usable);
    if (busy)
        ls_advise(f, "Other programs want the same cores: end them, or expect slow and uneven steps.");
}

void ls_check_machines(struct ls_findings *f, const struct ls_processes *p)
{
    for (int r = next_host(p, 0); r < p->n; r = next_host(p, r + 1)) {
        const char *host = host_of(p, r);
        f->terse = p->all[r].node >= WHOLE;
        check_processor(f, &p->all[r], host);
        check_memory(f, &p->all[r], host, ranks_with(p, r));
        check_load(f, &p->all[r], host);
    }
    f->terse = false;
}

/* --- cores and threads --------------------------------------------------------------------------------------- */

static const char *binding_advice(const struct ls_launch *launch)
{
    if (launch->kind == LS_LAUNCH_MPI && strncmp(launch->how, "mpirun", 6) == 0)
        return "Give each its own: mpirun --map-by slot:PE=CORES --bind-to core.";
    if (launch->kind == LS_LAUNCH_MPI && strncmp(launch->how, "mpiexec", 7) == 0)
        return "Give each its own: mpiexec -bind-to core:CORES.";
    if (strncmp(launch->how, "srun", 4) == 0)
        return "Give each its own: srun --cpus-per-task=CORES --cpu-bind=cores.";
    return "Give each its own: start it with taskset -c FIRST-LAST, or all of a machine with --workers N.";
}

static void union_of(const struct ls_processes *p, int rank, cpu_set_t *all)
{
    CPU_ZERO(all);
    for (int r = 0; r < p->n; r++)
        if (p->all[r].node == p->all[rank].node)
            CPU_OR(all, all, &p->all[r].cpus);
}

/* The number of pairs of ranks on a host that share cores; pair and *shared describe the first. */
static int find_overlap(const struct ls_processes *p, int rank, int pair[2], cpu_set_t *shared)
{
    int pairs = 0;
    for (int a = rank; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++) {
            cpu_set_t both;
            CPU_AND(&both, &p->all[a].cpus, &p->all[b].cpus);
            if (p->all[a].node != p->all[rank].node || p->all[b].node != p->all[rank].node || CPU_COUNT(&both) == 0)
                continue;
            if (pairs++ == 0) {
                pair[0] = a;
                pair[1] = b;
                *shared = both;
            }
        }
    return pairs;
}

static void check_sharing(struct ls_findings *f, const struct ls_processes *p, int rank, int cores)
{
    const char *host = host_of(p, rank);
    int pair[2], ranks = ranks_with(p, rank);
    cpu_set_t shared;
    char text[64];
    int pairs = find_overlap(p, rank, pair, &shared);
    if (ranks == 1)
        return;
    if (ranks > cores) {
        ls_find(f, LS_HEALTH_WARNING, "cores", host, "%d ranks share %d core%s", ranks, cores, cores == 1 ? "" : "s");
        ls_advise(f, "Start at most %d on this host: more of them only wait for each other.", cores);
    } else if (pairs > 0) {
        ls_find(f, LS_HEALTH_WARNING, "cores", host, "ranks %d and %d share cores %s%s", pair[0], pair[1],
                ls_cpus_text(&shared, text), pairs > 1 ? ", and others do" : "");
        ls_advise(f, "%s", binding_advice(p->launch));
    } else
        ls_find(f, LS_HEALTH_OK, "cores", host, "each of %d ranks has its own", ranks);
    if (pairs > 0 && p->all[rank].omp_binds) {
        ls_find(f, LS_HEALTH_WARNING, "binding", host,
                "OMP_PROC_BIND or GOMP_CPU_AFFINITY binds threads of several ranks to the same cores");
        ls_advise(f, "Unset it, or give each rank cores of its own.");
    }
}

static void check_use(struct ls_findings *f, const struct ls_processes *p, int rank, const cpu_set_t *all)
{
    const char *host = host_of(p, rank);
    const struct ls_process *v = &p->all[rank];
    int cores = CPU_COUNT(all), usable = v->machine.usable;
    char text[64];
    bool idle = 4 * cores < 3 * usable;
    ls_find(f, idle ? LS_HEALTH_WARNING : LS_HEALTH_OK, "affinity", host, "%d of %d cpus may be used: %s", cores,
            usable, ls_cpus_text(all, text));
    if (idle)
        ls_advise(f, "%s",
                  p->n == 1 ? "Start without taskset or cgroup limits, or ask the batch system for more cores."
                            : binding_advice(p->launch));
    if (v->quota > 0 && v->quota < (double)cores - 0.01) {
        ls_find(f, LS_HEALTH_WARNING, "quota", host, "a control group gives the time of %.1f cores, but %d may be used",
                v->quota, cores);
        ls_advise(f,
                  "Without --threads a run keeps within it; to use all cores, raise the container's or job's limit of "
                  "CPU time.");
    }
}

static void check_threads(struct ls_findings *f, const struct ls_processes *p, int rank, int cores)
{
    const char *host = host_of(p, rank);
    const struct ls_process *v = &p->all[rank];
    int ranks = ranks_with(p, rank), wanted = ranks * p->threads;
    bool many = wanted > cores && ranks <= cores; /* check_sharing reports more ranks than cores */
    ls_find(f, many ? LS_HEALTH_WARNING : LS_HEALTH_OK, "threads", host,
            "%d process%s with %d thread%s each on %d core%s", ranks, ranks == 1 ? "" : "es", p->threads,
            p->threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    if (many)
        ls_advise(f, "Give --threads %d, or leave --threads out.", cores / ranks);
    if (v->omp_limit > 0 && v->omp_limit < p->threads) {
        ls_find(f, LS_HEALTH_WARNING, "threads", host, "OMP_THREAD_LIMIT=%d allows fewer than the %d wanted",
                v->omp_limit, p->threads);
        ls_advise(f, "Unset OMP_THREAD_LIMIT, or give --threads %d.", v->omp_limit);
    }
    if (v->omp_threads > 0 && v->omp_threads != p->threads) {
        ls_find(f, LS_HEALTH_WARNING, "threads", host, "OMP_NUM_THREADS=%d is not what counts: there will be %d",
                v->omp_threads, p->threads);
        ls_advise(f, "Give --threads %d if that is what is wanted.", v->omp_threads);
    }
}

void ls_check_cores(struct ls_findings *f, const struct ls_processes *p)
{
    for (int r = next_host(p, 0); r < p->n; r = next_host(p, r + 1)) {
        cpu_set_t all;
        f->terse = p->all[r].node >= WHOLE;
        union_of(p, r, &all);
        check_use(f, p, r, &all);
        check_sharing(f, p, r, CPU_COUNT(&all));
        check_threads(f, p, r, CPU_COUNT(&all));
    }
    f->terse = false;
}

/* --- differences between hosts ---------------------------------------------------------------------------------- */

static void compare(struct ls_findings *f, const struct ls_processes *p, const char *topic, const char *a,
                    const char *b, int rank, const char *advice)
{
    if (strcmp(a, b) == 0)
        return;
    ls_find(f, LS_HEALTH_WARNING, topic, host_of(p, rank), "%s here, %s at rank 0", b, a);
    ls_advise(f, "%s", advice);
}

void ls_check_differences(struct ls_findings *f, const struct ls_processes *p)
{
    int before = f->n;
    for (int r = next_host(p, 1); r < p->n; r = next_host(p, r + 1)) {
        const struct ls_process *first = &p->all[0], *v = &p->all[r];
        compare(f, p, "processor", first->processor, v->processor, r,
                "Train on hosts of one kind: the slowest sets the pace for all.");
        compare(f, p, "kernels", first->isa, v->isa, r,
                "Other instructions give other bits: train on hosts of one kind.");
        compare(f, p, "library", first->library, v->library, r,
                "Install the same oneDNN everywhere: other versions give other bits.");
    }
    if (f->n == before && count_hosts(p) > 1)
        ls_find(f, LS_HEALTH_OK, "hosts", "", "%d with the same processor, instructions and libraries", count_hosts(p));
}
