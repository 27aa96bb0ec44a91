/* metrics.jsonl of a run directory: one JSON object a line, in the order things happened. Fields:
 *   kind ("step" | "epoch" | "eval"), step, epoch, samples, loss, lr, top1, top5, samples_per_s, seconds,
 *   input_share, compute_share, update_share (of seconds).
 *   loader_threads (of rank 0, on step and epoch lines).
 *   gpu_utilisation (%), gpu_memory_bytes, gpu_power_w, gpu_clock_mhz, gpu_temperature_c where a card computes: on step
 *   lines as last seen, on epoch lines the mean since the last one (of memory the most so far).
 * Values that are not finite are null; an eval line has no lr and no update_share. */
#ifndef LS_REPORT_METRICS_H
#define LS_REPORT_METRICS_H

#include "base/status.h"
#include "report/report.h"
#include <stdio.h>

enum ls_metrics_kind { LS_METRICS_STEP, LS_METRICS_EPOCH, LS_METRICS_EVAL };

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
/* Safe on a zeroed struct and twice. */
enum ls_status ls_metrics_close(struct ls_metrics *m);

#endif
