#include "base/log.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    FILE *file;
    ls_log_sink *ear;     /* NULL: this log speaks itself */
    ls_log_filter *words; /* NULL: none */
    int muted;
    char last[1024];
    char live[1024]; /* "": none */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local char place[512];

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

/* The place and the message into text. */
static void compose(char *text, size_t room, const char *format, va_list args)
{
    int used = snprintf(text, room, "%s", place);
    if (used >= 0 && (size_t)used < room)
        vsnprintf(text + used, room - (size_t)used, format, args);
}

static void deliver(enum ls_log_kind kind, const char *text)
{
    static const char *const prefixes[] = {"lockstep: error: ", "lockstep: warning: ", "lockstep: ", "", ""};
    FILE *stream = kind == LS_LOG_NOTE ? NULL : kind == LS_LOG_LINE ? stdout : stderr;
    pthread_mutex_lock(&sink.lock);
    ls_log_sink *ear = sink.muted ? NULL : sink.ear;
    if (kind <= LS_LOG_WARNING) {
        snprintf(sink.last, sizeof sink.last, "%.*s", (int)sizeof sink.last - 1, text);
        if (sink.words)
            sink.words(sink.last);
        text = sink.words ? sink.last : text;
    }
    if (stream && !sink.muted && !sink.ear) {
        if (sink.live[0]) {
            fputs("\r\033[K", stdout);
            fflush(stdout);
        }
        fprintf(stream, "%s%s\n", prefixes[kind], text);
        fflush(stream);
        if (sink.live[0]) {
            fputs(sink.live, stdout);
            fflush(stdout);
        }
    }
    if (sink.file) {
        fprintf(sink.file, "%s%s\n", prefixes[kind], text);
        fflush(sink.file);
    }
    pthread_mutex_unlock(&sink.lock);
    if (ear)
        ear(kind, text);
}

/* All messages pass here. Names in them come from files and from other processes: control characters are spelled. Only a
 * note may begin with an empty line. */
static void speak(enum ls_log_kind kind, const char *said)
{
    char shown[8192], *room = shown;
    size_t lines = kind == LS_LOG_NOTE ? strspn(said, "\n") : 0, size = 4 * strlen(said) + 1;
    if (size > sizeof shown)
        room = ls_alloc(size, 1);
    if (!room)
        return;
    memcpy(room, said, lines);
    ls_utf8_printable(said + lines, room + lines, (size > sizeof shown ? size : sizeof shown) - lines);
    deliver(kind, room);
    if (room != shown)
        ls_free(room);
}

void ls_log_write(enum ls_log_kind kind, const char *text)
{
    speak(kind, text);
}

void ls_log_set_filter(ls_log_filter *words)
{
    pthread_mutex_lock(&sink.lock);
    sink.words = words;
    pthread_mutex_unlock(&sink.lock);
}

void ls_log_forward(ls_log_sink *ear)
{
    pthread_mutex_lock(&sink.lock);
    sink.ear = ear;
    pthread_mutex_unlock(&sink.lock);
}

enum ls_status ls_fail(enum ls_status status, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    compose(text, sizeof text, format, args);
    va_end(args);
    speak(LS_LOG_ERROR, text);
    return status;
}

void ls_warn(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    compose(text, sizeof text, format, args);
    va_end(args);
    speak(LS_LOG_WARNING, text);
}

void ls_print(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    speak(LS_LOG_LINE, text);
}

void ls_progress(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    speak(LS_LOG_PROGRESS, text);
}

void ls_note(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    speak(LS_LOG_NOTE, text);
}

void ls_log_status_line(const char *line)
{
    pthread_mutex_lock(&sink.lock);
    if (!sink.muted && (line || sink.live[0])) {
        snprintf(sink.live, sizeof sink.live, "%s", line ? line : "");
        printf("\r%s\033[K", sink.live);
        fflush(stdout);
    }
    pthread_mutex_unlock(&sink.lock);
}

enum ls_status ls_log_open(const char *path)
{
    FILE *file;
    LS_TRY(ls_file_append(path, &file));
    ls_log_close();
    pthread_mutex_lock(&sink.lock);
    sink.file = file;
    pthread_mutex_unlock(&sink.lock);
    return LS_OK;
}

void ls_log_close(void)
{
    pthread_mutex_lock(&sink.lock);
    if (sink.file)
        fclose(sink.file);
    sink.file = NULL;
    pthread_mutex_unlock(&sink.lock);
}

void ls_log_mute(int muted)
{
    pthread_mutex_lock(&sink.lock);
    sink.muted = muted;
    pthread_mutex_unlock(&sink.lock);
}

const char *ls_log_last(void)
{
    return sink.last;
}

void ls_log_last_copy(char *text, size_t room)
{
    pthread_mutex_lock(&sink.lock);
    snprintf(text, room, "%s", sink.last);
    pthread_mutex_unlock(&sink.lock);
}
