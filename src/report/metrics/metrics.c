#include "report/metrics/metrics.h"

#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 32)

const struct ls_help_row ls_metrics_keys[] = {
    {"kind", "step, epoch, eval or rank"},
    {"step", "steps since the run began, this one included"},
    {"epoch", "from 1, as in log.txt"},
    {"samples", "number of samples behind loss, top1 and top5"},
    {"loss", "mean over the samples"},
    {"lr", "learning rate; not of eval"},
    {"top1", "share of samples whose class was the likeliest, 0 to 1"},
    {"top5", "share of samples whose class was among the five likeliest"},
    {"samples_per_s", "samples / seconds"},
    {"seconds", "duration"},
    {"time", "date and time of the end in UTC, to the millisecond"},
    {"input_share", "share of the seconds spent waiting for input"},
    {"loader_threads", "of rank 0, on step and epoch lines"},
    {"compute_share", "share spent on forward and backward"},
    {"wait_share", "share spent waiting for other workers; not of eval"},
    {"update_share", "share spent on updates and everything else; not of eval"},
    {"broken",
     "with --on-bad-sample skip, on epoch and eval lines: samples that could not be read, replaced in training and left out "
     "of evaluation"},
    {"staleness", "with --sync async or cutoff: updates between pull and push of a gradient, mean"},
    {"cutoff_k",
     "with --sync cutoff: gradients that a step counted, the last one closed when rank 0 was answered; mean"},
    {"gpu_utilisation",
     "percent; only if a GPU computes, like the next four: the last sample on step lines, the mean of the "
     "epoch on epoch lines"},
    {"gpu_memory_bytes", "on epoch lines the largest use so far"},
    {"gpu_power_w", "watts"},
    {"gpu_clock_mhz", "MHz"},
    {"gpu_temperature_c", "degrees Celsius"},
    {"rank", "on rank lines, like all below: the process; one line for each, at the end of an epoch and of a job"},
    {"host", "its host"},
    {"steps", "its steps since the rank line before; the seconds are those of these steps"},
    {"input_seconds", "waiting for input"},
    {"compute_seconds", "forward and backward"},
    {"exposed_seconds", "waiting for communication, other than for late ranks"},
    {"late_seconds", "waiting for ranks that had not come to a collective yet"},
    {"update_seconds", "updates and everything else; these five add up to seconds"},
    {"hidden_seconds", "communication behind computing"},
    {"waited_for", "the rank that it waited for longest; -1: none"},
    {"waited_for_seconds", "how long"},
    {"collectives", "calls and bytes of each kind of collective and message within steps, before compression"},
    {"calls", "of a kind"},
    {"bytes", "of a kind"},
    {NULL, NULL},
};

/* Returns the step of a line, or -1 if it is not a line of metrics. */
static int64_t step_of(const json_t *line)
{
    const json_t *step = json_object_get(line, "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

static const char *const kinds[] = {"step", "epoch", "eval"}; /* by enum ls_metrics_kind */

static bool is_kept(const json_t *line, int64_t after, unsigned again)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    for (unsigned k = 0; kind && k < sizeof kinds / sizeof *kinds; k++)
        if (step_of(line) == after && again >> k & 1 && strcmp(kind, kinds[k]) == 0)
            return false;
    return step_of(line) <= after;
}

/* Lines without a time are from a version that counted epochs from 0. */
static enum ls_status put_old_line(struct ls_file_writer *out, json_t *line)
{
    json_int_t epoch = json_integer_value(json_object_get(line, "epoch"));
    json_object_set_new(line, "epoch", json_integer(epoch + 1));
    char *text = json_dumps(line, JSON_REAL_PRECISION(9));
    if (!text)
        return ls_fail(LS_FAILED, "out of memory");
    enum ls_status st = ls_file_writer_put(out, text, strlen(text));
    free(text);
    return st == LS_OK ? ls_file_writer_put(out, "\n", 1) : st;
}

/* Copies the lines up to step `after`. A line without a newline is incomplete and dropped. */
static enum ls_status keep_lines(const char *path, const char *text, size_t size, int64_t after, unsigned again,
                                 struct ls_file_writer *out)
{
    int64_t number = 1;
    for (size_t start = 0; start < size; number++) {
        const char *line = text + start, *newline = memchr(line, '\n', size - start);
        if (!newline)
            break;
        size_t length = (size_t)(newline - line) + 1;
        json_t *object = json_loadb(line, length, 0, NULL);
        enum ls_status st = LS_OK;
        if (step_of(object) < 0)
            ls_warn("%s:%" PRId64 ": not a line of metrics; dropped", path, number);
        else if (is_kept(object, after, again))
            st = json_object_get(object, "time") ? ls_file_writer_put(out, line, length) : put_old_line(out, object);
        json_decref(object);
        LS_TRY(st);
        start += length;
    }
    return LS_OK;
}

static enum ls_status rewrite(const char *path, int64_t after, unsigned again)
{
    char *text = NULL;
    size_t size = 0;
    if (after >= 0 && ls_file_exists(path))
        LS_TRY(ls_file_read(path, LARGEST, &text, &size));
    struct ls_file_writer out;
    enum ls_status st;
    LS_TRY_GOTO(free_text, ls_file_writer_open(&out, path));
    st = keep_lines(path, text, size, after, again, &out);
    if (st == LS_OK)
        st = ls_file_writer_commit(&out);
    else
        ls_file_writer_cancel(&out);
free_text:
    ls_free(text);
    return st;
}

enum ls_status ls_metrics_open(struct ls_metrics *m, const char *path, int64_t after, unsigned again)
{
    *m = (struct ls_metrics){0};
    LS_TRY(rewrite(path, after, again));
    m->path = ls_strdup(path);
    if (!m->path)
        return LS_FAILED;
    enum ls_status st = ls_file_append(path, &m->file);
    if (st != LS_OK) {
        ls_metrics_close(m);
        return st;
    }
    m->flushed = ls_now();
    return LS_OK;
}

/* In UTC, to the millisecond: "2026-03-01T12:34:56.789Z". */
void ls_metrics_put_time(FILE *out, double time)
{
    struct timespec now = {.tv_sec = (time_t)time, .tv_nsec = (long)(1e9 * (time - floor(time)))};
    struct tm utc;
    char text[32] = "";
    if (time == 0)
        clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    fprintf(out, ", \"time\": \"%s.%03ldZ\"", text, now.tv_nsec / 1000000);
}

/* Nine digits restore a float exactly. JSON has no NaN or infinity: they become null. */
void ls_metrics_put_real(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ", \"%s\": %.9g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

void ls_metrics_put_gpu(FILE *out, const struct ls_gpu_state *gpu)
{
    ls_metrics_put_real(out, "gpu_utilisation", gpu->utilisation);
    if (isfinite(gpu->memory))
        fprintf(out, ", \"gpu_memory_bytes\": %.0f", gpu->memory);
    else
        ls_metrics_put_real(out, "gpu_memory_bytes", gpu->memory);
    ls_metrics_put_real(out, "gpu_power_w", gpu->power);
    ls_metrics_put_real(out, "gpu_clock_mhz", gpu->clock);
    ls_metrics_put_real(out, "gpu_temperature_c", gpu->temperature);
}

enum ls_status ls_metrics_flush(struct ls_metrics *m)
{
    errno = 0;
    m->flushed = ls_now();
    if (fflush(m->file) != 0 || ferror(m->file))
        return ls_fail(LS_FAILED, "%s: writing failed%s%s", m->path, errno ? ": " : "", errno ? strerror(errno) : "");
    return LS_OK;
}

enum ls_status ls_metrics_write(struct ls_metrics *m, enum ls_metrics_kind kind, const struct ls_report *r)
{
    FILE *out = m->file;
    bool training = kind != LS_METRICS_EVAL;
    fprintf(out, "{\"kind\": \"%s\", \"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"samples\": %" PRId64, kinds[kind],
            r->step, r->epoch + 1, r->samples);
    ls_metrics_put_real(out, "loss", r->loss);
    if (training)
        ls_metrics_put_real(out, "lr", r->lr);
    ls_metrics_put_real(out, "top1", r->top1);
    ls_metrics_put_real(out, "top5", r->top5);
    ls_metrics_put_real(out, "samples_per_s", ls_report_speed(r));
    ls_metrics_put_real(out, "seconds", r->seconds);
    ls_metrics_put_time(out, 0);
    ls_metrics_put_real(out, "input_share", r->input_seconds / r->seconds);
    ls_metrics_put_real(out, "compute_share", r->compute_seconds / r->seconds);
    if (training)
        ls_metrics_put_real(out, "wait_share", r->wait_seconds / r->seconds);
    if (training)
        ls_metrics_put_real(out, "update_share", r->update_seconds / r->seconds);
    if (r->gradients > 0)
        ls_metrics_put_real(out, "staleness", r->staleness);
    if (r->closed > 0)
        ls_metrics_put_real(out, "cutoff_k", r->cutoff_k);
    if (kind != LS_METRICS_STEP && r->counts_broken)
        fprintf(out, ", \"broken\": %" PRId64, r->broken);
    if (training && r->loader_threads > 0)
        fprintf(out, ", \"loader_threads\": %d", r->loader_threads);
    if (training && r->on_gpu)
        ls_metrics_put_gpu(out, &r->gpu);
    fputs("}\n", out);

    bool due = kind != LS_METRICS_STEP || ls_now() - m->flushed >= 1;
    return due || ferror(out) ? ls_metrics_flush(m) : LS_OK;
}

enum ls_status ls_metrics_sync(struct ls_metrics *m)
{
    if (!m->file)
        return LS_OK;
    LS_TRY(ls_metrics_flush(m));
    if (fdatasync(fileno(m->file)) == 0 || errno == EINVAL)
        return LS_OK;
    return ls_fail(LS_FAILED, "%s: writing failed: %s", m->path, strerror(errno));
}

enum ls_status ls_metrics_close(struct ls_metrics *m)
{
    enum ls_status st = LS_OK;
    if (m->file && fclose(m->file) != 0)
        st = ls_fail(LS_FAILED, "%s: writing failed: %s", m->path, strerror(errno));
    ls_free(m->path);
    *m = (struct ls_metrics){0};
    return st;
}
