#define _GNU_SOURCE
#include "launch/workers.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/stderr_dedup.h"
#include "launch/cores.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE 5.0 /* seconds after the deadline */
#define SOON 2.0  /* seconds for a worker that missed the deadline of the others */

struct group {
    const struct ls_options *o;
    char **argv;
    pid_t *pids; /* owned; 0: not running */
    struct ls_stderr_dedup dedup;
    struct pollfd *polled; /* owned; the signalfd, then the standard error of each worker */
    int n, running;
    char session[48]; /* also the name of the shared memory */
    char self[4096];
    sigset_t watched, before;
    enum ls_status status; /* LS_OK until a worker fails */
    bool indirect;         /* status is LS_PEER_LOST of a worker that reports the loss of another one */
    struct {
        int rank, code;
        pid_t pid; /* 0: none */
    } silent;      /* the worker that `status` is from, if it reported no error */
    double until;  /* when all workers must have ended; 0: no limit */
    int sent;      /* last signal that was sent to end them */
    int forwarded; /* last signal from outside that was forwarded */
};

/* Tests whether --workers makes this process a parent. */
static enum ls_status is_parent(const struct ls_options *o, bool *wanted)
{
    struct ls_launch launch;
    *wanted = false;
    if (o->workers < 2)
        return LS_OK;
    LS_TRY(ls_launch_detect(o, &launch));
    *wanted = launch.kind == LS_LAUNCH_ALONE;
    ls_launch_release(&launch);
    return LS_OK;
}

/* --- starting -------------------------------------------------------------------------------------------- */

static enum ls_status make_session(struct group *p)
{
    uint64_t r[2];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
        return ls_fail(LS_FAILED, "getrandom failed: %s", strerror(errno));
    snprintf(p->session, sizeof p->session, "/lockstep-%016" PRIx64 "%016" PRIx64, r[0], r[1]);
    ssize_t n = readlink("/proc/self/exe", p->self, sizeof p->self - 1);
    if (n <= 0)
        return ls_fail(LS_FAILED, "/proc/self/exe: the path of the program cannot be read: %s", strerror(errno));
    p->self[n] = 0;
    return LS_OK;
}

/* Only rank 0 writes to standard output. No worker reads the terminal (W2). */
static void set_streams(int rank, int errors)
{
    dup2(errors, STDERR_FILENO);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0)
        return;
    dup2(nothing, STDIN_FILENO);
    if (rank > 0)
        dup2(nothing, STDOUT_FILENO);
}

static void set_variables(const struct group *p, int rank)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("LOCKSTEP_WORKER_RANK", text, 1);
    snprintf(text, sizeof text, "%d", p->n);
    setenv("LOCKSTEP_WORKER_SIZE", text, 1);
    setenv("LOCKSTEP_WORKER_SESSION", p->session, 1);
}

/* Runs in the child and does not return. */
static void become_worker(const struct group *p, int rank, const cpu_set_t *cores, int errors, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a signal that saves the state */
    if (getppid() != parent)
        _exit(LS_PEER_LOST);
    if (cores)
        sched_setaffinity(0, sizeof *cores, cores);
    set_streams(rank, errors);
    set_variables(p, rank);
    sigprocmask(SIG_SETMASK, &p->before, NULL);
    execv(p->self, p->argv);
    fprintf(stderr, "lockstep: error: worker %d: %s cannot be started: %s\n", rank, p->self, strerror(errno));
    _exit(LS_FAILED);
}

static enum ls_status start_one(struct group *p, int rank, const cpu_set_t *cores)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ls_fail(LS_FAILED, "worker %d of %d cannot be started: %s", rank, p->n, strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        become_worker(p, rank, cores, ends[1], parent);
    close(ends[1]);
    p->dedup.streams[rank].fd = ends[0];
    if (pid < 0)
        return ls_fail(LS_FAILED, "worker %d of %d cannot be started: %s", rank, p->n, strerror(errno));
    p->pids[rank] = pid;
    p->running++;
    return LS_OK;
}

static enum ls_status start_all(struct group *p)
{
    cpu_set_t *shares = ls_alloc((size_t)p->n, sizeof *shares);
    if (!shares)
        return LS_FAILED;
    bool split = ls_cores_split(p->n, shares);
    enum ls_status st = LS_OK;
    fflush(NULL);
    for (int i = 0; i < p->n && st == LS_OK; i++)
        st = start_one(p, i, split ? &shares[i] : NULL);
    ls_free(shares);
    return st;
}

/* --- supervision ----------------------------------------------------------------------------------------- */

static void signal_all(const struct group *p, int number)
{
    for (int i = 0; i < p->n; i++)
        if (p->pids[i] > 0)
            kill(p->pids[i], number);
}

/* Reads what an ended worker left in its pipe. */
static void read_rest(struct group *p, int rank)
{
    struct pollfd output = {.fd = p->dedup.streams[rank].fd, .events = POLLIN};
    while (output.fd >= 0 && poll(&output, 1, 0) > 0) {
        ls_stderr_dedup_read(&p->dedup, rank);
        output.fd = p->dedup.streams[rank].fd;
    }
}

/* Records the end of a worker. The first worker that fails determines the status; later failures are consequences. Workers
 * that report the loss of another one may end before that one: its status replaces theirs. */
static void note_end(struct group *p, int rank, int how)
{
    pid_t pid = p->pids[rank];
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 0, number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    bool consequence = code == LS_PEER_LOST || code == LS_INTERRUPTED || (number && number == p->sent);
    read_rest(p, rank);
    p->pids[rank] = 0;
    p->running--;
    if ((code == 0 && number == 0) || (p->status != LS_OK && (!p->indirect || consequence)))
        return;
    p->indirect = code == LS_PEER_LOST;
    p->silent.pid = 0;
    if (number && number == p->forwarded)
        p->status = LS_FAILED; /* the user sent that signal */
    else if (number)
        p->status = ls_fail(LS_PEER_LOST, "worker %d (pid %ld) was killed by signal %d (%s)", rank, (long)pid, number,
                            strsignal(number));
    else {
        p->status = (enum ls_status)code; /* the worker or rank 0 reports the error */
        bool reported = code == LS_INTERRUPTED || code == LS_DIVERGED || p->dedup.streams[rank].complained;
        p->silent.rank = rank;
        p->silent.code = code;
        p->silent.pid = reported ? 0 : pid;
    }
    if (p->running > 0) /* starts again when the worker that others reported lost ends */
        p->until = ls_now() + (p->indirect ? SOON : p->o->deadline + GRACE);
}

static void reap(struct group *p)
{
    int how;
    for (int i = 0; i < p->n; i++)
        if (p->pids[i] > 0 && waitpid(p->pids[i], &how, WNOHANG) == p->pids[i])
            note_end(p, i, how);
}

/* Sends SIGTERM, then SIGKILL, to workers that do not end. */
static void enforce_deadline(struct group *p)
{
    if (p->until == 0 || ls_now() < p->until)
        return;
    const double more = p->o->deadline + GRACE; /* a worker that saves its state ends after that */
    if (p->sent == 0)
        ls_warn("%d worker%s did not end by the deadline; sending SIGTERM, and SIGKILL in %.3g s", p->running,
                p->running == 1 ? "" : "s", more);
    else if (p->sent == SIGTERM)
        ls_warn("%d worker%s did not end by SIGTERM; sending SIGKILL", p->running, p->running == 1 ? "" : "s");
    p->sent = p->sent ? SIGKILL : SIGTERM;
    signal_all(p, p->sent);
    signal_all(p, SIGCONT); /* a stopped process handles no other signal */
    p->until = ls_now() + more;
}

/* Ctrl-Z stops all workers and the parent; `fg` continues them. */
static void stop_all(struct group *p)
{
    signal_all(p, SIGSTOP);
    raise(SIGSTOP);
    signal_all(p, SIGCONT);
}

static void take_signal(struct group *p)
{
    struct signalfd_siginfo info;
    if (read(p->polled[0].fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGTSTP)
        stop_all(p);
    else if (info.ssi_signo != SIGCHLD) {
        p->forwarded = (int)info.ssi_signo;
        signal_all(p, p->forwarded);
    }
}

/* Waits for output or signals; true if there was output. */
static bool read_all(struct group *p, int milliseconds)
{
    bool any = false;
    for (int i = 0; i < p->n; i++)
        p->polled[i + 1] = (struct pollfd){.fd = p->dedup.streams[i].fd, .events = POLLIN};
    if (poll(p->polled, (nfds_t)p->n + 1, milliseconds) <= 0)
        return false;
    for (int i = 0; i < p->n; i++)
        if (p->polled[i + 1].revents) {
            ls_stderr_dedup_read(&p->dedup, i);
            any = true;
        }
    return any;
}

static void supervise(struct group *p)
{
    while (p->running > 0) {
        if (read_all(p, 1000))
            continue;
        if (p->polled[0].revents)
            take_signal(p);
        reap(p);
        enforce_deadline(p);
    }
    while (p->polled && read_all(p, 0))
        ;
    for (int i = 0; i < p->n; i++)
        if (p->silent.pid && p->dedup.streams[i].complained)
            p->silent.pid = 0;
    if (p->silent.pid)
        ls_fail(p->status, "worker %d (pid %ld) ended with exit code %d", p->silent.rank, (long)p->silent.pid,
                p->silent.code);
}

static void watch_signals(struct group *p)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT, SIGTSTP, SIGCHLD};
    sigemptyset(&p->watched);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&p->watched, numbers[i]);
    sigprocmask(SIG_BLOCK, &p->watched, &p->before);
}

static enum ls_status open_signals(struct group *p)
{
    int fd = signalfd(-1, &p->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    p->polled[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    return fd >= 0 ? LS_OK : ls_fail(LS_FAILED, "signalfd failed: %s", strerror(errno));
}

static enum ls_status run_workers(const struct ls_options *o)
{
    struct group p = {.o = o, .argv = o->command_line, .n = (int)o->workers};
    LS_TRY(make_session(&p));
    LS_TRY(ls_stderr_dedup_init(&p.dedup, p.n));
    p.pids = ls_alloc((size_t)p.n, sizeof *p.pids);
    p.polled = ls_alloc((size_t)p.n + 1, sizeof *p.polled);
    watch_signals(&p);
    enum ls_status st = p.pids && p.polled ? open_signals(&p) : LS_FAILED;
    if (st == LS_OK)
        st = start_all(&p);
    if (st != LS_OK && p.running > 0)
        signal_all(&p, SIGKILL);
    p.status = st;
    supervise(&p);
    shm_unlink(p.session); /* workers unlink it once all have mapped it; one may have ended before */
    sigprocmask(SIG_SETMASK, &p.before, NULL);
    if (p.polled && p.polled[0].fd > 0)
        close(p.polled[0].fd);
    ls_stderr_dedup_release(&p.dedup);
    ls_free(p.pids);
    ls_free(p.polled);
    return p.status;
}

bool ls_workers_took_over(const struct ls_options *o, enum ls_status *status)
{
    bool wanted;
    *status = is_parent(o, &wanted);
    if (*status == LS_OK && wanted)
        *status = run_workers(o);
    return wanted || *status != LS_OK;
}
