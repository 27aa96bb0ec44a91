/* The program's voice. An error is said once, where it is decided, as one line with the exact cause and what
 * to do. Messages go to standard error and, once a run directory is open, to its log.txt as well. The log is
 * the one process-wide object of Lockstep; everything else is passed. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include "base/status.h"
#include <stdarg.h>
#include <stddef.h>

/* Say an error, give the status back: `return ls_fail(LS_BAD_INPUT, "%s: ...", path);` */
enum ls_status ls_fail(enum ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line for people: standard output and log.txt. */
void ls_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a long wait is for: standard error and log.txt. */
void ls_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line for log.txt only. */
void ls_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The line that stands below all messages on a terminal (a progress bar): replaced by each call, moved out of
 * the way of every message, taken away by NULL. For standard output that is a terminal. */
void ls_log_status_line(const char *line);

/* Errors and warnings of this thread begin with the place from now on ("net.yaml:12: "), so that what is
 * decided deep below a reader still says where in the file it comes from; NULL ends that. */
void ls_log_place(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Copy all further messages into the file at path (appended); NULL closes it. */
enum ls_status ls_log_open(const char *path);
void ls_log_close(void);
/* Tests and --quiet: nothing reaches the terminal while muted; errors are still kept for ls_log_last. */
void ls_log_mute(int muted);
/* The text of the last error or warning said, "" before the first. */
const char *ls_log_last(void);
/* The same, copied while no other thread says anything. */
void ls_log_last_copy(char *text, size_t room);

/* For a program whose settings go by other names: changes errors and warnings in place, never to longer ones, before they
 * are said. NULL: they stay as they are. */
typedef void ls_log_filter(char *text);
void ls_log_set_filter(ls_log_filter *words);

/* A module that is loaded at run time has its own copy of this folder. What it says goes to the program's log once the
 * program has given it its ear: ls_log_forward(ls_log_write) with the module's ls_log_forward and the program's
 * ls_log_write. */
enum ls_log_kind { LS_LOG_ERROR, LS_LOG_WARNING, LS_LOG_PROGRESS, LS_LOG_LINE, LS_LOG_NOTE };
typedef void ls_log_sink(enum ls_log_kind kind, const char *text);
void ls_log_write(enum ls_log_kind kind, const char *text);
void ls_log_forward(ls_log_sink *ear);

#endif
