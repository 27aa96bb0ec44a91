/* Reads metrics.jsonl (report/metrics/metrics.h) as a stream: one record at a time, in constant memory. Use
 * ls_metrics_read for a whole file. Use struct ls_metrics_reader for a file that grows: ls_metrics_reader_read may be
 * called again and again.
 *
 * Lines of unknown kinds and unknown keys are skipped. A line that is not a JSON object with a kind and a step is broken:
 * it is counted and skipped. Lines without a time come from a version that counted epochs from 0; their epoch is raised
 * by 1. */
#ifndef LS_REPORT_METRICS_READER_H
#define LS_REPORT_METRICS_READER_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_record_kind { LS_RECORD_OTHER, LS_RECORD_STEP, LS_RECORD_EPOCH, LS_RECORD_EVAL, LS_RECORD_RANK };

enum { LS_RECORD_WORD = 64, LS_RECORD_COLLECTIVES = 16 };

struct ls_collective_count {
    char name[24];
    double calls, bytes;
};

/* One line. A number that the line lacks, or that is null, is NaN; an integer is -1; a word is "". */
struct ls_record {
    enum ls_record_kind kind;
    bool is_diverged; /* the loss is there and null: it was not finite */
    int64_t step, epoch, samples;
    char time[LS_RECORD_WORD]; /* the end, in UTC: "2026-03-01T12:34:56.789Z" */
    double loss, lr, top1, top5, samples_per_s, seconds;
    double input_share, compute_share, wait_share, update_share, staleness, cutoff_k;
    int64_t loader_threads;
    double gpu_utilisation, gpu_memory_bytes, gpu_power_w, gpu_clock_mhz, gpu_temperature_c;
    /* Kind rank: what one rank did in an epoch of `seconds` seconds. */
    int64_t rank, steps;
    char host[LS_RECORD_WORD];
    double input_seconds, compute_seconds, exposed_seconds, hidden_seconds, late_seconds, update_seconds;
    int64_t waited_for; /* the rank that was late for longest; -1: none */
    double waited_for_seconds;
    int n_collectives;
    struct ls_collective_count collectives[LS_RECORD_COLLECTIVES];
};

/* What was found besides the records. */
struct ls_metrics_tally {
    int64_t lines;        /* complete lines, blank lines not counted */
    int64_t broken;       /* of these: not a line of metrics */
    int64_t first_broken; /* the number of the first broken line, from 1; 0: none */
    int64_t other;        /* lines of a kind that this version does not know */
    bool is_cut;          /* the last line is incomplete: it is being written, or its writer was killed */
};

/* Called for each record; any other status than LS_OK ends the reading. */
typedef enum ls_status ls_record_visit(const struct ls_record *r, void *context);

/* Reads a whole file. LS_BAD_INPUT if it cannot be opened; broken lines are no failure. */
enum ls_status ls_metrics_read(const char *path, ls_record_visit *visit, void *context, struct ls_metrics_tally *tally);

struct ls_metrics_reader {
    char *path;                    /* owned */
    int fd;                        /* -1: none */
    char *buffer;                  /* owned: bytes of the incomplete last line */
    size_t held;                   /* their number */
    int64_t line;                  /* number of the last complete line */
    bool is_skipping;              /* within a line that is too long */
    unsigned char successor[64];   /* the key that followed each key last time */
    struct ls_metrics_tally tally; /* so far */
};

/* Opens a file. path NULL: there is no file, bytes come from ls_metrics_reader_feed. */
enum ls_status ls_metrics_reader_open(struct ls_metrics_reader *m, const char *path);
/* Visits the records of all complete lines between the last call and the present end of the file. */
enum ls_status ls_metrics_reader_read(struct ls_metrics_reader *m, ls_record_visit *visit, void *context);
/* Visits the records of bytes in memory, which may end anywhere in a line. */
enum ls_status ls_metrics_reader_feed(struct ls_metrics_reader *m, const char *bytes, size_t n, ls_record_visit *visit,
                                      void *context);
/* Says that no more bytes come: visits a last line that only lacks its newline, or sets tally.is_cut. */
enum ls_status ls_metrics_reader_finish(struct ls_metrics_reader *m, ls_record_visit *visit, void *context);
/* Tests whether path is another file by now, or a shorter one: a resumed run writes metrics.jsonl anew. Then close and open. */
bool ls_metrics_reader_is_stale(const struct ls_metrics_reader *m);
/* May be called on a reader whose open failed, and twice. */
void ls_metrics_reader_close(struct ls_metrics_reader *m);

/* Returns seconds since 1970 of a `time` of a record, NaN if it is none. */
double ls_record_time(const char *time);

#endif
