/* The checks of `lockstep doctor`. Each adds its findings to one list. */
#ifndef LS_CMD_DOCTOR_DOCTOR_H
#define LS_CMD_DOCTOR_DOCTOR_H

#include "backend/selftest/selftest.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "report/console.h"
#include <jansson.h>
#include <sched.h> /* with _GNU_SOURCE */
#include <stdio.h>

/* --- findings.c: the list of findings ------------------------------------------------------------------------------- */

/* Missing: Lockstep was built without a part that nothing here needs. */
enum ls_health { LS_HEALTH_OK, LS_HEALTH_MISSING, LS_HEALTH_WARNING, LS_HEALTH_ERROR };

struct ls_finding {
    enum ls_health health;
    const char *topic, *where, *text; /* where: a host, "" for all of them */
    const char *advice;               /* one sentence on what to change; NULL: nothing */
};

struct ls_findings {
    struct ls_arena strings;
    struct ls_finding *list; /* owned; its texts are in strings */
    int n, room;
    int counts[4];         /* by health */
    bool terse;            /* findings that are ok are not kept */
    enum ls_status status; /* the first error */
};

void ls_findings_release(struct ls_findings *f);
void ls_find(struct ls_findings *f, enum ls_health health, const char *topic, const char *where, const char *format,
             ...) __attribute__((format(printf, 5, 6)));
/* Adds advice to the last finding. */
void ls_advise(struct ls_findings *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* quiet: only warnings and errors. */
void ls_findings_print(const struct ls_findings *f, bool quiet, bool colour, FILE *out);
json_t *ls_findings_json(const struct ls_findings *f);

/* --- topology.c: sockets, cores and caches, from hwloc or /sys ---------------------------------------------- */

struct ls_topology {
    int32_t sockets, numa, cores, cpus; /* cpus: hardware threads */
    int32_t usable;                     /* cpus that are online; a container may allow fewer */
    int64_t l2, l3;                     /* bytes of one cache; 0: unknown */
};
void ls_topology_read(struct ls_topology *t);
/* Where it is from: "hwloc" or "/sys". */
const char *ls_topology_source(void);

/* --- process.c: one process and its machine -------------------------------------------------- */

struct ls_process {
    int64_t memory, available; /* bytes, within the limit of the control group */
    int64_t shm;               /* free bytes of /dev/shm; -1: there is none */
    double quota;              /* cores' worth of CPU time that the control group allows; 0: no limit */
    double load;               /* mean number of runnable processes over the last minute */
    cpu_set_t cpus;            /* that the process may use */
    struct ls_topology machine;
    int32_t pid, node;   /* node: ls_comm_node's, once connected */
    int32_t omp_threads; /* OMP_NUM_THREADS, 0: not set */
    int32_t omp_limit;   /* OMP_THREAD_LIMIT, 0: not set */
    int32_t omp_binds;   /* whether variables bind OpenMP's threads to cores */
    char host[64], system[64], processor[80], library[48], isa[24], caution[96], huge_pages[16];
};
/* Tries instructions that may fault in child processes. Call it before a transport's library is loaded. */
void ls_process_read(struct ls_process *v);

/* A set of cores as text: "0-3,8", shortened with "..." where it is long. */
const char *ls_cpus_text(const cpu_set_t *set, char text[64]);

/* --- launcher.c: modules of the transports, and the launcher ------------------------------------------------------ */

/* Loads each transport's module in a child process. Call it before the processes connect. */
void ls_check_transports(struct ls_findings *f, const struct ls_launch *launch);
/* launch NULL: the launcher's variables are wrong, and `why` is the error. */
void ls_check_launch(struct ls_findings *f, const struct ls_launch *launch, const char *why);

/* --- machine.c: checks over the machines and cores of all processes ----------------------------------------------- */

struct ls_processes {
    const struct ls_process *all; /* borrowed; of every rank */
    int n;
    const struct ls_launch *launch; /* borrowed */
    int threads;                    /* of each process */
};

void ls_check_machines(struct ls_findings *f, const struct ls_processes *p);
void ls_check_cores(struct ls_findings *f, const struct ls_processes *p);
void ls_check_differences(struct ls_findings *f, const struct ls_processes *p);

/* --- pairs.c: each pair of ranks, and the clocks of their hosts --------------------------------------------------------- */

struct ls_pair {
    int32_t a, b;     /* a < b; a < 0: not measured */
    double latency;   /* seconds of a small message, one way */
    double bandwidth; /* bytes a second of a large one */
};
struct ls_skew {
    int32_t rank;         /* whose clock: the first of its host */
    double offset, error; /* seconds that it is ahead of rank 0's clock, and the error of that */
};
struct ls_pairs {
    struct ls_pair *list; /* owned; the slowest first */
    int n, possible;
    struct ls_skew *skews; /* owned; rank 0 only */
    int n_skews;
};
/* All ranks call it together. */
enum ls_status ls_pairs_measure(struct ls_comm *comm, struct ls_pairs *p);
void ls_pairs_release(struct ls_pairs *p);
void ls_check_pairs(struct ls_findings *f, const struct ls_processes *processes, const struct ls_pairs *p);
enum ls_status ls_pairs_print(const struct ls_processes *processes, const struct ls_pairs *p, FILE *out);
json_t *ls_pairs_json(const struct ls_pairs *p);
json_t *ls_skews_json(const struct ls_processes *processes, const struct ls_pairs *p);

/* --- gpu.c: the backend for GPUs, and the cards it sees --------------------------------------------------------------- */

enum { LS_CARDS = 16 };
struct ls_cards {
    struct ls_backend_card list[LS_CARDS];
    int n;
};
/* wanted: a missing backend or card is an error. Returns the backend; NULL without a card. */
const struct ls_backend *ls_check_cuda(struct ls_findings *f, bool wanted, struct ls_cards *cards);
json_t *ls_cards_json(const struct ls_cards *cards);

/* --- ops.c: every op of a backend against ref ------------------------------------------------------------------------- */

/* All cases of an op in one precision. */
struct ls_op_health {
    const char *op;
    const struct ls_precision *precision;
    int cases;
    const char *worst; /* the case furthest off, NULL: none; and by how much, where */
    double error, tolerance;
    char tensor[96];
    const char *failed; /* the first case that cannot be run, NULL: none; and why */
    char why[256];
};
struct ls_ops {
    struct ls_op_health *list; /* owned */
    int n, room;
    bool gave_up;
};
/* large: also the cases for GPUs, which are slow on ref. */
enum ls_status ls_ops_examine(struct ls_ops *ops, const struct ls_backend *b, bool large, struct ls_console *console);
void ls_ops_release(struct ls_ops *ops);
void ls_check_ops(struct ls_findings *f, const struct ls_ops *ops);
json_t *ls_ops_json(const struct ls_ops *ops);

#endif
