#define _GNU_SOURCE
#include "launch/children/stderr_dedup.h"
#include "base/memory.h"
#include "launch/children/failed_rank.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum ls_status ls_stderr_dedup_init(struct ls_stderr_dedup *c, int n)
{
    *c = (struct ls_stderr_dedup){.n = n};
    c->streams = ls_alloc((size_t)n, sizeof *c->streams);
    for (int i = 0; c->streams && i < n; i++)
        c->streams[i].fd = -1;
    return c->streams ? LS_OK : LS_FAILED;
}

static uint64_t hash_of(const char *text, int length)
{
    uint64_t h = 14695981039346656037u;
    for (int i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h;
}

/* Returns the text after the first `mark`, or text if there is none. */
static const char *after(const char *text, const char *end, const char *mark)
{
    const char *found = memmem(text, (size_t)(end - text), mark, strlen(mark));
    return found ? found + strlen(mark) : text;
}

/* Returns the error that a line forwards from another rank, or message. */
static const char *cause_of(const char *message, const char *end)
{
    const char *cause = after(message, end, LS_HAS_FAILED), *refused = after(message, end, LS_REFUSES_RANK);
    return cause != message ? cause : refused != message ? after(refused, end, ": ") : message;
}

static void print_once(struct ls_stderr_dedup *c, int rank, const char *line, int length)
{
    static const char error[] = "lockstep: error: ";
    const char *end = line + length, *message = after(line, end, "error: ");
    const char *cause = cause_of(message, end);
    bool forwarded = cause != message; /* the error of another rank */
    uint64_t hash = hash_of(cause, (int)(end - cause));
    if (length >= (int)sizeof error && strncmp(line, error, sizeof error - 1) == 0)
        c->streams[rank].complained = true;
    for (int i = 0; i < LS_DEDUP_LINES; i++)
        if (c->printed[i].hash == hash && (c->printed[i].rank != rank || forwarded))
            return;
    c->printed[c->at % LS_DEDUP_LINES].hash = hash;
    c->printed[c->at++ % LS_DEDUP_LINES].rank = rank;
    fprintf(stderr, "%.*s\n", length, line);
    fflush(stderr);
}

static void print_rest(struct ls_stderr_dedup *c, int rank)
{
    struct ls_stderr_dedup_stream *v = &c->streams[rank];
    if (v->used > 0)
        print_once(c, rank, v->line, v->used);
    v->used = 0;
}

void ls_stderr_dedup_release(struct ls_stderr_dedup *c)
{
    for (int i = 0; c->streams && i < c->n; i++) {
        print_rest(c, i);
        if (c->streams[i].fd >= 0)
            close(c->streams[i].fd);
    }
    ls_free(c->streams);
    *c = (struct ls_stderr_dedup){0};
}

size_t ls_stderr_dedup_read(struct ls_stderr_dedup *c, int rank)
{
    struct ls_stderr_dedup_stream *v = &c->streams[rank];
    ssize_t n = read(v->fd, v->line + v->used, (size_t)(LS_DEDUP_LINE - v->used));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    bool over = n <= 0;
    v->used += over ? 0 : (int)n;
    int from = 0;
    for (char *end; (end = memchr(v->line + from, '\n', (size_t)(v->used - from)));) {
        int length = (int)(end - v->line) - from;
        print_once(c, rank, v->line + from, length);
        from += length + 1;
    }
    memmove(v->line, v->line + from, (size_t)(v->used - from));
    v->used -= from;
    if (over || v->used == LS_DEDUP_LINE)
        print_rest(c, rank);
    if (over) {
        close(v->fd);
        v->fd = -1;
    }
    return over ? 0 : (size_t)n;
}
