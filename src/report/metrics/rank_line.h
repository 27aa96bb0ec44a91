/* What one rank did since its last line: a line of kind "rank" in metrics.jsonl. The five parts add up to seconds. */
#ifndef LS_REPORT_RANK_LINE_H
#define LS_REPORT_RANK_LINE_H

#include "report/metrics/metrics.h"

enum { LS_RANK_KINDS = 9 /* kinds of collectives and messages (comm.h) */ };

/* Travels from every rank to rank 0 as it is: it holds no pointer. */
struct ls_rank_line {
    int64_t steps, samples;
    double loss; /* mean over the rank's own samples; NaN: it had none */
    double seconds;
    double first; /* seconds of the first step of the job, which is slow; part of the first line's seconds */
    double input, compute, exposed, late, update; /* parts of seconds */
    double hidden;                                /* communication behind computing: not a part of seconds */
    int64_t waited_for;                           /* -1: none */
    double waited_for_seconds;
    struct ls_rank_kind {
        uint64_t calls, bytes;
    } kinds[LS_RANK_KINDS];
    int64_t on_gpu; /* gpu is the mean since the last line */
    struct ls_gpu_state gpu;
};

/* From the sum of a rank's reports, whose loss and samples are its own, and the seconds it waited for each of `size` ranks
 * (NULL: one process). Kinds and gpu are left at zero. */
struct ls_rank_line ls_rank_line_of(const struct ls_report *sum, int64_t steps, const double *waited_for, int size);
/* Adds a later line of the same rank. waited_for becomes that of the line that waited longer; gpu is the later one. */
void ls_rank_line_add(struct ls_rank_line *sum, const struct ls_rank_line *line);
/* Mean seconds of a step, without the first step of the job if there are others; 0 without steps. `line` is a sum from the
 * beginning of the job. */
double ls_rank_line_pace(const struct ls_rank_line *line);

/* Finds the rank that holds the others up; totals[r] is the sum of rank r's lines, and the others together waited
 * waited[r] seconds for it. A slow rank is waited for and hardly waits itself. On a busy machine all ranks wait for each
 * other in turn. So a rank is slow if the others waited for it, on average, longer than it waited itself, by more than a
 * tenth of the time and half a second. Returns -1 if there is none. */
int ls_rank_straggler(const struct ls_rank_line *totals, const double *waited, int size);

/* Writes the line; epoch counts from 0. names: of the kinds. */
enum ls_status ls_rank_line_write(struct ls_metrics *m, int64_t step, int64_t epoch, int rank, const char *host,
                                  const char *const names[LS_RANK_KINDS], const struct ls_rank_line *line);

#endif
