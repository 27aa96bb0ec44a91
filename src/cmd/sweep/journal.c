/* sweep.jsonl: how far each trial is. The last line of a trial counts. */
#include "cmd/sweep/sweep.h"
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT ((size_t)1 << 30)
#define DIGITS JSON_REAL_PRECISION(15)

static const char *const names[] = {"planned", "running", "paused", "done", "failed", "diverged", "stopped"};

const char *ls_trial_state_name(enum ls_trial_state state)
{
    return names[state];
}

/* --- JSON ------------------------------------------------------------------------------------------------- */

json_t *ls_json_text(const char *text)
{
    size_t size = 4 * strlen(text) + 1;
    json_t *value = json_string(text);
    char *room = value ? NULL : ls_alloc(size, 1);
    if (room)
        value = json_string(ls_utf8_escape(text, room, size));
    ls_free(room);
    return value;
}

json_t *ls_json_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* A value with the type of its option. */
static json_t *typed(const struct ls_option *option, const char *text)
{
    if (option->type == LS_OPTION_REAL)
        return json_real(strtod(text, NULL));
    if (option->floor && strncmp(text, "auto", 4) == 0)
        return ls_json_text(text);
    if (option->type == LS_OPTION_WHOLE || (option->type == LS_OPTION_SEED && strlen(text) < 19))
        return json_integer(strtoll(text, NULL, 10));
    if (option->type == LS_OPTION_SWITCH)
        return json_boolean(strcmp(text, "true") == 0);
    return ls_json_text(text);
}

json_t *ls_trial_options_json(const struct ls_sweep *s, const struct ls_trial *t)
{
    json_t *options = json_object();
    for (int a = 0; a < s->n_axes; a++)
        json_object_set_new(options, s->axes[a].option->name, typed(s->axes[a].option, t->values[a]));
    return options;
}

json_t *ls_outcome_json(const struct ls_outcome *o)
{
    struct {
        const char *name;
        double value;
    } figures[] = {{"seconds", o->seconds},
                   {"final_loss", ls_outcome_final_loss(o)},
                   {"train_loss", o->train_loss},
                   {"eval_loss", o->eval_loss},
                   {"top1", o->top1},
                   {"top5", o->top5},
                   {"best_top1", o->best_top1},
                   {"time_to_target", o->target_seconds},
                   {"loss_area", ls_outcome_loss_area(o)},
                   {"area_steps", o->area_steps},
                   {"area_samples", o->area_samples},
                   {"area_seconds", o->area_seconds}};
    json_t *result = json_pack("{s:I, s:I, s:I}", "epochs", (json_int_t)o->epochs, "steps", (json_int_t)o->steps,
                               "samples", (json_int_t)o->samples);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(result, figures[i].name, ls_json_real(figures[i].value));
    return result;
}

static json_t *line_of(const struct ls_sweep *s, const struct ls_trial *t)
{
    struct timespec now;
    struct tm utc;
    char date[32] = "", time[48];
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time, sizeof time, "%s.%03ldZ", date, now.tv_nsec / 1000000);
    json_t *line =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:o}", "trial", t->number, "name", t->name, "state", names[t->state],
                  "time", time, "threads", (json_int_t)t->threads, "options", ls_trial_options_json(s, t));
    if (t->state == LS_TRIAL_PLANNED)
        json_object_set_new(line, "sweep", json_string(s->digest));
    if (t->until > 0)
        json_object_set_new(line, "until", json_integer((json_int_t)t->until));
    if (t->state == LS_TRIAL_RUNNING)
        json_object_set_new(line, "pid", json_integer((json_int_t)t->pid));
    if (t->state == LS_TRIAL_FAILED)
        json_object_set_new(line, "error", ls_json_text(t->error));
    if (t->state > LS_TRIAL_RUNNING)
        json_object_set_new(line, "result", ls_outcome_json(&t->outcome));
    return line;
}

/* Freed by free(). */
static char *text_of(const struct ls_sweep *s, const struct ls_trial *t)
{
    json_t *line = line_of(s, t);
    char *text = line ? json_dumps(line, DIGITS) : NULL;
    json_decref(line);
    return text;
}

/* --- writing ------------------------------------------------------------------------------------------------ */

enum ls_status ls_journal_put(struct ls_sweep *s, const struct ls_trial *t)
{
    char *line = text_of(s, t), *text = line ? ls_format("%s\n", line) : NULL;
    size_t size = text ? strlen(text) : 0;
    bool good = text && write(s->journal, text, size) == (ssize_t)size && fdatasync(s->journal) == 0;
    free(line);
    ls_free(text);
    return good ? LS_OK : ls_fail(LS_FAILED, "%s/sweep.jsonl: writing failed: %s", s->folder, strerror(errno));
}

/* All trials at once: the file is complete or absent. */
static enum ls_status write_plan(struct ls_sweep *s, const char *path)
{
    struct ls_file_writer out;
    LS_TRY(ls_file_writer_open(&out, path));
    enum ls_status st = LS_OK;
    for (int i = 0; i < s->n_trials && st == LS_OK; i++) {
        char *text = text_of(s, &s->trials[i]);
        st = text ? ls_file_writer_put(&out, text, strlen(text)) : ls_fail(LS_FAILED, "out of memory");
        if (st == LS_OK)
            st = ls_file_writer_put(&out, "\n", 1);
        free(text);
    }
    if (st == LS_OK)
        return ls_file_writer_commit(&out);
    ls_file_writer_cancel(&out);
    return st;
}

/* --- reading ------------------------------------------------------------------------------------------------- */

static enum ls_status take_line(struct ls_sweep *s, const json_t *line)
{
    const char *digest = json_string_value(json_object_get(line, "sweep"));
    json_int_t number = json_integer_value(json_object_get(line, "trial"));
    const char *state = json_string_value(json_object_get(line, "state"));
    const char *error = json_string_value(json_object_get(line, "error"));
    json_int_t threads = json_integer_value(json_object_get(line, "threads"));
    if (digest && strcmp(digest, s->digest) != 0)
        return ls_fail(LS_USAGE,
                       "%s/sweep.yaml: changed since the trials were planned; undo that, or copy it and start another "
                       "sweep with it: lockstep sweep FILE.yaml --run DIR",
                       s->folder);
    if (number < 1 || number > s->n_trials || !state)
        return LS_OK;
    struct ls_trial *t = &s->trials[number - 1];
    for (int i = 0; i <= LS_TRIAL_STOPPED; i++)
        if (strcmp(state, names[i]) == 0)
            t->state = (enum ls_trial_state)i;
    t->until = json_integer_value(json_object_get(line, "until"));
    t->threads = threads > 0 ? threads : t->threads;
    snprintf(t->error, sizeof t->error, "%s", error ? error : "");
    return LS_OK;
}

/* *whole: bytes of complete lines. A killed sweep may have left a part of a line. */
static enum ls_status read_lines(struct ls_sweep *s, const char *path, size_t *whole)
{
    char *text;
    size_t size;
    enum ls_status st = ls_file_read(path, LIMIT, &text, &size);
    LS_TRY(st);
    *whole = 0;
    for (const char *newline; st == LS_OK && (newline = memchr(text + *whole, '\n', size - *whole));) {
        size_t length = (size_t)(newline - text) - *whole;
        json_t *line = json_loadb(text + *whole, length, 0, NULL);
        if (line)
            st = take_line(s, line);
        else
            ls_warn("%s: a line that is not JSON is left out", path);
        json_decref(line);
        *whole += length + 1;
    }
    ls_free(text);
    return st;
}

/* Finished trials stay as they are. A trial that waits for a decision of successive halving waits on. */
static void decide_waiting(struct ls_sweep *s, struct ls_trial *t)
{
    struct ls_arena strings = {0};
    char *run = ls_sweep_path(s, &strings, "trials", t->name);
    char *metrics = run ? ls_arena_format(&strings, "%s/metrics.jsonl", run) : NULL;
    if (metrics && t->state != LS_TRIAL_PLANNED)
        ls_outcome_read(&t->outcome, &s->goals, metrics);
    ls_arena_release(&strings);
    bool decides = s->has_asha && t->state == LS_TRIAL_PAUSED && t->until > 0 && t->outcome.epochs >= t->until;
    bool finished =
        t->state == LS_TRIAL_DONE || t->state == LS_TRIAL_DIVERGED || t->state == LS_TRIAL_STOPPED || decides;
    t->is_waiting = !finished;
}

enum ls_status ls_journal_open(struct ls_sweep *s)
{
    char *path = ls_sweep_path(s, &s->strings, "sweep.jsonl", NULL);
    size_t whole;
    if (!path)
        return LS_FAILED;
    ls_file_remove_stale(path);
    if (!ls_file_exists(path))
        LS_TRY(write_plan(s, path));
    LS_TRY(read_lines(s, path, &whole));
    s->journal = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (s->journal < 0 || ftruncate(s->journal, (off_t)whole) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    double start = ls_now();
    bool said = false;
    for (int i = 0; i < s->n_trials; i++) {
        decide_waiting(s, &s->trials[i]);
        if (!said && ls_now() - start > 2) {
            ls_progress("reading the metrics of the trials so far");
            said = true;
        }
    }
    return LS_OK;
}
