/* The loop of a sweep: starts trials in free slots, waits for them, and keeps the journal. */
#define _GNU_SOURCE
#include "cmd/sweep/sweep.h"
#include "base/system/interrupt.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct loop {
    struct ls_sweep *s;
    struct ls_trial **slots; /* owned; NULL: free */
    struct pollfd *polled;   /* owned; the signalfd, then the process of each slot */
    int n, running;
    bool is_stopping; /* a signal came, or something failed */
    enum ls_status status;
    struct ls_live live;
    sigset_t before;
};

static void signal_all(const struct loop *l, int number)
{
    for (int i = 0; i < l->n; i++)
        if (l->slots[i])
            kill(l->slots[i]->pid, number);
}

static void stop(struct loop *l, enum ls_status status)
{
    if (!l->is_stopping) {
        l->is_stopping = true;
        l->status = status;
        signal_all(l, SIGTERM);
        signal_all(l, SIGCONT); /* a stopped process handles no other signal */
    }
}

static void start_trials(struct loop *l)
{
    for (int i = 0; i < l->n && !l->is_stopping; i++) {
        struct ls_trial *t = l->slots[i] ? NULL : ls_sweep_next(l->s);
        if (!t)
            continue;
        if (ls_child_start(l->s, t, i) != LS_OK) {
            stop(l, LS_FAILED);
            if (t->pid <= 0)
                continue;
        }
        l->slots[i] = t;
        l->polled[i + 1].fd = pidfd_open(t->pid, 0); /* -1: the loop looks for ended children now and then */
        l->running++;
    }
}

static void take_end(struct loop *l, int slot, int how)
{
    struct ls_trial *t = l->slots[slot];
    if (l->polled[slot + 1].fd >= 0)
        close(l->polled[slot + 1].fd);
    l->polled[slot + 1].fd = -1;
    l->slots[slot] = NULL;
    l->running--;
    ls_child_ended(l->s, t, how, l->is_stopping);
    if (ls_journal_put(l->s, t) != LS_OK)
        stop(l, LS_FAILED);
    ls_live_event(&l->live, l->s, t);
}

static void reap(struct loop *l)
{
    int how;
    for (int i = 0; i < l->n; i++)
        if (l->slots[i] && waitpid(l->slots[i]->pid, &how, WNOHANG) == l->slots[i]->pid)
            take_end(l, i, how);
}

/* Ctrl-Z stops the trials and the sweep; `fg` continues them. */
static void take_stop_key(struct loop *l)
{
    struct signalfd_siginfo info;
    if (read(l->polled[0].fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    signal_all(l, SIGTSTP);
    raise(SIGSTOP);
    signal_all(l, SIGCONT);
}

static void follow(struct loop *l)
{
    for (int i = 0; i < l->n && l->live.on; i++) {
        struct ls_trial *t = l->slots[i];
        char *path = t ? ls_format("%s/trials/%s/metrics.jsonl", l->s->folder, t->name) : NULL;
        if (path)
            ls_outcome_follow(&t->outcome, &t->tail, &l->s->goals, path);
        ls_free(path);
    }
}

static void run_loop(struct loop *l)
{
    for (;;) {
        if (ls_interrupted())
            stop(l, LS_INTERRUPTED);
        if (!l->is_stopping && ls_run_lock_held(l->s->lock, false) != LS_OK)
            stop(l, LS_FAILED);
        start_trials(l);
        if (l->running == 0)
            return;
        follow(l);
        ls_live_draw(&l->live, l->s, false);
        poll(l->polled, (nfds_t)l->n + 1, 200);
        if (l->polled[0].revents)
            take_stop_key(l);
        reap(l);
    }
}

/* Successive halving has no use for the trials that still wait. */
static enum ls_status end_paused(struct ls_sweep *s)
{
    for (int i = 0; i < s->n_trials; i++)
        if (s->has_asha && s->trials[i].state == LS_TRIAL_PAUSED && s->trials[i].until > 0 &&
            s->trials[i].outcome.epochs >= s->trials[i].until) {
            s->trials[i].state = LS_TRIAL_STOPPED;
            LS_TRY(ls_journal_put(s, &s->trials[i]));
        }
    return LS_OK;
}

static enum ls_status open_loop(struct loop *l, struct ls_sweep *s)
{
    sigset_t key;
    *l = (struct loop){.s = s, .n = s->side_by_side};
    sigemptyset(&key);
    sigaddset(&key, SIGTSTP);
    sigprocmask(SIG_BLOCK, &key, &l->before);
    l->slots = ls_alloc((size_t)l->n, sizeof *l->slots);
    l->polled = ls_alloc((size_t)l->n + 1, sizeof *l->polled);
    if (!l->slots || !l->polled)
        return LS_FAILED;
    for (int i = 0; i <= l->n; i++)
        l->polled[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    l->polled[0].fd = signalfd(-1, &key, SFD_CLOEXEC | SFD_NONBLOCK);
    return LS_OK;
}

static void close_loop(struct loop *l)
{
    if (l->polled && l->polled[0].fd >= 0)
        close(l->polled[0].fd);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    ls_free(l->slots);
    ls_free(l->polled);
}

enum ls_status ls_sweep_run(struct ls_sweep *s)
{
    struct loop l;
    ls_interrupt_watch();
    enum ls_status st = ls_child_await_orphans(s);
    if (st == LS_OK) {
        st = open_loop(&l, s);
        if (st == LS_OK) {
            ls_live_begin(&l.live, s);
            run_loop(&l);
            ls_live_end(&l.live);
            st = l.status;
        }
        close_loop(&l);
    }
    if (st == LS_OK)
        st = end_paused(s);
    if (st != LS_INTERRUPTED)
        ls_interrupt_release();
    return st;
}
