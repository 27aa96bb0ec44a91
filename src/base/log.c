#include "base/log.h"
#include "base/files/file.h"
#include "base/memory.h"
#include "base/text/utf8.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    FILE *file;
    ls_log_sink *forward;  /* of a module: the program's log; NULL: messages are printed here */
    ls_log_filter *filter; /* NULL: none */
    bool quiet;
    char last[1024];
    bool last_muted;   /* the last error or warning was not printed */
    char status[1024]; /* the status line; "": none */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local char place[512];
static _Thread_local bool muted;

void ls_log_place(const char *format, ...)
{
    va_list args;
    place[0] = 0;
    if (!format)
        return;
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
}

/* Nothing of this thread is printed. The caller holds the lock. */
static bool silent(void)
{
    return muted || out.quiet;
}

/* Prints a message and copies it to the log file. The caller holds the lock. */
static void print(enum ls_log_kind kind, const char *text)
{
    static const char *const prefixes[] = {"lockstep: error: ", "lockstep: warning: ", "lockstep: ", "", ""};
    FILE *stream = kind == LS_LOG_NOTE ? NULL : kind == LS_LOG_LINE ? stdout : stderr;
    if (stream && !silent() && !out.forward) {
        if (out.status[0]) {
            fputs("\r\033[K", stdout);
            fflush(stdout);
        }
        fprintf(stream, "%s%s\n", prefixes[kind], text);
        fflush(stream);
        if (out.status[0]) {
            fputs(out.status, stdout);
            fflush(stdout);
        }
    }
    if (out.file) {
        fprintf(out.file, "%s%s\n", prefixes[kind], text);
        fflush(out.file);
    }
}

static void deliver(enum ls_log_kind kind, const char *text)
{
    pthread_mutex_lock(&out.lock);
    ls_log_sink *forward = silent() ? NULL : out.forward;
    if (kind <= LS_LOG_WARNING) {
        snprintf(out.last, sizeof out.last, "%.*s", (int)sizeof out.last - 1, text);
        out.last_muted = silent();
        if (out.filter)
            out.filter(out.last);
        text = out.filter ? out.last : text;
    }
    print(kind, text);
    pthread_mutex_unlock(&out.lock);
    if (forward)
        forward(kind, text);
}

/* Escapes control characters, because messages contain names from files and other processes. A note may begin with
 * newlines. */
void ls_log_write(enum ls_log_kind kind, const char *text)
{
    char fixed[8192], *room = fixed;
    size_t newlines = kind == LS_LOG_NOTE ? strspn(text, "\n") : 0, size = 4 * strlen(text) + 1;
    if (size > sizeof fixed)
        room = ls_alloc(size, 1);
    if (!room)
        return;
    memcpy(room, text, newlines);
    ls_utf8_printable(text + newlines, room + newlines, (size > sizeof fixed ? size : sizeof fixed) - newlines);
    deliver(kind, room);
    if (room != fixed)
        ls_free(room);
}

void ls_log_set_filter(ls_log_filter *filter)
{
    pthread_mutex_lock(&out.lock);
    out.filter = filter;
    pthread_mutex_unlock(&out.lock);
}

void ls_log_forward(ls_log_sink *sink)
{
    pthread_mutex_lock(&out.lock);
    out.forward = sink;
    pthread_mutex_unlock(&out.lock);
}

/* Formats a message; errors and warnings begin with the place. */
static void write_args(enum ls_log_kind kind, const char *format, va_list args)
{
    char text[4096];
    bool placed = kind <= LS_LOG_WARNING;
    size_t room = placed || kind == LS_LOG_PROGRESS ? 1024 : sizeof text;
    int used = snprintf(text, room, "%s", placed ? place : "");
    if (used >= 0 && (size_t)used < room)
        vsnprintf(text + used, room - (size_t)used, format, args);
    ls_log_write(kind, text);
}

#define WRITE(kind, format)              \
    do {                                 \
        va_list args_;                   \
        va_start(args_, format);         \
        write_args(kind, format, args_); \
        va_end(args_);                   \
    } while (0)

enum ls_status ls_fail(enum ls_status status, const char *format, ...)
{
    WRITE(LS_LOG_ERROR, format);
    return status;
}

void ls_warn(const char *format, ...)
{
    WRITE(LS_LOG_WARNING, format);
}

void ls_print(const char *format, ...)
{
    WRITE(LS_LOG_LINE, format);
}

void ls_progress(const char *format, ...)
{
    WRITE(LS_LOG_PROGRESS, format);
}

void ls_note(const char *format, ...)
{
    WRITE(LS_LOG_NOTE, format);
}

void ls_log_status_line(const char *line)
{
    pthread_mutex_lock(&out.lock);
    if (!silent() && (line || out.status[0])) {
        snprintf(out.status, sizeof out.status, "%s", line ? line : "");
        printf("\r%s\033[K", out.status);
        fflush(stdout);
    }
    pthread_mutex_unlock(&out.lock);
}

enum ls_status ls_log_open(const char *path)
{
    FILE *file;
    LS_TRY(ls_file_append(path, &file));
    ls_log_close();
    pthread_mutex_lock(&out.lock);
    out.file = file;
    pthread_mutex_unlock(&out.lock);
    return LS_OK;
}

void ls_log_close(void)
{
    pthread_mutex_lock(&out.lock);
    if (out.file)
        fclose(out.file);
    out.file = NULL;
    pthread_mutex_unlock(&out.lock);
}

bool ls_log_mute(bool on)
{
    bool before = muted;
    muted = on;
    return before;
}

void ls_log_quiet(bool on)
{
    pthread_mutex_lock(&out.lock);
    out.quiet = on;
    pthread_mutex_unlock(&out.lock);
}

const char *ls_log_last(void)
{
    return out.last;
}

bool ls_log_last_copy(char *text, size_t room)
{
    pthread_mutex_lock(&out.lock);
    snprintf(text, room, "%s", out.last);
    bool printed = !out.last_muted;
    pthread_mutex_unlock(&out.lock);
    return printed;
}
