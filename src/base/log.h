/* Messages. An error is reported once, at the place that detects it, as one line with the cause and what to do. Messages go
 * to standard error and, once a run directory is open, to its log.txt as well. Control characters in a message are escaped.
 * The log is the only process-wide object of Lockstep. All functions may be called from any thread. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include "base/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Reports an error and returns status: `return ls_fail(LS_BAD_INPUT, "%s: ...", path);` */
enum ls_status ls_fail(enum ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line to standard output and log.txt. */
void ls_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the reason for a long wait to standard error and log.txt. */
void ls_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes a line to log.txt only. */
void ls_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sets the line below all messages, such as a progress bar; messages are printed above it. NULL removes it. Use it only if
 * standard output is a terminal. */
void ls_log_status_line(const char *line);

/* Sets a prefix for errors and warnings of this thread, such as "net.yaml:12: ", so that code below a reader reports the
 * place in the file. NULL removes it. */
void ls_log_place(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Appends all further messages to the file at path. */
enum ls_status ls_log_open(const char *path);
void ls_log_close(void);
/* While a thread is muted, nothing that it reports is printed. Errors are still available from ls_log_last. Other threads are
 * not affected: the loss of a peer is printed while the main thread is muted. Returns the setting before, for the end of
 * the mute: mutes may be nested. */
bool ls_log_mute(bool on);
/* The same for all threads of the process. */
void ls_log_quiet(bool on);
/* Returns the last error or warning, "" if there was none. Use it only while no other thread reports. */
const char *ls_log_last(void);
/* Copies the last error or warning, and returns whether it was printed. Safe while other threads report. */
bool ls_log_last_copy(char *text, size_t room);

/* Sets a function that edits errors and warnings in place before they are printed; the text must not grow. The C library
 * uses it to replace option names by the names of its settings. NULL: none. */
typedef void ls_log_filter(char *text);
void ls_log_set_filter(ls_log_filter *filter);

/* A module that is loaded at run time has a separate copy of this log. The program calls the module's ls_log_forward with
 * ls_log_write of the program; from then on messages of the module go to the program's log. */
enum ls_log_kind { LS_LOG_ERROR, LS_LOG_WARNING, LS_LOG_PROGRESS, LS_LOG_LINE, LS_LOG_NOTE };
typedef void ls_log_sink(enum ls_log_kind kind, const char *text);
/* Reports a message of any length. */
void ls_log_write(enum ls_log_kind kind, const char *text);
void ls_log_forward(ls_log_sink *sink);

#endif
