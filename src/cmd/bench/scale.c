#define _GNU_SOURCE
#include "base/clock.h"
#include "cmd/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "launch/launch.h"
#include "report/progress_bar.h"
#include "report/stats.h"
#include "report/table.h"
#include "exec/engine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, SHOWN = 8 /* repetitions that fit in a table */, EXTRA = 12 /* words that a child gets besides */ };

struct entry {
    int workers;
    int64_t batch;
    json_t *bench; /* owned; the JSON output of its bench */
    double *speed; /* owned; samples/s of each repetition */
    int n;
    struct ls_stats stats;
    double speedup, efficiency;
};

struct scale {
    const struct ls_options *o;
    struct entry entries[MOST];
    int n;
    int64_t threads; /* per worker */
    double start;
    bool live;
};

bool ls_bench_scale_wanted(const struct ls_options *o)
{
    return o->scale && strcmp(o->scale, "none") != 0;
}

/* --- what to measure ---------------------------------------------------------------------------------- */

static enum ls_status read_list(struct scale *s)
{
    const char *text = s->o->scale;
    while (*text) {
        char *end = NULL;
        long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
        if (n < 1 || n > 4096 || (*end && (*end != ',' || !end[1])))
            return ls_fail(LS_USAGE, "--scale: '%s' is not a list of numbers of workers from 1 to 4096, such as 1,2,4",
                           s->o->scale);
        if (s->n == MOST)
            return ls_fail(LS_USAGE, "--scale: '%s' has more than %d numbers", s->o->scale, MOST);
        s->entries[s->n++] = (struct entry){.workers = (int)n, .batch = s->o->weak ? n * s->o->batch : s->o->batch};
        text = *end ? end + 1 : end;
    }
    return LS_OK;
}

static enum ls_status prepare(struct scale *s)
{
    struct ls_launch launch;
    int most = 1;
    LS_TRY(ls_launch_detect(s->o, &launch));
    bool alone = launch.kind == LS_LAUNCH_ALONE;
    const char *how = launch.how;
    ls_launch_release(&launch);
    if (!alone || s->o->workers > 1)
        return ls_fail(LS_USAGE, "--scale starts workers itself, but %s has asked for some already; leave it out",
                       alone ? "--workers" : how);
    if (ls_bench_collective_wanted(s->o))
        return ls_fail(LS_USAGE, "--scale measures steps and --collective sums; leave one out");
    LS_TRY(read_list(s));
    for (int i = 0; i < s->n; i++)
        most = s->entries[i].workers > most ? s->entries[i].workers : most;
    s->threads = s->o->threads > 0 ? s->o->threads : ls_engine_cores() / most;
    s->threads = s->threads > 0 ? s->threads : 1;
    return LS_OK;
}

/* --- one bench in a child process ----------------------------------------------------------------------- */

/* Builds the command line of a child: the given one, followed by the options of this entry. */
static char **make_words(const struct scale *s, const struct entry *e, struct ls_arena *strings)
{
    int given = s->o->n_command_line, n = 0, options = 0;
    char **words = ls_alloc((size_t)given + EXTRA, sizeof *words);
    const char *extra[] = {"--scale", "none",    "--json", "--no-progress", "--workers",
                           NULL,      "--batch", NULL,     "--threads",     NULL};
    int n_extra = (int)(sizeof extra / sizeof *extra);
    if (!words)
        return NULL;
    extra[5] = ls_arena_format(strings, "%d", e->workers);
    extra[7] = ls_arena_format(strings, "%lld", (long long)e->batch);
    extra[9] = ls_arena_format(strings, "%lld", (long long)s->threads);
    if (!extra[5] || !extra[7] || !extra[9]) {
        ls_free(words);
        return NULL;
    }
    while (options < given && strcmp(s->o->command_line[options], "--") != 0)
        words[n++] = s->o->command_line[options++];
    for (int i = 0; i < n_extra; i++)
        words[n++] = (char *)(uintptr_t)extra[i]; /* execv does not change them */
    while (options < given)
        words[n++] = s->o->command_line[options++];
    return words;
}

/* Runs in the child and does not return. */
static void become_bench(char **words, int out, pid_t parent)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (n <= 0 || getppid() != parent)
        _exit(LS_FAILED);
    self[n] = 0;
    dup2(out, STDOUT_FILENO);
    execv(self, words);
    fprintf(stderr, "lockstep: error: %s cannot be started: %s\n", self, strerror(errno));
    _exit(LS_FAILED);
}

static void draw(const struct scale *s, int at)
{
    char label[48], time[32], line[LS_BAR_ROOM];
    struct winsize size;
    if (!s->live)
        return;
    struct ls_bar_style look = {.colour = s->o->color, .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    look.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    snprintf(label, sizeof label, "%d worker%s", s->entries[at].workers, s->entries[at].workers == 1 ? "" : "s");
    ls_format_duration(ls_now() - s->start, time);
    ls_progress_bar(&look, label, at, s->n, (const char *const[]){time}, 1, line);
    ls_log_status_line(line);
}

/* Reads the whole standard output of the child and updates the progress bar meanwhile. */
static enum ls_status listen(const struct scale *s, int at, int fd, char **text, size_t *used)
{
    size_t room = 0;
    *text = NULL;
    *used = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        draw(s, at);
        if (poll(&p, 1, 500) <= 0)
            continue;
        if (*used == room) {
            size_t more = room ? 2 * room : 1 << 16;
            char *grown = ls_realloc(*text, room, more, 1);
            if (!grown)
                return LS_FAILED;
            *text = grown;
            room = more;
        }
        ssize_t n = read(fd, *text + *used, room - *used);
        if (n < 0 && errno != EINTR)
            return ls_fail(LS_FAILED, "the bench on %d workers cannot be read: %s", s->entries[at].workers,
                           strerror(errno));
        if (n == 0)
            return LS_OK;
        *used += n > 0 ? (size_t)n : 0;
    }
}

/* The child has reported its error. */
static enum ls_status reap(const struct entry *e, pid_t pid)
{
    int how;
    while (waitpid(pid, &how, 0) < 0)
        if (errno != EINTR)
            return ls_fail(LS_FAILED, "the bench on %d workers cannot be waited for: %s", e->workers, strerror(errno));
    if (WIFSIGNALED(how))
        return ls_fail(LS_FAILED, "the bench on %d worker%s was killed by signal %d (%s)", e->workers,
                       e->workers == 1 ? "" : "s", WTERMSIG(how), strsignal(WTERMSIG(how)));
    return (enum ls_status)WEXITSTATUS(how);
}

static enum ls_status take_figures(struct entry *e, int repeat, const char *text, size_t size)
{
    json_error_t error;
    e->bench = json_loadb(text, size, 0, &error);
    const json_t *speeds = json_object_get(e->bench, "samples_per_s_repeats");
    e->n = (int)json_array_size(speeds);
    if (!e->bench || e->n != repeat)
        return ls_fail(LS_FAILED, "the bench on %d workers gave %d figures instead of %d: %s", e->workers, e->n, repeat,
                       e->bench ? "the output is not that of lockstep bench" : error.text);
    e->speed = ls_alloc((size_t)e->n, sizeof *e->speed);
    if (!e->speed)
        return LS_FAILED;
    for (int i = 0; i < e->n; i++)
        e->speed[i] = json_number_value(json_array_get(speeds, (size_t)i));
    return ls_stats_of(e->speed, e->n, &e->stats);
}

static enum ls_status run_one(struct scale *s, int at)
{
    struct entry *e = &s->entries[at];
    struct ls_arena strings = {0};
    enum ls_status st = LS_FAILED;
    int ends[2];
    char *text = NULL;
    size_t size = 0;
    char **words = make_words(s, e, &strings);
    pid_t parent = getpid(), pid = -1;
    if (!words || pipe2(ends, O_CLOEXEC) != 0)
        goto free_words;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        become_bench(words, ends[1], parent);
    close(ends[1]);
    if (pid > 0) {
        st = listen(s, at, ends[0], &text, &size);
        if (st != LS_OK)
            kill(pid, SIGTERM);
    }
    close(ends[0]);
    if (pid > 0) {
        enum ls_status ended = reap(e, pid);
        st = st == LS_OK ? ended : st;
    }
    if (st == LS_OK)
        st = take_figures(e, (int)s->o->repeat, text, size);
free_words:
    if (pid < 0 && words)
        ls_fail(LS_FAILED, "the bench on %d workers cannot be started: %s", e->workers, strerror(errno));
    ls_free(text);
    ls_free(words);
    ls_arena_release(&strings);
    return st;
}

/* --- output ------------------------------------------------------------------------------------------- */

static void compare(struct scale *s)
{
    const struct entry *first = &s->entries[0];
    for (int i = 0; i < s->n; i++) {
        struct entry *e = &s->entries[i];
        e->speedup = e->stats.median / first->stats.median;
        e->efficiency = e->speedup * first->workers / e->workers;
    }
}

static void print_head(const struct scale *s)
{
    int cores = ls_engine_cores();
    char shown[LS_PRINTABLE_SIZE];
    printf("%s, %s scaling: batch %lld%s, %lld thread%s a worker, %lld repetition%s, samples/s\n",
           ls_utf8_printable(s->o->model, shown, sizeof shown), s->o->weak ? "weak" : "strong", (long long)s->o->batch,
           s->o->weak ? " a worker" : "", (long long)s->threads, s->threads == 1 ? "" : "s", (long long)s->o->repeat,
           s->o->repeat == 1 ? "" : "s");
    for (int i = 0; i < s->n; i++)
        if (s->entries[i].workers * s->threads > cores)
            printf("%d workers have %d cores for %lld threads: their figures say little of how this scales\n",
                   s->entries[i].workers, cores, (long long)(s->entries[i].workers * s->threads));
}

static enum ls_status print_table(const struct scale *s)
{
    static const char *const ahead[] = {"workers", "batch"};
    static const char *const behind[] = {"median", "mean", "sd", "CV", "speed-up", "efficiency"};
    const char *headings[LS_TABLE_COLUMNS];
    char numbers[SHOWN][16], align[LS_TABLE_COLUMNS + 1] = "";
    int shown = s->o->repeat <= SHOWN ? (int)s->o->repeat : 0, n = 0;
    struct ls_table t;
    for (int i = 0; i < 2; i++)
        headings[n++] = ahead[i];
    for (int i = 0; i < shown; i++) {
        snprintf(numbers[i], sizeof numbers[i], "#%d", i + 1);
        headings[n++] = numbers[i];
    }
    for (int i = 0; i < 6; i++)
        headings[n++] = behind[i];
    memset(align, 'r', (size_t)n);
    print_head(s);
    ls_table_init(&t, align, headings);
    for (int i = 0; i < s->n; i++) {
        const struct entry *e = &s->entries[i];
        ls_table_row(&t);
        ls_table_cell(&t, "%d", e->workers);
        ls_table_cell(&t, "%lld", (long long)e->batch);
        for (int k = 0; k < shown; k++)
            ls_table_cell(&t, "%.1f", e->speed[k]);
        ls_table_cell(&t, "%.1f", e->stats.median);
        ls_table_cell(&t, "%.1f", e->stats.mean);
        ls_table_cell(&t, "%.1f", e->stats.deviation);
        ls_table_cell(&t, "%.1f%%", 100 * e->stats.variation);
        ls_table_cell(&t, "%.2f", e->speedup);
        ls_table_cell(&t, "%.0f%%", 100 * e->efficiency);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status print_json(const struct scale *s)
{
    json_t *entries = json_array();
    for (int i = 0; i < s->n; i++) {
        const struct entry *e = &s->entries[i];
        json_array_append_new(entries, json_pack("{s:i, s:I, s:O, s:f, s:f, s:f, s:f, s:f, s:f, s:O}", "workers",
                                                 e->workers, "batch", (json_int_t)e->batch, "samples_per_s_repeats",
                                                 json_object_get(e->bench, "samples_per_s_repeats"), "median",
                                                 e->stats.median, "mean", e->stats.mean, "sd", e->stats.deviation, "cv",
                                                 e->stats.variation, "speedup", e->speedup, "efficiency", e->efficiency,
                                                 "step_ms_median", json_object_get(e->bench, "step_ms_median")));
    }
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:o}", "kind", "scale", "model", s->o->model, "scaling",
                  s->o->weak ? "weak" : "strong", "batch", (json_int_t)s->o->batch, "threads", (json_int_t)s->threads,
                  "repeat", (json_int_t)s->o->repeat, "cores", ls_engine_cores(), "entries", entries);
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

enum ls_status ls_bench_scale(const struct ls_options *o)
{
    struct scale s = {.o = o, .start = ls_now()};
    enum ls_status st = prepare(&s);
    s.live = o->progress && !o->quiet && !o->json && isatty(STDOUT_FILENO);
    for (int i = 0; st == LS_OK && i < s.n; i++)
        st = run_one(&s, i);
    if (s.live)
        ls_log_status_line(NULL);
    if (st == LS_OK) {
        compare(&s);
        st = o->json ? print_json(&s) : print_table(&s);
    }
    for (int i = 0; i < s.n; i++) {
        json_decref(s.entries[i].bench);
        ls_free(s.entries[i].speed);
    }
    return st;
}
