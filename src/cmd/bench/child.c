#define _GNU_SOURCE
#include "cmd/bench/child.h"
#include "base/system/program.h"
#include "base/system/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* A growing text. */
struct text {
    char *bytes; /* owned */
    size_t used, room;
};

struct streams {
    int out, err; /* read ends of the pipes; -1: closed */
    struct text from_out, from_err;
};

/* --- starting ------------------------------------------------------------------------------------------- */

/* Builds the command line: the words of this process, followed by those of the child. They stand before "--". */
static char **make_words(const struct ls_bench_child *c)
{
    int given = c->o->n_command_line, n = 0, at = 0;
    char **words = ls_alloc((size_t)(given + c->n_words) + 1, sizeof *words);
    if (!words)
        return NULL;
    while (at < given && strcmp(c->o->command_line[at], "--") != 0)
        words[n++] = c->o->command_line[at++];
    for (int i = 0; i < c->n_words; i++)
        words[n++] = (char *)(uintptr_t)c->words[i]; /* execve does not change them */
    while (at < given)
        words[n++] = c->o->command_line[at++];
    return words;
}

/* Runs in the child and does not return. */
static void become_bench(const struct ls_bench_child *c, char **words, int out, int err, pid_t parent)
{
    char room[4096];
    sigset_t none;
    const char *self = ls_program_path(room, sizeof room);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!self || getppid() != parent)
        _exit(LS_FAILED);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (c->work) {
        enum ls_status st = c->work(c->of);
        fflush(NULL);
        _exit((int)st);
    }
    execve(self, words, c->environment ? c->environment : environ);
    fprintf(stderr, "lockstep: error: %s cannot be started: %s\n", self, strerror(errno));
    _exit(LS_FAILED);
}

/* Returns the process, or -1. */
static pid_t start(const struct ls_bench_child *c, struct streams *s)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t parent = getpid(), pid = -1;
    char **words = make_words(c);
    fflush(NULL);
    if (words && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0)
        become_bench(c, words, out[1], err[1], parent);
    if (pid < 0)
        ls_fail(LS_FAILED, "a bench cannot be started: %s", strerror(errno));
    ls_free(words);
    close(out[1]);
    close(err[1]);
    s->out = out[0];
    s->err = err[0];
    return pid;
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* Reads what is there. Returns false at the end of the stream. */
static bool take(int *fd, struct text *t)
{
    if (t->room - t->used < 2) {
        size_t room = t->room ? 2 * t->room : 1 << 16;
        char *grown = ls_realloc(t->bytes, t->room, room, 1);
        if (!grown)
            return false;
        t->bytes = grown;
        t->room = room;
    }
    ssize_t n = read(*fd, t->bytes + t->used, t->room - t->used - 1);
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return false;
    }
    t->used += (size_t)n;
    t->bytes[t->used] = 0;
    return true;
}

/* Keeps the last error. Prints another line once, with the prefix of this process instead of the child's. */
static void sort_line(struct ls_bench_child *c, const char *line)
{
    static const char prefix[] = "lockstep: ", error[] = "error: ", warning[] = "warning: ";
    const char *text = strncmp(line, prefix, strlen(prefix)) == 0 ? line + strlen(prefix) : line;
    if (text > line && strncmp(text, error, strlen(error)) == 0) {
        snprintf(c->reason, sizeof c->reason, "%s", text + strlen(error));
        return;
    }
    if (!*text || json_object_get(c->said, line))
        return;
    json_object_set_new(c->said, line, json_true());
    if (text > line && strncmp(text, warning, strlen(warning)) == 0)
        ls_warn("%s", text + strlen(warning));
    else
        ls_progress("%s", text);
}

/* Sorts the lines that have come whole, and at the end of the stream also the rest. */
static void sort_errors(struct ls_bench_child *c, struct text *t, bool at_end)
{
    char *line = t->bytes, *end;
    while (line && (end = strchr(line, '\n'))) {
        *end = 0;
        sort_line(c, line);
        line = end + 1;
    }
    if (line && at_end)
        sort_line(c, line);
    if (!line)
        return;
    t->used = at_end ? 0 : (size_t)(t->bytes + t->used - line);
    memmove(t->bytes, line, t->used);
    t->bytes[t->used] = 0;
}

/* Reads both streams to their ends. Returns false if a signal, or `stop`, came first. */
static bool listen(struct ls_bench_child *c, struct streams *s)
{
    while (s->out >= 0 || s->err >= 0) {
        struct pollfd p[3] = {
            {.fd = s->out, .events = POLLIN}, {.fd = s->err, .events = POLLIN}, {.fd = c->signals, .events = POLLIN}};
        c->tick(c->context);
        if (c->stop)
            return false;
        if (poll(p, 3, 500) <= 0)
            continue;
        if (p[0].revents)
            take(&s->out, &s->from_out);
        if (p[1].revents)
            sort_errors(c, &s->from_err, !take(&s->err, &s->from_err));
        struct signalfd_siginfo signal; /* read, or it would end this process when it is unblocked */
        if (p[2].revents && read(c->signals, &signal, sizeof signal) > 0)
            return false;
    }
    return true;
}

/* --- its end -------------------------------------------------------------------------------------------- */

static void explain(struct ls_bench_child *c, int how)
{
    if (WIFSIGNALED(how)) {
        snprintf(c->reason, sizeof c->reason, "killed by signal %d (%s)%s", WTERMSIG(how), strsignal(WTERMSIG(how)),
                 WTERMSIG(how) == SIGKILL ? "; it may have run out of memory" : "");
        c->status = LS_FAILED;
        return;
    }
    c->status = (enum ls_status)WEXITSTATUS(how);
    if (!*c->reason)
        snprintf(c->reason, sizeof c->reason, "exit code %d", WEXITSTATUS(how));
}

static void parse(struct ls_bench_child *c, const struct text *t)
{
    json_error_t error;
    c->output = json_loadb(t->bytes ? t->bytes : "", t->used, 0, &error);
    if (json_array_size(json_object_get(c->output, "results")) == 1)
        return;
    json_decref(c->output);
    c->output = NULL;
    c->status = LS_FAILED;
    snprintf(c->reason, sizeof c->reason, "the output is not that of lockstep bench");
}

static int wait_for(pid_t pid)
{
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        continue;
    return how;
}

int ls_bench_child_signals(sigset_t *before)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, before);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

enum ls_status ls_bench_child_run(struct ls_bench_child *c)
{
    struct streams s = {.out = -1, .err = -1};
    double begin = ls_now();
    pid_t pid = start(c, &s);
    if (pid < 0)
        return LS_FAILED;
    c->output = NULL;
    c->reason[0] = 0;
    bool heard = listen(c, &s);
    if (!heard)
        kill(pid, SIGTERM);
    int how = wait_for(pid);
    c->seconds = ls_now() - begin;
    if (s.out >= 0)
        close(s.out);
    if (s.err >= 0)
        close(s.err);
    sort_errors(c, &s.from_err, true);
    c->status = LS_OK;
    if (how != 0)
        explain(c, how);
    else if (heard && !c->silent)
        parse(c, &s.from_out);
    ls_free(s.from_out.bytes);
    ls_free(s.from_err.bytes);
    return heard ? LS_OK : LS_INTERRUPTED;
}
