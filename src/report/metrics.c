#include "report/metrics.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define LARGEST ((size_t)1 << 32)

/* The step of one line, or -1 when it is not a line of ours. */
static int64_t step_of(const char *line, size_t length)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    json_t *step = json_object_get(object, "step");
    int64_t number = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(object);
    return number;
}

/* Copy the lines that belong to the story so far. The last one has no newline when a crash tore it. */
static enum ls_status keep_lines(const char *path, const char *text, size_t size, int64_t after,
                                 struct ls_file_writer *out)
{
    int64_t number = 1;
    for (size_t start = 0; start < size; number++) {
        const char *line = text + start, *newline = memchr(line, '\n', size - start);
        if (!newline)
            break;
        size_t length = (size_t)(newline - line) + 1;
        int64_t step = step_of(line, length);
        if (step < 0)
            ls_warn("%s:%" PRId64 ": not a line of metrics; dropped", path, number);
        else if (step <= after)
            LS_TRY(ls_file_writer_put(out, line, length));
        start += length;
    }
    return LS_OK;
}

static enum ls_status rewrite(const char *path, int64_t after)
{
    char *text = NULL;
    size_t size = 0;
    if (after >= 0 && ls_file_exists(path))
        LS_TRY(ls_file_read(path, LARGEST, &text, &size));
    struct ls_file_writer out;
    enum ls_status st;
    LS_TRY_GOTO(free_text, ls_file_writer_open(&out, path));
    st = keep_lines(path, text, size, after, &out);
    if (st == LS_OK)
        st = ls_file_writer_commit(&out);
    else
        ls_file_writer_cancel(&out);
free_text:
    ls_free(text);
    return st;
}

enum ls_status ls_metrics_open(struct ls_metrics *m, const char *path, int64_t after)
{
    *m = (struct ls_metrics){0};
    LS_TRY(rewrite(path, after));
    m->path = ls_strdup(path);
    if (!m->path)
        return LS_FAILED;
    m->file = fopen(path, "ae");
    if (!m->file) {
        enum ls_status st = ls_fail(LS_FAILED, "%s: cannot be opened for writing: %s", path, strerror(errno));
        ls_metrics_close(m);
        return st;
    }
    m->flushed = ls_now();
    return LS_OK;
}

/* Nine digits bring a float back exactly; JSON has no word for what is not finite. */
static void put_real(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ", \"%s\": %.9g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

static void put_gpu(FILE *out, const struct ls_gpu_state *gpu)
{
    put_real(out, "gpu_utilisation", gpu->utilisation);
    if (isfinite(gpu->memory))
        fprintf(out, ", \"gpu_memory_bytes\": %.0f", gpu->memory);
    else
        put_real(out, "gpu_memory_bytes", gpu->memory);
    put_real(out, "gpu_power_w", gpu->power);
    put_real(out, "gpu_clock_mhz", gpu->clock);
    put_real(out, "gpu_temperature_c", gpu->temperature);
}

enum ls_status ls_metrics_write(struct ls_metrics *m, enum ls_metrics_kind kind, const struct ls_report *r)
{
    static const char *const names[] = {"step", "epoch", "eval"};
    FILE *out = m->file;
    bool training = kind != LS_METRICS_EVAL;
    fprintf(out, "{\"kind\": \"%s\", \"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"samples\": %" PRId64, names[kind],
            r->step, r->epoch, r->samples);
    put_real(out, "loss", r->loss);
    if (training)
        put_real(out, "lr", r->lr);
    put_real(out, "top1", r->top1);
    put_real(out, "top5", r->top5);
    put_real(out, "samples_per_s", ls_report_speed(r));
    put_real(out, "seconds", r->seconds);
    put_real(out, "input_share", r->input_seconds / r->seconds);
    put_real(out, "compute_share", r->compute_seconds / r->seconds);
    if (training)
        put_real(out, "wait_share", r->wait_seconds / r->seconds);
    if (training)
        put_real(out, "update_share", r->update_seconds / r->seconds);
    if (r->gradients > 0)
        put_real(out, "staleness", r->staleness);
    if (training && r->loader_threads > 0)
        fprintf(out, ", \"loader_threads\": %d", r->loader_threads);
    if (training && r->on_gpu)
        put_gpu(out, &r->gpu);
    fputs("}\n", out);

    double now = ls_now();
    bool due = kind != LS_METRICS_STEP || now - m->flushed >= 1;
    if (due)
        m->flushed = now;
    errno = 0;
    if ((due && fflush(out) != 0) || ferror(out))
        return ls_fail(LS_FAILED, "%s: writing failed%s%s", m->path, errno ? ": " : "", errno ? strerror(errno) : "");
    return LS_OK;
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
