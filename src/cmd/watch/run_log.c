#include "cmd/watch/run_log.h"
#include "base/files/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the text behind the prefix, or NULL. */
static const char *behind(const char *line, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(line, prefix, n) == 0 ? line + n : NULL;
}

static void take_line(struct ls_watched *w, const char *line)
{
    const char *rest, *code;
    if (behind(line, "Started ") || behind(line, "Resumed ")) {
        w->exit_code = -1;
        w->message[0] = 0;
    } else if ((rest = behind(line, "  length     "))) {
        sscanf(rest, "%" SCNd64 " step%*[s,] %" SCNd64, &w->total, &w->per_epoch);
    } else if ((rest = behind(line, "  model      "))) {
        snprintf(w->model, sizeof w->model, "%.*s", (int)strcspn(rest, ","), rest);
    } else if ((rest = behind(line, "  data       "))) {
        const char *format = strstr(rest, " (");
        snprintf(w->data, sizeof w->data, "%.*s", format ? (int)(format - rest) : (int)strlen(rest), rest);
    } else if (behind(line, "Ended ") && (code = strstr(line, "with exit code "))) {
        char *colon;
        w->exit_code = (int)strtol(code + strlen("with exit code "), &colon, 10);
        snprintf(w->end, sizeof w->end, "%s", *colon == ':' && colon[1] ? colon + 2 : "");
    } else if ((rest = behind(line, "lockstep: error: ")) || (rest = behind(line, "lockstep: warning: "))) {
        snprintf(w->message, sizeof w->message, "%s", line + strlen("lockstep: "));
    }
}

/* Takes the complete lines of a piece of the file and returns their size. A line that fills the piece is passed over. */
static size_t take_lines(struct ls_watched *w, char *text, size_t size, size_t room)
{
    size_t at = 0;
    for (char *end; at < size && (end = memchr(text + at, '\n', size - at)); at = (size_t)(end - text) + 1) {
        *end = 0;
        take_line(w, text + at);
    }
    return at == 0 && size == room ? size : at;
}

static void forget(struct ls_watched *w, ino_t file)
{
    w->log_read = 0;
    w->log_file = file;
    w->total = w->per_epoch = 0;
    w->exit_code = -1;
    w->model[0] = w->data[0] = w->message[0] = 0;
}

void ls_run_log_read(struct ls_watched *w)
{
    char why[LS_FILE_WHY], text[16384];
    size_t size, done;
    struct stat s;
    ssize_t n;
    int fd = ls_file_open(w->log, &size, why);
    if (fd < 0)
        return;
    if (fstat(fd, &s) == 0 && (s.st_ino != w->log_file || s.st_size < w->log_read))
        forget(w, s.st_ino);
    do {
        n = pread(fd, text, sizeof text, w->log_read);
        done = n > 0 ? take_lines(w, text, (size_t)n, sizeof text) : 0;
        w->log_read += (off_t)done;
    } while (done > 0);
    close(fd);
}
