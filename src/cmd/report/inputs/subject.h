/* All that one report is about: runs, sweeps, results of bench. */
#ifndef LS_CMD_REPORT_SUBJECT_H
#define LS_CMD_REPORT_SUBJECT_H

#include "cmd/report/inputs/bench_file.h"
#include "cmd/report/inputs/run_view.h"

/* An option whose value differs between runs. */
struct ls_varied {
    const char *name;
    const char **values; /* distinct, in rising order where they are numbers; owned */
    int n_values;
};

enum { LS_VARIED = 12 };

struct ls_subject {
    struct ls_run_view *runs; /* owned, in order */
    int n_runs, room_runs;
    struct ls_bench_file *benches; /* owned */
    int n_benches;
    bool is_sweep;     /* the runs are trials of a sweep */
    const char *title; /* borrowed: the argument, where there is one */
    struct ls_varied varied[LS_VARIED];
    int n_varied;
    struct ls_arena strings;
};

/* Reads what each word names: a run directory, a sweep, a folder of runs, a file of bench. *s needs a release on
 * failure, too. */
enum ls_status ls_subject_load(struct ls_subject *s, char **words, int n);
void ls_subject_release(struct ls_subject *s);
/* The value of the axis in a run, "" if its configuration is unknown. */
const char *ls_varied_value(const struct ls_varied *axis, const struct ls_run_view *run);
/* Finds the options in which the runs differ. */
enum ls_status ls_subject_varied(struct ls_subject *s);

#endif
