#define _GNU_SOURCE
#include "report/metrics/metrics_reader.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/metrics/metrics_line.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The buffer stays in the second-level cache. A line that does not fit is broken. */
enum { ROOM = 256 << 10 };

enum ls_status ls_metrics_reader_open(struct ls_metrics_reader *m, const char *path)
{
    char why[LS_FILE_WHY];
    size_t size;
    *m = (struct ls_metrics_reader){.fd = -1};
    if (path) {
        m->fd = ls_file_open(path, &size, why);
        if (m->fd < 0)
            return ls_fail(LS_BAD_INPUT, "%s: %s", path, why);
        m->path = ls_strdup(path);
    }
    m->buffer = ls_alloc(ROOM + 1 + LS_RECORD_SLACK, 1);
    if (m->buffer && (m->path || !path))
        return LS_OK;
    ls_metrics_reader_close(m);
    return LS_FAILED;
}

void ls_metrics_reader_close(struct ls_metrics_reader *m)
{
    if (m->path && m->fd >= 0)
        close(m->fd);
    ls_free(m->path);
    ls_free(m->buffer);
    *m = (struct ls_metrics_reader){.fd = -1};
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static void count_broken(struct ls_metrics_reader *m)
{
    m->tally.lines++;
    if (m->tally.broken++ == 0)
        m->tally.first_broken = m->line;
}

static enum ls_status take_line(struct ls_metrics_reader *m, const char *line, size_t length, ls_record_visit *visit,
                                void *context)
{
    struct ls_record r;
    m->line++;
    if (is_blank(line, length))
        return LS_OK;
    if (!ls_record_parse(line, length, m->successor, &r)) {
        count_broken(m);
        return LS_OK;
    }
    m->tally.lines++;
    if (r.kind != LS_RECORD_OTHER)
        return visit(&r, context);
    m->tally.other++;
    return LS_OK;
}

/* Takes the complete lines of the buffer and keeps the rest. */
static enum ls_status take_lines(struct ls_metrics_reader *m, ls_record_visit *visit, void *context)
{
    const char *p = m->buffer, *end = p + m->held, *newline;
    enum ls_status st = LS_OK;
    while (st == LS_OK && (newline = memchr(p, '\n', (size_t)(end - p)))) {
        if (m->is_skipping) {
            m->line++;
            count_broken(m);
        } else {
            st = take_line(m, p, (size_t)(newline - p), visit, context);
        }
        m->is_skipping = false;
        p = newline + 1;
    }
    m->held = (size_t)(end - p);
    memmove(m->buffer, p, m->held);
    if (m->is_skipping || m->held == ROOM) {
        m->is_skipping = true;
        m->held = 0;
    }
    return st;
}

enum ls_status ls_metrics_reader_feed(struct ls_metrics_reader *m, const char *bytes, size_t n, ls_record_visit *visit,
                                      void *context)
{
    while (n > 0) {
        size_t part = n < ROOM - m->held ? n : ROOM - m->held;
        memcpy(m->buffer + m->held, bytes, part);
        m->held += part;
        bytes += part;
        n -= part;
        LS_TRY(take_lines(m, visit, context));
    }
    return LS_OK;
}

enum ls_status ls_metrics_reader_read(struct ls_metrics_reader *m, ls_record_visit *visit, void *context)
{
    for (;;) {
        ssize_t n = read(m->fd, m->buffer + m->held, ROOM - m->held);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_fail(LS_BAD_INPUT, "%s: reading failed: %s", m->path, strerror(errno));
        if (n == 0)
            return LS_OK;
        m->held += (size_t)n;
        LS_TRY(take_lines(m, visit, context));
    }
}

enum ls_status ls_metrics_reader_finish(struct ls_metrics_reader *m, ls_record_visit *visit, void *context)
{
    struct ls_metrics_tally before = m->tally;
    size_t length = m->held;
    m->held = 0;
    if (m->is_skipping || length == 0) {
        m->tally.is_cut = m->is_skipping;
        return LS_OK;
    }
    m->buffer[length] = '\n';
    enum ls_status st = take_line(m, m->buffer, length, visit, context);
    if (m->tally.broken > before.broken) {
        m->tally = before;
        m->tally.is_cut = true;
    }
    return st;
}

bool ls_metrics_reader_is_stale(const struct ls_metrics_reader *m)
{
    struct stat held, there;
    if (!m->path || fstat(m->fd, &held) != 0 || stat(m->path, &there) != 0)
        return false;
    off_t at = lseek(m->fd, 0, SEEK_CUR);
    return held.st_ino != there.st_ino || held.st_dev != there.st_dev || there.st_size < at;
}

enum ls_status ls_metrics_read(const char *path, ls_record_visit *visit, void *context, struct ls_metrics_tally *tally)
{
    struct ls_metrics_reader m;
    LS_TRY(ls_metrics_reader_open(&m, path));
    enum ls_status st = ls_metrics_reader_read(&m, visit, context);
    if (st == LS_OK)
        st = ls_metrics_reader_finish(&m, visit, context);
    *tally = m.tally;
    ls_metrics_reader_close(&m);
    return st;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. A year that begins in March ends with its leap day. */
static int64_t days_since_1970(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t in_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return 365 * year + year / 4 - year / 100 + year / 400 + in_year - 719468;
}

double ls_record_time(const char *time)
{
    int year, month, day, hour, minute, used = 0;
    double second;
    if (sscanf(time, "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &year, &month, &day, &hour, &minute, &second, &used) != 6 ||
        used == 0 || time[used] || year < 1 || month < 1 || month > 12 || day < 1 || day > 31 || !(second < 61))
        return NAN;
    return (double)days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
}
