#include "launch/children/labels.h"
#include "base/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { FIRST = 4096, MOST = 1 << 20 /* bytes of a line; longer ones are cut */ };

enum ls_status ls_labels_init(struct ls_labels *l, int n)
{
    *l = (struct ls_labels){.n = n, .streams = ls_alloc((size_t)n, sizeof *l->streams)};
    for (int i = 0; l->streams && i < n; i++)
        l->streams[i].fd = -1;
    return l->streams ? LS_OK : LS_FAILED;
}

static void put_line(const struct ls_label_stream *s, const char *line, size_t length)
{
    fprintf(s->to, "%d: ", s->rank);
    fwrite(line, 1, length, s->to);
    putc('\n', s->to);
}

static void put_rest(struct ls_label_stream *s)
{
    if (s->used > 0)
        put_line(s, s->line, s->used);
    s->used = 0;
    fflush(s->to);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void ls_labels_release(struct ls_labels *l)
{
    for (int i = 0; l->streams && i < l->n; i++) {
        put_rest(&l->streams[i]);
        ls_free(l->streams[i].line);
    }
    ls_free(l->streams);
    *l = (struct ls_labels){0};
}

/* Makes room for more of the line. False: it is as long as a line may become. */
static bool grow(struct ls_label_stream *s)
{
    size_t room = s->room ? 2 * s->room : FIRST;
    char *larger = room <= MOST ? ls_realloc(s->line, s->room, room, 1) : NULL;
    if (!larger)
        return false;
    s->line = larger;
    s->room = room;
    return true;
}

static void put_complete(struct ls_label_stream *s)
{
    size_t from = 0;
    for (char *end; (end = memchr(s->line + from, '\n', s->used - from));) {
        put_line(s, s->line + from, (size_t)(end - s->line) - from);
        from = (size_t)(end - s->line) + 1;
    }
    memmove(s->line, s->line + from, s->used - from);
    s->used -= from;
}

size_t ls_labels_read(struct ls_labels *l, int stream)
{
    struct ls_label_stream *s = &l->streams[stream];
    if (s->used == s->room && !grow(s) && s->used > 0) {
        put_line(s, s->line, s->used);
        s->used = 0;
    }
    ssize_t n = s->room > s->used ? read(s->fd, s->line + s->used, s->room - s->used) : 0;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n > 0) {
        s->used += (size_t)n;
        put_complete(s);
    }
    if (n <= 0 || fflush(s->to) != 0 || ferror(s->to))
        put_rest(s);
    return n > 0 ? (size_t)n : 0;
}
