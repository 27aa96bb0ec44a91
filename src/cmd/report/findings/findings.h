/* What the figures mean, in words. A rule is a function of the file of its subject, with its threshold at the head of that
 * file. docs/report.md lists them. */
#ifndef LS_CMD_REPORT_FINDINGS_H
#define LS_CMD_REPORT_FINDINGS_H

#include "cmd/report/inputs/subject.h"

enum ls_remark_kind { LS_REMARK_LIMIT, LS_REMARK_BAD, LS_REMARK_WARNING, LS_REMARK_GOOD, LS_REMARK_NOTE };

struct ls_remark {
    enum ls_remark_kind kind;
    const char *run; /* the run it is about; NULL: all */
    const char *text;
    const char *figures, *advice; /* may be NULL */
};

struct ls_remarks {
    struct ls_remark *list; /* owned */
    int n, room;
    struct ls_arena strings;
    enum ls_status status; /* LS_FAILED once memory ran out */
};

/* Starts as {0}. Adds a remark; what follows it is set by ls_remark_figures and ls_remark_advise. */
void ls_remark(struct ls_remarks *r, enum ls_remark_kind kind, const char *run, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void ls_remark_figures(struct ls_remarks *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_remark_advise(struct ls_remarks *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_remarks_release(struct ls_remarks *r);

/* The remarks on all that the report is about, what limits the runs first. */
enum ls_status ls_findings_make(const struct ls_subject *s, struct ls_remarks *r);
/* What limits the speed of a run, how it learned, and what is missing in its files. */
void ls_findings_time(const struct ls_run_view *v, const char *run, struct ls_remarks *r);
void ls_findings_learning(const struct ls_run_view *v, const char *run, struct ls_remarks *r);
void ls_findings_files(const struct ls_run_view *v, const char *run, struct ls_remarks *r);
/* Several runs, and results of bench. */
void ls_findings_compare(const struct ls_subject *s, struct ls_remarks *r);
void ls_findings_bench(const struct ls_bench_file *b, struct ls_remarks *r);

#endif
