#define _GNU_SOURCE
#include "launch/children/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum ls_status ls_outputs_init(struct ls_outputs *u, int n, bool merge, bool label)
{
    *u = (struct ls_outputs){.n = n, .label = label};
    u->pipes = label ? 2 * n : merge ? n : 0;
    if (label)
        return ls_labels_init(&u->labels, u->pipes);
    return merge ? ls_stderr_dedup_init(&u->dedup, n) : LS_OK;
}

void ls_outputs_release(struct ls_outputs *u)
{
    ls_stderr_dedup_release(&u->dedup);
    ls_labels_release(&u->labels);
    *u = (struct ls_outputs){0};
}

static bool make_pipe(int *read_end, int *write_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    *read_end = ends[0];
    *write_end = ends[1];
    return true;
}

bool ls_outputs_open(struct ls_outputs *u, int child, int rank, int *output, int *errors)
{
    *output = *errors = -1;
    if (u->pipes == 0)
        return true;
    if (!u->label)
        return make_pipe(&u->dedup.streams[child].fd, errors);
    struct ls_label_stream *out = &u->labels.streams[child], *err = &u->labels.streams[u->n + child];
    *out = (struct ls_label_stream){.fd = -1, .rank = rank, .to = stdout};
    *err = (struct ls_label_stream){.fd = -1, .rank = rank, .to = stderr};
    return make_pipe(&out->fd, output) && make_pipe(&err->fd, errors);
}

int ls_outputs_fd(const struct ls_outputs *u, int i)
{
    return u->label ? u->labels.streams[i].fd : u->dedup.streams[i].fd;
}

size_t ls_outputs_read(struct ls_outputs *u, int i)
{
    return u->label ? ls_labels_read(&u->labels, i) : ls_stderr_dedup_read(&u->dedup, i);
}

/* One read follows the last byte that was there: it finds the end. */
static void read_rest(struct ls_outputs *u, int i)
{
    struct pollfd output = {.fd = ls_outputs_fd(u, i), .events = POLLIN};
    int waiting = 0;
    size_t done = 0;
    if (output.fd >= 0 && ioctl(output.fd, FIONREAD, &waiting) != 0)
        return;
    while (output.fd >= 0 && done <= (size_t)waiting && poll(&output, 1, 0) > 0) {
        done += ls_outputs_read(u, i);
        output.fd = ls_outputs_fd(u, i);
    }
}

void ls_outputs_read_rest(struct ls_outputs *u, int child)
{
    for (int i = child; i < u->pipes; i += u->n)
        read_rest(u, i);
}
