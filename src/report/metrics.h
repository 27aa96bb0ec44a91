/* metrics.jsonl of a run directory: one JSON object a line, in the order things happened. ls_metrics_keys has the fields.
 * Values that are not finite are null; an eval line has no lr and no update_share. */
#ifndef LS_REPORT_METRICS_H
#define LS_REPORT_METRICS_H

#include "base/help.h"
#include "base/status.h"
#include "report/report.h"
#include <stdio.h>

enum ls_metrics_kind { LS_METRICS_STEP, LS_METRICS_EPOCH, LS_METRICS_EVAL };

/* Every key of a line, and what it means. */
extern const struct ls_help_row ls_metrics_keys[];

struct ls_metrics {
    FILE *file;     /* owned; NULL: closed */
    char *path;     /* owned */
    double flushed; /* when, ls_now */
};

/* Keeps the lines up to and including step `after` and drops later ones and a line torn by a crash, so that
 * the file tells one story; -1 starts anew. Then appends. */
enum ls_status ls_metrics_open(struct ls_metrics *m, const char *path, int64_t after);
/* Nothing is allocated. Lines reach the file within about a second, epochs and evaluations at once. A failed
 * write (full disk) is an error that names the file. */
enum ls_status ls_metrics_write(struct ls_metrics *m, enum ls_metrics_kind kind, const struct ls_report *r);
/* Every line so far is durable afterwards: before a checkpoint that they belong to. Safe on a zeroed
 * struct. */
enum ls_status ls_metrics_sync(struct ls_metrics *m);
/* Safe on a zeroed struct and twice. */
enum ls_status ls_metrics_close(struct ls_metrics *m);

#endif
