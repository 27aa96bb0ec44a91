/* The parts of `lockstep doctor`: each looks at one thing and adds what it finds to one list. */
#ifndef LS_CMD_DOCTOR_DOCTOR_H
#define LS_CMD_DOCTOR_DOCTOR_H

#include "backend/selftest/selftest.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "report/console.h"
#include <jansson.h>
#include <sched.h> /* with _GNU_SOURCE */
#include <stdio.h>

/* --- findings.c: what was found ------------------------------------------------------------------------------- */

/* Missing: Lockstep was built without a part that nothing here needs. */
enum ls_health { LS_HEALTH_OK, LS_HEALTH_MISSING, LS_HEALTH_WARNING, LS_HEALTH_ERROR };

struct ls_finding {
    enum ls_health health;
    const char *topic, *where, *text; /* where: a host, "" for all of them */
    const char *advice;               /* one sentence on what to change; NULL: nothing */
};

struct ls_findings {
    struct ls_arena strings;
    struct ls_finding *list; /* owned; its texts live in strings */
    int n, room;
    int counts[4];         /* by health */
    bool terse;            /* what is ok is not kept */
    enum ls_status status; /* errors stick */
};

void ls_findings_release(struct ls_findings *f);
void ls_find(struct ls_findings *f, enum ls_health health, const char *topic, const char *where, const char *format,
             ...) __attribute__((format(printf, 5, 6)));
/* What to do about the last one. */
void ls_advise(struct ls_findings *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* quiet: only warnings and errors. */
void ls_findings_print(const struct ls_findings *f, bool quiet, bool colour, FILE *out);
json_t *ls_findings_json(const struct ls_findings *f);

/* --- topology.c: the machine as hwloc has it, or the files of /sys ---------------------------------------------- */

struct ls_topology {
    int32_t sockets, numa, cores, cpus; /* cpus: hardware threads */
    int32_t usable;                     /* cpus that the system lets its users have; a container may have fewer */
    int64_t l2, l3;                     /* bytes of one cache; 0: unknown */
};
void ls_topology_read(struct ls_topology *t);
/* Who said so: "hwloc" or "/sys". */
const char *ls_topology_source(void);

/* --- vitals.c: what a process says of itself and of its machine -------------------------------------------------- */

struct ls_vitals {
    int64_t memory, available; /* bytes, as far as a control group lets it have them */
    int64_t shm;               /* free bytes of /dev/shm; -1: there is none */
    double quota;              /* cores' worth of time that a control group gives; 0: no limit */
    double load;               /* processes that wanted to run over the last minute */
    cpu_set_t cpus;            /* that it may use */
    struct ls_topology machine;
    int32_t pid, node;   /* node: as ls_comm_node counts, once joined */
    int32_t omp_threads; /* OMP_NUM_THREADS, 0: not set */
    int32_t omp_limit;   /* OMP_THREAD_LIMIT, 0: not set */
    int32_t omp_binds;   /* do variables bind OpenMP's threads to cores? */
    char host[64], system[64], processor[80], library[48], isa[24], caution[96], huge_pages[16];
};
/* Tries out what may fault, in child processes: before any library of a transport is loaded. */
void ls_vitals_take(struct ls_vitals *v);

/* A set of cores as people write it: "0-3,8". Cut short with "..." where it is long. */
const char *ls_cpus_text(const cpu_set_t *set, char text[64]);

/* --- launched.c: how the processes were started ------------------------------------------------------------------- */

/* Loads each transport's module in a child process and says what became of it; before the processes are joined. */
void ls_check_transports(struct ls_findings *f, const struct ls_launch *launch);
/* launch NULL: it was not understood, and `why` says so. */
void ls_check_launch(struct ls_findings *f, const struct ls_launch *launch, const char *why);

/* --- machine.c: what follows from everybody's vitals ---------------------------------------------------------------- */

struct ls_patients {
    const struct ls_vitals *all; /* borrowed; of every rank */
    int n;
    const struct ls_launch *launch; /* borrowed */
    int threads;                    /* that each computes with */
};

void ls_check_machines(struct ls_findings *f, const struct ls_patients *p);
void ls_check_cores(struct ls_findings *f, const struct ls_patients *p);
void ls_check_differences(struct ls_findings *f, const struct ls_patients *p);

/* --- pairs.c: every two ranks, and the clocks of their hosts --------------------------------------------------------- */

struct ls_pair {
    int32_t a, b;     /* a < b; a < 0: not measured */
    double latency;   /* seconds of a small message, one way */
    double bandwidth; /* bytes a second of a large one */
};
struct ls_skew {
    int32_t rank;         /* whose clock: the first of its host */
    double offset, error; /* seconds that it is ahead of rank 0's, and how sure that is */
};
struct ls_pairs {
    struct ls_pair *list; /* owned; the slowest first */
    int n, possible;
    struct ls_skew *skews; /* owned; rank 0 only */
    int n_skews;
};
/* Together with all other ranks. */
enum ls_status ls_pairs_measure(struct ls_comm *comm, struct ls_pairs *p);
void ls_pairs_release(struct ls_pairs *p);
void ls_check_pairs(struct ls_findings *f, const struct ls_patients *patients, const struct ls_pairs *p);
enum ls_status ls_pairs_print(const struct ls_patients *patients, const struct ls_pairs *p, FILE *out);
json_t *ls_pairs_json(const struct ls_pairs *p);
json_t *ls_skews_json(const struct ls_patients *patients, const struct ls_pairs *p);

/* --- gpu.c: the backend for GPUs, and the cards it sees --------------------------------------------------------------- */

enum { LS_CARDS = 16 };
struct ls_cards {
    struct ls_backend_card list[LS_CARDS];
    int n;
};
/* wanted: what is missing is an error. The backend, where it has a card to compute on; else NULL. */
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
/* large: also the cases for GPUs, which take ref its time. */
enum ls_status ls_ops_examine(struct ls_ops *ops, const struct ls_backend *b, bool large, struct ls_console *console);
void ls_ops_release(struct ls_ops *ops);
void ls_check_ops(struct ls_findings *f, const struct ls_ops *ops);
json_t *ls_ops_json(const struct ls_ops *ops);

#endif
