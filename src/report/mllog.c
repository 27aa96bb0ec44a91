/* --mllog: lines of MLPerf's logging format, `:::MLLOG {json}`. They go to RUN/mllog.txt, to a file, or to standard output. A
 * resumed run goes on with its mllog.txt: the lines of later steps and the end are removed first, so that the file reads like
 * that of an uninterrupted run. Lines are appended to any other file. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/observer.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 28)
static const char token[] = ":::MLLOG ";

struct mllog {
    FILE *file;      /* owned; NULL: standard output */
    char *path;      /* owned; NULL: standard output */
    int64_t begun;   /* epochs whose start is recorded */
    int64_t latest;  /* time of the last line, so that times never go back */
    int64_t stepped; /* time of the last step; 0: none yet */
    int64_t step, epoch;
};

static bool to_run(const struct ls_options *o)
{
    return !o->mllog || strcmp(o->mllog, "auto") == 0;
}

static char *path_of(const struct ls_run_facts *facts)
{
    return to_run(facts->o) ? ls_format("%s/mllog.txt", facts->run) : ls_strdup(facts->o->mllog);
}

/* A resumed run goes on with the file that it has. */
static bool wanted(const struct ls_run_facts *facts)
{
    char *path = facts->o->mllog || !facts->resumed ? NULL : path_of(facts);
    bool there = path && ls_file_exists(path);
    ls_free(path);
    return facts->o->mllog || there;
}

/* --- lines ------------------------------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static enum ls_status put_line(struct mllog *m, const char *line)
{
    if (!m->path) {
        ls_print("%s", line);
        return LS_OK;
    }
    errno = 0;
    fprintf(m->file, "%s\n", line);
    if (fflush(m->file) == 0 && !ferror(m->file))
        return LS_OK;
    return ls_fail(LS_FAILED, "%s: writing failed%s%s", m->path, errno ? ": " : "", errno ? strerror(errno) : "");
}

/* An event at that time. value: JSON. status: a key of the metadata; NULL: none. */
static enum ls_status put(struct mllog *m, const char *type, const char *key, int64_t time, const char *status,
                          const char *value)
{
    char line[512], more[64] = "";
    m->latest = time > m->latest ? time : m->latest;
    if (status)
        snprintf(more, sizeof more, ", \"status\": \"%s\"", status);
    snprintf(line, sizeof line,
             "%s{\"namespace\": \"\", \"time_ms\": %" PRId64
             ", \"event_type\": \"%s\", \"key\": \"%s\", \"value\": %s, \"metadata\": {\"epoch_num\": %" PRId64
             ", \"step_num\": %" PRId64 "%s}}",
             token, m->latest, type, key, value, m->epoch, m->step, more);
    return put_line(m, line);
}

static enum ls_status start(struct mllog *m, const char *key, int64_t time)
{
    return put(m, "INTERVAL_START", key, time, NULL, "null");
}

static enum ls_status stop(struct mllog *m, const char *key, int64_t time)
{
    return put(m, "INTERVAL_END", key, time, NULL, "null");
}

static enum ls_status fact(struct mllog *m, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum ls_status fact(struct mllog *m, const char *key, const char *format, ...)
{
    char value[128];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    return put(m, "POINT_IN_TIME", key, now_ms(), NULL, value);
}

/* --- the beginning ---------------------------------------------------------------------------------------- */

static enum ls_status begin(struct mllog *m, const struct ls_run_facts *facts)
{
    const struct ls_options *o = facts->o;
    LS_TRY(start(m, "init_start", now_ms() - (int64_t)(1000 * facts->opening)));
    LS_TRY(fact(m, "seed", "%" PRIu64, o->seed));
    LS_TRY(fact(m, "global_batch_size", "%" PRId64, o->batch));
    LS_TRY(fact(m, "gradient_accumulation_steps", "%" PRId64, o->accumulate));
    LS_TRY(fact(m, "opt_name", "\"%s\"", o->optimizer));
    LS_TRY(fact(m, "opt_base_learning_rate", "%.9g", facts->lr));
    LS_TRY(fact(m, "opt_weight_decay", "%.9g", o->weight_decay));
    LS_TRY(fact(m, "train_samples", "%" PRId64, facts->train_samples));
    LS_TRY(fact(m, "eval_samples", "%" PRId64, facts->eval_samples));
    LS_TRY(fact(m, "number_of_ranks", "%d", facts->ranks));
    LS_TRY(stop(m, "init_stop", now_ms()));
    return start(m, "run_start", now_ms());
}

/* Whether a line of the file before stays: it is complete, not the end of the run, and not of a later step. */
static bool stays(const char *line, size_t length, int64_t after)
{
    size_t skip = sizeof token - 1;
    json_t *o =
        length > skip && strncmp(line, token, skip) == 0 ? json_loadb(line + skip, length - skip, 0, NULL) : NULL;
    const char *key = json_string_value(json_object_get(o, "key"));
    const json_t *step = json_object_get(json_object_get(o, "metadata"), "step_num");
    bool keep = key && strcmp(key, "run_stop") != 0 && json_is_integer(step) && json_integer_value(step) <= after;
    json_decref(o);
    return keep;
}

/* Keeps the lines up to step `after`; -1: none. *kept: the number of lines. */
static enum ls_status cut(const char *path, int64_t after, int64_t *kept)
{
    struct ls_file_writer out;
    char *text = NULL;
    size_t size = 0;
    if (ls_file_exists(path))
        LS_TRY(ls_file_read(path, LARGEST, &text, &size));
    enum ls_status st = ls_file_writer_open(&out, path);
    bool opened = st == LS_OK;
    for (size_t at = 0; st == LS_OK && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        if (!end)
            break;
        size_t length = (size_t)(end - text) - at + 1;
        if (stays(text + at, length, after)) {
            st = ls_file_writer_put(&out, text + at, length);
            ++*kept;
        }
        at += length;
    }
    if (st == LS_OK)
        st = ls_file_writer_commit(&out);
    else if (opened)
        ls_file_writer_cancel(&out);
    ls_free(text);
    return st;
}

static enum ls_status close_file(struct mllog *m, enum ls_status st)
{
    errno = 0;
    if (m->file && fclose(m->file) != 0 && st == LS_OK)
        st = ls_fail(LS_FAILED, "%s: writing failed: %s", m->path, strerror(errno));
    ls_free(m->path);
    ls_free(m);
    return st;
}

static enum ls_status open_file(struct mllog *m, const struct ls_run_facts *facts, int64_t *kept)
{
    if (!to_run(facts->o) && strcmp(facts->o->mllog, "-") == 0)
        return LS_OK;
    m->path = path_of(facts);
    if (!m->path)
        return LS_FAILED;
    if (to_run(facts->o))
        LS_TRY(cut(m->path, facts->resumed ? facts->step : -1, kept));
    return ls_file_append(m->path, &m->file);
}

static enum ls_status open_mllog(const struct ls_run_facts *facts, void **self)
{
    struct mllog *m = ls_alloc(1, sizeof *m);
    int64_t kept = 0;
    if (!m)
        return LS_FAILED;
    m->step = facts->step;
    m->epoch = facts->epochs_begun;
    enum ls_status st = open_file(m, facts, &kept);
    if (st == LS_OK && kept == 0)
        st = begin(m, facts);
    if (st != LS_OK)
        return close_file(m, st);
    m->begun = kept > 0 ? facts->epochs_begun : 0;
    *self = m;
    return LS_OK;
}

/* --- the run ---------------------------------------------------------------------------------------------- */

static enum ls_status report_step(struct mllog *m, const struct ls_report *r)
{
    m->stepped = now_ms();
    if (r->epoch < m->begun)
        return LS_OK;
    m->begun = r->epoch + 1;
    return start(m, "epoch_start", m->stepped - (int64_t)(1000 * r->seconds));
}

static enum ls_status report_eval(struct mllog *m, const struct ls_report *r)
{
    LS_TRY(start(m, "eval_start", now_ms() - (int64_t)(1000 * r->seconds)));
    if (isfinite(r->top1))
        LS_TRY(fact(m, "eval_accuracy", "%.9g", r->top1));
    return stop(m, "eval_stop", now_ms());
}

/* The report of an epoch comes after its evaluation; the epoch ended with its last step. */
static enum ls_status report(void *self, enum ls_metrics_kind kind, const struct ls_report *r)
{
    struct mllog *m = self;
    m->step = r->step;
    m->epoch = r->epoch + 1;
    if (kind == LS_METRICS_STEP)
        return report_step(m, r);
    if (kind == LS_METRICS_EPOCH)
        return stop(m, "epoch_stop", m->stepped ? m->stepped : now_ms());
    return report_eval(m, r);
}

static enum ls_status sync_mllog(void *self)
{
    struct mllog *m = self;
    if (!m->path || fdatasync(fileno(m->file)) == 0 || errno == EINVAL)
        return LS_OK;
    return ls_fail(LS_FAILED, "%s: writing failed: %s", m->path, strerror(errno));
}

static enum ls_status close_mllog(void *self, enum ls_status ended)
{
    struct mllog *m = self;
    const char *status = ended == LS_OK ? "success" : "aborted";
    return close_file(m, put(m, "INTERVAL_END", "run_stop", now_ms(), status, "null"));
}

const struct ls_observer_ops ls_observer_mllog = {
    .wanted = wanted, .open = open_mllog, .report = report, .sync = sync_mllog, .close = close_mllog};
