/* --tensorboard: event files in RUN/tensorboard. Each start of the run writes a new file. A resumed run begins its file with
 * the event that makes TensorBoard drop the later steps of the files before it. */
#include "base/log.h"
#include "base/memory.h"
#include "report/tensorboard/event_file.h"
#include "report/tensorboard/summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct board {
    struct ls_event_file file;
    struct ls_pb pb;   /* the event that is being made; large enough for a step, so that a step allocates nothing */
    int64_t last_step; /* of the last report */
};

static bool wanted(const struct ls_run_facts *facts)
{
    return facts->o->tensorboard;
}

/* --- the beginning ---------------------------------------------------------------------------------------- */

/* TensorBoard drops what it has read of steps from `step` on. */
static enum ls_status purge(struct board *b, int64_t step)
{
    enum { EVENT_SESSION = 7, SESSION_STATUS = 1, STATUS_START = 1 };
    ls_event_begin(&b->pb, step);
    size_t mark = ls_pb_open(&b->pb, EVENT_SESSION);
    ls_pb_whole(&b->pb, SESSION_STATUS, STATUS_START);
    ls_pb_close(&b->pb, mark);
    return ls_event_file_put(&b->file, &b->pb, false);
}

/* The configuration as a block of code: Markdown takes lines that begin with four spaces for one. Freed by free(). */
static char *config_text(const struct ls_options *o)
{
    char *text = NULL, *indented = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool good = out && ls_options_write(o, LS_CMD_TRAIN, out) == LS_OK;
    good = out && fclose(out) == 0 && good;
    out = good ? open_memstream(&indented, &size) : NULL;
    for (char *line = text, *end; out && *line; line = end) {
        end = line + strcspn(line, "\n");
        fprintf(out, "    %.*s\n", (int)(end - line), line);
        end += *end == '\n';
    }
    good = out && fclose(out) == 0;
    free(text);
    if (good)
        return indented;
    free(indented);
    ls_fail(LS_FAILED, "the configuration cannot be formatted: out of memory");
    return NULL;
}

static enum ls_status describe(struct board *b, const struct ls_run_facts *facts)
{
    char *config = config_text(facts->o);
    if (!config)
        return LS_FAILED;
    size_t mark = ls_summary_begin(&b->pb, facts->step);
    ls_summary_text(&b->pb, "configuration", config);
    ls_summary_text(&b->pb, "identity", facts->identity);
    ls_summary_hparams(&b->pb, facts->o);
    ls_summary_end(&b->pb, mark);
    free(config);
    return ls_event_file_put(&b->file, &b->pb, true);
}

static enum ls_status release(struct board *b, enum ls_status st)
{
    enum ls_status closed = ls_event_file_close(&b->file);
    ls_pb_release(&b->pb);
    ls_free(b);
    return st != LS_OK ? st : closed;
}

static enum ls_status open_board(const struct ls_run_facts *facts, void **self)
{
    struct board *b = ls_alloc(1, sizeof *b);
    char *folder = ls_format("%s/tensorboard", facts->run);
    bool others = false;
    if (!b || !folder) {
        ls_free(b);
        ls_free(folder);
        return LS_FAILED;
    }
    b->last_step = facts->step;
    enum ls_status st = ls_event_file_open(&b->file, folder, &others);
    ls_free(folder);
    if (st == LS_OK && others)
        st = purge(b, facts->resumed ? facts->step + 1 : 0);
    if (st == LS_OK)
        st = describe(b, facts);
    if (st != LS_OK)
        return release(b, st);
    *self = b;
    return LS_OK;
}

/* --- the run ---------------------------------------------------------------------------------------------- */

static void put_results(struct ls_pb *pb, const char *const tags[4], const struct ls_report *r)
{
    ls_summary_scalar(pb, tags[0], r->loss);
    ls_summary_scalar(pb, tags[1], r->top1);
    ls_summary_scalar(pb, tags[2], r->top5);
    ls_summary_scalar(pb, tags[3], ls_report_speed(r));
}

static void put_step(struct ls_pb *pb, const struct ls_report *r)
{
    ls_summary_scalar(pb, "train/lr", r->lr);
    if (r->seconds > 0) {
        ls_summary_scalar(pb, "share/input", r->input_seconds / r->seconds);
        ls_summary_scalar(pb, "share/compute", r->compute_seconds / r->seconds);
        ls_summary_scalar(pb, "share/wait", r->wait_seconds / r->seconds);
        ls_summary_scalar(pb, "share/update", r->update_seconds / r->seconds);
    }
    if (r->gradients > 0)
        ls_summary_scalar(pb, "train/staleness", r->staleness);
    if (r->closed > 0)
        ls_summary_scalar(pb, "train/cutoff_k", r->cutoff_k);
    if (!r->on_gpu)
        return;
    ls_summary_scalar(pb, "gpu/utilisation", r->gpu.utilisation);
    ls_summary_scalar(pb, "gpu/memory_bytes", r->gpu.memory);
    ls_summary_scalar(pb, "gpu/power_w", r->gpu.power);
    ls_summary_scalar(pb, "gpu/clock_mhz", r->gpu.clock);
    ls_summary_scalar(pb, "gpu/temperature_c", r->gpu.temperature);
}

static enum ls_status report(void *self, enum ls_metrics_kind kind, const struct ls_report *r)
{
    static const char *const step[] = {"train/loss", "train/top1", "train/top5", "train/samples_per_s"},
                             *const epoch[] = {"epoch/loss", "epoch/top1", "epoch/top5", "epoch/samples_per_s"},
                             *const eval[] = {"eval/loss", "eval/top1", "eval/top5", "eval/samples_per_s"};
    struct board *b = self;
    size_t mark = ls_summary_begin(&b->pb, r->step);
    put_results(&b->pb, kind == LS_METRICS_STEP ? step : kind == LS_METRICS_EPOCH ? epoch : eval, r);
    if (kind == LS_METRICS_STEP)
        put_step(&b->pb, r);
    ls_summary_end(&b->pb, mark);
    b->last_step = r->step;
    return ls_event_file_put(&b->file, &b->pb, kind != LS_METRICS_STEP);
}

static enum ls_status values(void *self, int64_t step, const char *name, const float *of, int64_t count)
{
    struct board *b = self;
    char *tag = ls_format("weights/%s", name);
    if (!tag)
        return LS_FAILED;
    size_t mark = ls_summary_begin(&b->pb, step);
    ls_summary_histogram(&b->pb, tag, of, count);
    ls_summary_end(&b->pb, mark);
    ls_free(tag);
    return ls_event_file_put(&b->file, &b->pb, false);
}

static enum ls_status image(void *self, const struct ls_observed_image *of)
{
    struct board *b = self;
    char *tag = ls_format("input/%d-%s", of->number, of->label);
    if (!tag)
        return LS_FAILED;
    size_t mark = ls_summary_begin(&b->pb, 0);
    enum ls_status st = ls_summary_image(&b->pb, tag, of);
    ls_summary_end(&b->pb, mark);
    ls_free(tag);
    return st == LS_OK ? ls_event_file_put(&b->file, &b->pb, true) : st;
}

static enum ls_status sync_board(void *self)
{
    struct board *b = self;
    return ls_event_file_sync(&b->file);
}

/* A run that was stopped or failed can be resumed; TensorBoard keeps the first end that it reads. So the end is recorded only
 * if it is final. */
static enum ls_status close_board(void *self, enum ls_status ended)
{
    struct board *b = self;
    enum ls_status st = LS_OK;
    if (ended == LS_OK || ended == LS_DIVERGED) {
        size_t mark = ls_summary_begin(&b->pb, b->last_step);
        ls_summary_ended(&b->pb, ended == LS_OK);
        ls_summary_end(&b->pb, mark);
        st = ls_event_file_put(&b->file, &b->pb, true);
    }
    return release(b, st);
}

const struct ls_observer_ops ls_observer_tensorboard = {.wanted = wanted,
                                                        .open = open_board,
                                                        .report = report,
                                                        .values = values,
                                                        .image = image,
                                                        .sync = sync_board,
                                                        .close = close_board};
