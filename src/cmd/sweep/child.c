/* A trial as a child process: this same program, as `lockstep train`. */
#define _GNU_SOURCE
#include "cmd/sweep/sweep.h"
#include "base/system/program.h"
#include "base/files/file.h"
#include "base/system/interrupt.h"
#include "base/log.h"
#include "checkpoint/lock_holder.h"
#include "launch/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- a share of the machine ----------------------------------------------------------------------------------- */

/* The cards as CUDA_VISIBLE_DEVICES names them: as the user has set it, or all. */
static int find_cards(struct ls_arena *arena, char **names, int room)
{
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (given) {
        char *copy = ls_arena_strdup(arena, given), *rest = copy;
        for (char *word; copy && n < room && (word = strsep(&rest, ","));)
            if (*word)
                names[n++] = word;
        return n;
    }
    glob_t found;
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) != 0)
        return 0;
    for (; n < (int)found.gl_pathc && n < room; n++)
        names[n] = ls_arena_format(arena, "%d", n);
    globfree(&found);
    return n;
}

/* The value of CUDA_VISIBLE_DEVICES for a slot; NULL: as it is. With fewer cards than slots, slots share cards. */
static const char *cards_of(int slot, int slots, struct ls_arena *arena)
{
    char *names[256];
    int n = find_cards(arena, names, 256);
    if (slots < 2 || n < 1)
        return NULL;
    if (n < slots)
        return names[slot % n];
    const char *list = "";
    for (int i = slot * n / slots; i < (slot + 1) * n / slots && list; i++)
        list = ls_arena_format(arena, "%s%s%s", list, *list ? "," : "", names[i]);
    return list;
}

static void take_cores(int slot, int slots)
{
    cpu_set_t *shares = ls_alloc((size_t)slots, sizeof *shares);
    if (shares && slots > 1 && ls_cores_split(slots, shares))
        sched_setaffinity(0, sizeof shares[slot], &shares[slot]);
    ls_free(shares);
}

/* --- starting -------------------------------------------------------------------------------------------------- */

struct start {
    char **words;
    const char *cards; /* NULL: all */
    int log;
    int slot, slots;
    pid_t parent;
};

/* Runs in the child and does not return. The child has a process group of its own: Ctrl-C reaches it once, through the
 * sweep. If the sweep dies, SIGTERM makes it save and end (S2). */
static void become_trial(const struct start *c)
{
    char room[4096];
    sigset_t none;
    const char *self = ls_program_path(room, sizeof room);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!self || getppid() != c->parent)
        _exit(LS_FAILED);
    take_cores(c->slot, c->slots);
    if (c->cards)
        setenv("CUDA_VISIBLE_DEVICES", c->cards, 1);
    unsetenv("LOCKSTEP_PARALLEL"); /* of the sweep: to train it is another thing */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    dup2(c->log, STDOUT_FILENO);
    dup2(c->log, STDERR_FILENO);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(self, c->words);
    fprintf(stderr, "lockstep: error: %s cannot be started: %s\n", self, strerror(errno));
    _exit(LS_FAILED);
}

static int open_log(const struct ls_sweep *s, struct ls_trial *t, struct ls_arena *arena)
{
    struct stat size;
    char *path = ls_arena_format(arena, "%s/logs/%s.txt", s->folder, t->name);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666) : -1;
    t->log_from = fd >= 0 && fstat(fd, &size) == 0 ? (int64_t)size.st_size : 0;
    if (fd < 0 && path)
        ls_fail(LS_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    return fd;
}

enum ls_status ls_child_start(struct ls_sweep *s, struct ls_trial *t, int slot)
{
    struct ls_arena arena = {0};
    struct start c = {.slot = slot, .slots = s->side_by_side, .parent = getpid()};
    pid_t pid = -1;
    c.words = ls_trial_command(s, t, true, &arena);
    c.cards = cards_of(slot, c.slots, &arena);
    c.log = c.words ? open_log(s, t, &arena) : -1;
    if (c.log >= 0) {
        fflush(NULL);
        pid = fork();
        if (pid == 0)
            become_trial(&c);
        if (pid < 0)
            ls_fail(LS_FAILED, "trial %s cannot be started: %s", t->name, strerror(errno));
        close(c.log);
    }
    ls_arena_release(&arena);
    if (pid < 0)
        return LS_FAILED;
    t->pid = pid;
    t->slot = slot;
    t->state = LS_TRIAL_RUNNING;
    t->is_waiting = false;
    t->error[0] = 0;
    return ls_journal_put(s, t);
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

/* Finds the first error in what the trial has printed since its start; later ones are consequences. */
static void find_error(const struct ls_sweep *s, struct ls_trial *t)
{
    static const char mark[] = "lockstep: error: ";
    char *line = NULL, *path = ls_format("%s/logs/%s.txt", s->folder, t->name);
    size_t room = 0;
    FILE *log = path ? fopen(path, "re") : NULL;
    if (log && fseeko(log, (off_t)t->log_from, SEEK_SET) == 0)
        while (!*t->error && getline(&line, &room, log) >= 0)
            if (strncmp(line, mark, sizeof mark - 1) == 0)
                snprintf(t->error, sizeof t->error, "%.*s", (int)strcspn(line + sizeof mark - 1, "\n"),
                         line + sizeof mark - 1);
    if (log)
        fclose(log);
    free(line);
    ls_free(path);
}

static enum ls_trial_state state_of(struct ls_sweep *s, struct ls_trial *t, int how, bool is_stopping)
{
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : -1, number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    if (code == LS_OK)
        return LS_TRIAL_DONE;
    /* SIGTERM may come before the first step: to one process, or to the parent of workers. */
    if (code == LS_INTERRUPTED || (is_stopping && (number == SIGTERM || code == 128 + SIGTERM)))
        return LS_TRIAL_PAUSED;
    if (code == LS_DIVERGED)
        return LS_TRIAL_DIVERGED;
    find_error(s, t);
    if (number)
        snprintf(t->error, sizeof t->error, "killed by signal %d (%s)", number, strsignal(number));
    else if (!*t->error)
        snprintf(t->error, sizeof t->error, "ended with exit code %d", code);
    return LS_TRIAL_FAILED;
}

void ls_child_ended(struct ls_sweep *s, struct ls_trial *t, int how, bool is_stopping)
{
    char *metrics = ls_format("%s/trials/%s/metrics.jsonl", s->folder, t->name);
    t->pid = 0;
    t->state = state_of(s, t, how, is_stopping);
    ls_outcome_close(&t->tail);
    if (metrics)
        ls_outcome_read(&t->outcome, &s->goals, metrics);
    ls_free(metrics);
}

/* --- children of a killed sweep ----------------------------------------------------------------------------------- */

static bool is_alive(const struct ls_sweep *s, const struct ls_trial *t, struct ls_lock_holder *h)
{
    char *path = ls_format("%s/trials/%s/lock", s->folder, t->name);
    bool alive = path && ls_lock_holder_read(path, h) && ls_lock_holder_look(h->text) == LS_LOCK_LIVE;
    ls_free(path);
    return alive;
}

enum ls_status ls_child_await_orphans(struct ls_sweep *s)
{
    for (int i = 0; i < s->n_trials; i++) {
        struct ls_lock_holder h;
        char who[LS_LOCK_LINE];
        bool said = false;
        while (s->trials[i].is_waiting && is_alive(s, &s->trials[i], &h)) {
            if (!said) {
                ls_lock_holder_describe(h.text, who);
                ls_progress("trial %s still runs on %s; waiting until it has ended", s->trials[i].name, who);
                said = true;
            }
            if (ls_interrupted())
                return LS_INTERRUPTED;
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
    }
    return LS_OK;
}
