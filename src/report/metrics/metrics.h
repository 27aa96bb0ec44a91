/* metrics.jsonl of a run directory: one JSON object per line, in chronological order, with the fields of ls_metrics_keys.
 * Values that are not finite are null. An eval line has no lr and no update_share. Lines about ranks:
 * report/metrics/rank_line.h. */
#ifndef LS_REPORT_METRICS_H
#define LS_REPORT_METRICS_H

#include "base/text/help.h"
#include "base/status.h"
#include "report/report.h"
#include <stdio.h>

enum ls_metrics_kind { LS_METRICS_STEP, LS_METRICS_EPOCH, LS_METRICS_EVAL };

/* The keys of a line, for help. */
extern const struct ls_help_row ls_metrics_keys[];

struct ls_metrics {
    FILE *file;     /* owned; NULL: closed */
    char *path;     /* owned */
    double flushed; /* ls_now() of the last flush */
};

/* Opens the file for appending. Keeps the lines up to and including step `after`; removes later lines and an incomplete last
 * line. -1 removes all lines. again: the kinds of lines of step `after` that will be written again and are removed, too:
 * 1 << LS_METRICS_EVAL and so on. */
enum ls_status ls_metrics_open(struct ls_metrics *m, const char *path, int64_t after, unsigned again);
/* Writes a line. Step lines reach the file within about a second, epoch and eval lines at once. Allocates nothing. */
enum ls_status ls_metrics_write(struct ls_metrics *m, enum ls_metrics_kind kind, const struct ls_report *r);
/* For lines of other kinds: the parts of a line, and what reaches the file at once. */
void ls_metrics_put_time(FILE *out, double time); /* seconds since 1970; 0: now */
void ls_metrics_put_real(FILE *out, const char *name, double value);
void ls_metrics_put_gpu(FILE *out, const struct ls_gpu_state *gpu);
enum ls_status ls_metrics_flush(struct ls_metrics *m);
/* Makes all lines durable; call it before the checkpoint that they belong to. May be called on a zeroed struct. */
enum ls_status ls_metrics_sync(struct ls_metrics *m);
/* May be called on a zeroed struct, and twice. */
enum ls_status ls_metrics_close(struct ls_metrics *m);

#endif
