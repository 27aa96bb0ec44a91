#define _GNU_SOURCE
#include "cmd/watch/run.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/lock_holder.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/rundir.h"
#include "cmd/watch/run_log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- metrics.jsonl ---------------------------------------------------------------------------------------- */

static void forget_metrics(struct ls_watched *w)
{
    ls_metrics_reader_close(&w->reader);
    w->has_reader = false;
    w->loss = w->error = w->eval_loss = w->eval_error = (struct ls_curve){0};
    w->step = w->eval = (struct ls_record){.step = -1};
    w->at = -1;
    w->best_top1 = NAN;
    w->n_recent = 0;
    w->n_ranks = 0;
    w->diverged = false;
}

static enum ls_status keep_rank(struct ls_watched *w, const struct ls_record *r)
{
    if (r->rank < 0 || r->rank >= LS_RUN_RANKS)
        return LS_OK;
    if (r->rank >= w->n_ranks) {
        struct ls_record *more = ls_realloc(w->ranks, (size_t)w->n_ranks, (size_t)r->rank + 1, sizeof *more);
        if (!more)
            return LS_FAILED;
        w->ranks = more;
        for (; w->n_ranks <= r->rank; w->n_ranks++)
            w->ranks[w->n_ranks] = (struct ls_record){.rank = -1};
    }
    w->ranks[r->rank] = *r;
    return LS_OK;
}

static void keep_step(struct ls_watched *w, const struct ls_record *r)
{
    ls_curve_add(&w->loss, r->step, r->loss);
    ls_curve_add(&w->error, r->step, 1 - r->top1);
    w->recent[w->n_recent++ % LS_RUN_RECENT] = *r;
    w->step = *r;
    w->diverged = r->is_diverged;
}

static void keep_eval(struct ls_watched *w, const struct ls_record *r)
{
    ls_curve_add(&w->eval_loss, r->step, r->loss);
    ls_curve_add(&w->eval_error, r->step, 1 - r->top1);
    w->eval = *r;
    if (isfinite(r->top1) && !(r->top1 <= w->best_top1)) {
        w->best_top1 = r->top1;
        w->best_step = r->step;
    }
}

static enum ls_status keep(const struct ls_record *r, void *context)
{
    struct ls_watched *w = context;
    w->at = r->step > w->at ? r->step : w->at;
    if (r->kind == LS_RECORD_STEP)
        keep_step(w, r);
    else if (r->kind == LS_RECORD_EVAL)
        keep_eval(w, r);
    else if (r->kind == LS_RECORD_RANK)
        return keep_rank(w, r);
    return LS_OK;
}

static enum ls_status read_metrics(struct ls_watched *w)
{
    if (w->has_reader && ls_metrics_reader_is_stale(&w->reader))
        forget_metrics(w);
    if (!w->has_reader) {
        bool muted = ls_log_mute(true); /* the file may be missing yet, or be replaced just now */
        w->has_reader = ls_metrics_reader_open(&w->reader, w->metrics) == LS_OK;
        ls_log_mute(muted);
    }
    return w->has_reader ? ls_metrics_reader_read(&w->reader, keep, w) : LS_OK;
}

/* --- the state -------------------------------------------------------------------------------------------- */

static void set_state(struct ls_watched *w, enum ls_run_state state, const char *text)
{
    w->state = state;
    snprintf(w->state_text, sizeof w->state_text, "%s", text);
}

static void state_by_log(struct ls_watched *w)
{
    char text[128];
    snprintf(text, sizeof text, "%s (exit code %d)", w->end, w->exit_code);
    if (w->log_file == 0)
        set_state(w, LS_RUN_UNKNOWN, "in an unknown state: no log.txt");
    else if (w->exit_code < 0)
        set_state(w, LS_RUN_KILLED, "ended without a last word in log.txt");
    else if (w->exit_code == LS_OK)
        set_state(w, LS_RUN_FINISHED, "finished");
    else
        set_state(w, w->exit_code == LS_INTERRUPTED ? LS_RUN_STOPPED : LS_RUN_FAILED, text);
}

/* A holder that cannot be seen from here is judged by the age of its lock. */
static void state_by_lock(struct ls_watched *w, const struct ls_lock_holder *h)
{
    char who[LS_LOCK_LINE], text[160];
    double age = difftime(time(NULL), h->touched.tv_sec);
    ls_lock_holder_describe(h->text, who);
    *strchrnul(who, ':') = 0; /* without the command; the time behind it is cut as well */
    switch (ls_lock_holder_look(h->text)) {
    case LS_LOCK_STALE:
        set_state(w, LS_RUN_KILLED, "killed; its process has ended");
        return;
    case LS_LOCK_UNSEEN:
        if (age > LS_RUN_LOCK_TIMES.stale) {
            snprintf(text, sizeof text, "no sign of life for %.0f s", age);
            set_state(w, LS_RUN_SILENT, text);
            return;
        }
        break;
    default:
        break;
    }
    char *comma = strchr(who, ','); /* behind the pid */
    snprintf(text, sizeof text, "running on %.*s%s", comma ? (int)(comma - who) : (int)strlen(who), who,
             comma ? ")" : "");
    set_state(w, LS_RUN_RUNNING, text);
}

static void find_state(struct ls_watched *w)
{
    struct ls_lock_holder h;
    if (!ls_file_exists(w->path))
        set_state(w, LS_RUN_UNKNOWN, "the directory is gone");
    else if (ls_lock_holder_read(w->lock, &h))
        state_by_lock(w, &h);
    else
        state_by_log(w);
}

/* --- the run ---------------------------------------------------------------------------------------------- */

enum ls_status ls_watched_refresh(struct ls_watched *w)
{
    LS_TRY(read_metrics(w));
    ls_run_log_read(w);
    find_state(w);
    return LS_OK;
}

bool ls_watched_is_run(const char *path)
{
    static const char *const files[] = {"lock", "metrics.jsonl"};
    bool found = ls_rundir_is_run(path);
    for (int i = 0; i < 2 && !found; i++) {
        char *file = ls_format("%s/%s", path, files[i]);
        found = file && ls_file_exists(file);
        ls_free(file);
    }
    return found;
}

enum ls_status ls_watched_open(struct ls_watched *w, const char *path)
{
    *w = (struct ls_watched){.exit_code = -1};
    forget_metrics(w);
    w->path = ls_strdup(path);
    w->metrics = ls_format("%s/metrics.jsonl", path);
    w->log = ls_format("%s/log.txt", path);
    w->lock = ls_format("%s/lock", path);
    enum ls_status st = w->path && w->metrics && w->log && w->lock ? LS_OK : LS_FAILED;
    if (st == LS_OK && !ls_file_exists(path))
        st = ls_fail(LS_BAD_INPUT, "%s: no such run directory", path);
    else if (st == LS_OK && !ls_watched_is_run(path))
        st = ls_fail(LS_BAD_INPUT, "%s: not a run directory: it has no checkpoints, log.txt or metrics.jsonl", path);
    if (st != LS_OK)
        ls_watched_close(w);
    return st;
}

void ls_watched_close(struct ls_watched *w)
{
    ls_metrics_reader_close(&w->reader);
    ls_free(w->ranks);
    ls_free(w->path);
    ls_free(w->metrics);
    ls_free(w->log);
    ls_free(w->lock);
    *w = (struct ls_watched){0};
    w->reader.fd = -1;
}

static double at_least_0(double value)
{
    return value > 0 ? value : 0; /* NaN too */
}

/* The mean over the finite values; it starts as NaN with *count 0. */
static void add_mean(double *mean, int *count, double value)
{
    if (isfinite(value))
        *mean = (*count)++ == 0 ? value : *mean + (value - *mean) / *count;
}

void ls_watched_recent(const struct ls_watched *w, struct ls_recent *sum)
{
    int counted[2] = {0, 0};
    *sum = (struct ls_recent){.loss = NAN, .top1 = NAN};
    for (int64_t i = 0; i < w->n_recent && i < LS_RUN_RECENT; i++) {
        const struct ls_record *r = &w->recent[i];
        double seconds = at_least_0(r->seconds);
        sum->steps++;
        sum->samples += (double)(r->samples > 0 ? r->samples : 0);
        sum->seconds += seconds;
        add_mean(&sum->loss, &counted[0], r->loss);
        add_mean(&sum->top1, &counted[1], r->top1);
        sum->input += seconds * at_least_0(r->input_share);
        sum->compute += seconds * at_least_0(r->compute_share);
        sum->wait += seconds * at_least_0(r->wait_share);
        sum->update += seconds * at_least_0(r->update_share);
    }
}

double ls_watched_left(const struct ls_watched *w)
{
    struct ls_recent sum;
    ls_watched_recent(w, &sum);
    if (w->total <= 0 || w->at < 0 || sum.seconds <= 0)
        return NAN;
    int64_t steps = w->total > w->at ? w->total - w->at : 0;
    double evaluations = w->per_epoch > 0 && w->eval.step >= 0 ? ceil((double)steps / (double)w->per_epoch) : 0;
    return (double)steps * sum.seconds / sum.steps + evaluations * at_least_0(w->eval.seconds);
}

double ls_watched_age(const struct ls_watched *w)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return w->step.step < 0 ? NAN : (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - ls_record_time(w->step.time);
}
