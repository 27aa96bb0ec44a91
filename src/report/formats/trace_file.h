/* Traces (base/trace.h) as a file in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
 *
 * Each rank is a process of the file, and each track a thread of it. Times are microseconds since the file's time 0 on the
 * clock of rank 0. The first line is the head; then each event has a line; the last line closes the object. */
#ifndef LS_REPORT_TRACE_FILE_H
#define LS_REPORT_TRACE_FILE_H

#include "base/files/file.h"
#include "base/trace.h"

struct ls_trace_process {
    int rank;
    const char *host;
    double zero, error; /* ls_now() of this process at the file's time 0, up to `error` seconds; 0: exactly */
};

struct ls_trace_about {
    const char *version;  /* of the program; NULL: unknown */
    uint64_t first, last; /* steps that are recorded, from 1 */
    int ranks;
};

/* The events of one process as lines, without a newline at the end; *text is freed by ls_free. */
enum ls_status ls_trace_text(const struct ls_trace *trace, const struct ls_trace_process *process, char **text,
                             size_t *size);
/* Slices that the trace holds, and those that did not fit. */
void ls_trace_tally(const struct ls_trace *trace, uint64_t *held, uint64_t *dropped);

/* Open writes the head. Between the texts of two processes goes ls_trace_file_next. Close writes the last line and commits. */
enum ls_status ls_trace_file_open(struct ls_file_writer *w, const char *path, const struct ls_trace_about *about);
enum ls_status ls_trace_file_next(struct ls_file_writer *w);
enum ls_status ls_trace_file_close(struct ls_file_writer *w);

/* After a failure each rank writes folder/trace-rank-N.json, and merges all such files into folder/trace.json. Ranks may do
 * so at once and need not wait for each other: the last one to end has merged the files of all. */
enum ls_status ls_trace_file_rescue(const char *folder, int rank, const char *text, size_t size,
                                    const struct ls_trace_about *about);
/* Removes trace-rank-*.json of the folder. */
void ls_trace_file_remove_parts(const char *folder);

#endif
