#define _GNU_SOURCE
#include "cmd/report/inputs/run_view.h"
#include "base/files/file.h"
#include "base/log.h"
#include "checkpoint/lock_holder.h"
#include "checkpoint/run_lock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static double percent_wrong(double share)
{
    return 100 * (1 - share);
}

/* --- lines ------------------------------------------------------------------------------------------------------ */

static void add_total(struct ls_run_totals *t, const struct ls_record *r)
{
    if (!(r->seconds > 0))
        return;
    t->steps++;
    t->samples += r->samples > 0 ? (double)r->samples : 0;
    t->seconds += r->seconds;
    t->input += isfinite(r->input_share) ? r->input_share * r->seconds : 0;
    t->compute += isfinite(r->compute_share) ? r->compute_share * r->seconds : 0;
    t->wait += isfinite(r->wait_share) ? r->wait_share * r->seconds : 0;
    t->update += isfinite(r->update_share) ? r->update_share * r->seconds : 0;
}

/* Adds a value that the line has. A key that a version does not write is no gap. */
static enum ls_status add_known(struct ls_series *c, double x, double y, double weight)
{
    return isnan(y) ? LS_OK : ls_series_add(c, x, y, weight);
}

/* The curves of training, of a step line, or of an epoch line where a run has no step lines. */
static enum ls_status add_training(struct ls_run_view *v, const struct ls_record *r)
{
    double x = (double)r->step, samples = (double)r->samples;
    if (isfinite(r->loss) || r->is_diverged)
        LS_TRY(ls_series_add(&v->loss, x, r->loss, samples));
    LS_TRY(add_known(&v->top1, x, percent_wrong(r->top1), samples));
    LS_TRY(add_known(&v->top5, x, percent_wrong(r->top5), samples));
    LS_TRY(add_known(&v->rate, x, r->lr, 1));
    LS_TRY(add_known(&v->speed, x, r->samples_per_s, r->seconds));
    LS_TRY(add_known(&v->input, x, 100 * r->input_share, r->seconds));
    LS_TRY(add_known(&v->compute, x, 100 * r->compute_share, r->seconds));
    LS_TRY(add_known(&v->wait, x, 100 * r->wait_share, r->seconds));
    LS_TRY(add_known(&v->update, x, 100 * r->update_share, r->seconds));
    LS_TRY(add_known(&v->cutoff_k, x, r->cutoff_k, 1));
    return add_known(&v->gpu, x, r->gpu_utilisation, r->seconds);
}

static enum ls_status take_step(struct ls_run_view *v, const struct ls_record *r)
{
    if (v->n_steps++ > 0) { /* the first step also pays for preparations */
        add_total(&v->total, r);
        if (r->input_share >= 0 && r->input_share <= 1)
            v->input_bins[(int)fmin(LS_RUN_BINS - 1, r->input_share * LS_RUN_BINS)]++;
    }
    if (isfinite(r->loss)) {
        double samples = isnan(v->previous_loss) || r->samples < 1 ? 0 : (double)r->samples;
        v->area += samples > 0 ? 0.5 * (r->loss + v->previous_loss) * samples : 0;
        v->width += samples;
        v->previous_loss = r->loss;
    }
    return add_training(v, r);
}

static enum ls_status take_epoch(struct ls_run_view *v, const struct ls_record *r)
{
    v->n_epochs++;
    v->last_epoch = r->epoch;
    if (v->n_evals == 0)
        v->final_loss = r->loss;
    if (v->n_steps > 0)
        return LS_OK;
    add_total(&v->total, r);
    return add_training(v, r);
}

static enum ls_status take_eval(struct ls_run_view *v, const struct ls_record *r)
{
    double x = (double)r->step, wrong = percent_wrong(r->top1);
    v->n_evals++;
    v->final_loss = r->loss;
    v->last_top1 = wrong;
    v->last_top5 = percent_wrong(r->top5);
    if (isfinite(wrong) && !(wrong >= v->best_top1)) {
        v->best_top1 = wrong;
        v->best_step = r->step;
    }
    v->loss_of_best = fmin(v->loss_of_best, r->loss);
    if (isfinite(r->loss) || r->is_diverged)
        LS_TRY(ls_series_add(&v->eval_loss, x, r->loss, 1));
    LS_TRY(add_known(&v->eval_top1, x, wrong, 1));
    return add_known(&v->eval_top5, x, v->last_top5, 1);
}

/* --- ranks ------------------------------------------------------------------------------------------------------ */

static enum ls_status rank_of(struct ls_run_view *v, int64_t rank, struct ls_rank_view **found)
{
    *found = NULL;
    if (rank < 0 || rank >= LS_RUN_RANKS)
        return LS_OK;
    if (rank >= v->n_ranks) {
        struct ls_rank_view *larger = ls_realloc(v->ranks, (size_t)v->n_ranks, (size_t)rank + 1, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        v->ranks = larger;
        v->n_ranks = (int)rank + 1;
    }
    *found = &v->ranks[rank];
    return LS_OK;
}

static double known(double value)
{
    return isfinite(value) ? value : 0;
}

static enum ls_status add_gpu(struct ls_run_view *v, struct ls_rank_view *k, const struct ls_record *r)
{
    if (!isfinite(r->gpu_utilisation))
        return LS_OK;
    double weight = r->seconds > 0 ? r->seconds : 1;
    k->gpu_sum += r->gpu_utilisation * weight;
    k->gpu_weight += weight;
    k->gpu_memory = fmax(k->gpu_memory, known(r->gpu_memory_bytes));
    k->gpu_power += known(r->gpu_power_w) * weight;
    k->gpu_clock += known(r->gpu_clock_mhz) * weight;
    k->gpu_temperature = fmax(k->gpu_temperature, known(r->gpu_temperature_c));
    if (k - v->ranks >= LS_RUN_CARDS)
        return LS_OK;
    return ls_series_add(&k->gpu, (double)r->step, r->gpu_utilisation, 1);
}

static enum ls_status take_rank(struct ls_run_view *v, const struct ls_record *r)
{
    struct ls_rank_view *k, *late;
    LS_TRY(rank_of(v, r->rank, &k));
    if (!k)
        return LS_OK;
    k->is_there = true;
    memcpy(k->host, r->host, sizeof k->host);
    k->steps += r->steps > 0 ? r->steps : 0;
    k->last_step = r->step;
    k->seconds += known(r->seconds);
    k->input += known(r->input_seconds);
    k->compute += known(r->compute_seconds);
    k->exposed += known(r->exposed_seconds);
    k->hidden += known(r->hidden_seconds);
    k->late += known(r->late_seconds);
    k->update += known(r->update_seconds);
    for (int i = 0; i < r->n_collectives; i++) {
        k->calls += known(r->collectives[i].calls);
        k->bytes += known(r->collectives[i].bytes);
    }
    LS_TRY(add_gpu(v, k, r));
    LS_TRY(rank_of(v, r->waited_for, &late));
    if (late)
        late->held_up += known(r->waited_for_seconds);
    return LS_OK;
}

static enum ls_status take(const struct ls_record *r, void *context)
{
    struct ls_run_view *v = context;
    if (r->time[0]) {
        if (!v->first_time[0])
            memcpy(v->first_time, r->time, sizeof v->first_time);
        memcpy(v->last_time, r->time, sizeof v->last_time);
    } else {
        v->old_lines++;
    }
    if (v->first_step < 0)
        v->first_step = r->step;
    v->last_step = r->step > v->last_step ? r->step : v->last_step;
    if (r->is_diverged && v->diverged_step < 0)
        v->diverged_step = r->step;
    switch (r->kind) {
    case LS_RECORD_STEP:
        return take_step(v, r);
    case LS_RECORD_EPOCH:
        return take_epoch(v, r);
    case LS_RECORD_EVAL:
        return take_eval(v, r);
    case LS_RECORD_RANK:
        return take_rank(v, r);
    case LS_RECORD_OTHER:
        break;
    }
    return LS_OK;
}

/* --- the directory ---------------------------------------------------------------------------------------------- */

/* A lock whose process lives, or one of another machine that was touched lately. */
static bool is_locked(const char *run)
{
    struct ls_lock_holder holder;
    char *path = ls_format("%s/lock", run);
    bool locked = false;
    if (path && ls_file_exists(path) && ls_lock_holder_read(path, &holder)) {
        enum ls_lock_verdict found = ls_lock_holder_look(holder.text);
        double age = difftime(time(NULL), holder.touched.tv_sec);
        locked = found == LS_LOCK_LIVE || (found == LS_LOCK_UNSEEN && age < LS_RUN_LOCK_TIMES.stale);
    }
    ls_free(path);
    return locked;
}

/* Half a gigabyte takes about a second. */
static void announce(const char *path)
{
    enum { WORTH_A_LINE = 500 << 20 };
    struct stat file;
    if (stat(path, &file) == 0 && file.st_size > WORTH_A_LINE)
        ls_progress("Reading %s, %.1f GB ...", path, 1e-9 * (double)file.st_size);
}

enum ls_status ls_run_view_load(struct ls_run_view *v, const char *path)
{
    *v = (struct ls_run_view){.first_step = -1, .last_step = -1, .diverged_step = -1, .best_step = -1};
    v->final_loss = v->best_top1 = v->last_top1 = v->last_top5 = v->loss_of_best = v->previous_loss = NAN;
    v->path = ls_strdup(path);
    if (!v->path)
        return LS_FAILED;
    LS_TRY(ls_run_view_texts(v));
    v->is_running = is_locked(path);
    char *metrics = ls_format("%s/metrics.jsonl", path);
    enum ls_status st = metrics ? LS_OK : LS_FAILED;
    if (st == LS_OK && ls_file_exists(metrics)) {
        announce(metrics);
        st = ls_metrics_read(metrics, take, v, &v->tally);
        v->has_metrics = v->n_steps + v->n_epochs + v->n_evals > 0;
    }
    if (v->n_evals == 0 && v->n_epochs == 0)
        v->final_loss = ls_series_tail(&v->loss);
    ls_free(metrics);
    return st;
}

void ls_run_view_release(struct ls_run_view *v)
{
    struct ls_series *curves[] = {&v->loss,     &v->top1,      &v->top5,      &v->rate,     &v->speed,
                                  &v->input,    &v->compute,   &v->wait,      &v->update,   &v->gpu,
                                  &v->cutoff_k, &v->eval_loss, &v->eval_top1, &v->eval_top5};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        ls_series_release(curves[i]);
    for (int i = 0; i < v->n_ranks; i++)
        ls_series_release(&v->ranks[i].gpu);
    ls_free(v->ranks);
    ls_free(v->config.list);
    ls_free(v->log.list);
    ls_arena_release(&v->strings);
    ls_free(v->path);
    *v = (struct ls_run_view){0};
}

const char *ls_run_state(const struct ls_run_view *v)
{
    if (v->is_running)
        return "running";
    switch (v->exit_code) {
    case 0:
        return "done";
    case 4:
        return "a worker was lost";
    case 5:
        return "diverged";
    case 75:
        return "stopped, can be resumed";
    case -1:
        return v->has_log ? "ended without a word (killed?)" : "unknown";
    default:
        return "failed";
    }
}

double ls_run_typical_input(const struct ls_run_view *v)
{
    int64_t all = 0, below = 0;
    for (int i = 0; i < LS_RUN_BINS; i++)
        all += v->input_bins[i];
    for (int i = 0; i < LS_RUN_BINS; i++) {
        below += v->input_bins[i];
        if (2 * below >= all)
            return (i + 0.5) / LS_RUN_BINS;
    }
    return 0;
}

double ls_run_wall(const struct ls_run_view *v)
{
    return ls_record_time(v->last_time) - ls_record_time(v->first_time);
}
