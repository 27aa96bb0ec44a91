#include "report/metrics/rank_line.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

/* ls_rank_straggler */
#define SLOW_SHARE 0.1
#define SLOW_SECONDS 0.5

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

struct ls_rank_line ls_rank_line_of(const struct ls_report *sum, int64_t steps, const double *waited_for, int size)
{
    struct ls_rank_line line = {
        .steps = steps,
        .samples = sum->samples,
        .loss = sum->samples > 0 ? sum->loss : NAN,
        .seconds = sum->seconds,
        .input = sum->input_seconds,
        .compute = sum->compute_seconds,
        .exposed = sum->wait_seconds - sum->late_seconds,
        .late = sum->late_seconds,
        .update = sum->update_seconds,
        .hidden = sum->hidden_seconds,
        .waited_for = -1,
    };
    for (int rank = 0; waited_for && rank < size; rank++)
        if (waited_for[rank] > line.waited_for_seconds) {
            line.waited_for = rank;
            line.waited_for_seconds = waited_for[rank];
        }
    return line;
}

void ls_rank_line_add(struct ls_rank_line *sum, const struct ls_rank_line *line)
{
    struct ls_rank_line before = *sum;
    *sum = *line; /* first stays what it was from the first line on */
    if (before.samples > 0 && line->samples > 0)
        sum->loss = (before.loss * (double)before.samples + line->loss * (double)line->samples) /
                    (double)(before.samples + line->samples);
    else if (before.samples > 0)
        sum->loss = before.loss;
    sum->samples += before.samples;
    sum->steps += before.steps;
    sum->seconds += before.seconds;
    sum->input += before.input;
    sum->compute += before.compute;
    sum->exposed += before.exposed;
    sum->late += before.late;
    sum->update += before.update;
    sum->hidden += before.hidden;
    if (before.waited_for_seconds > line->waited_for_seconds) {
        sum->waited_for = before.waited_for;
        sum->waited_for_seconds = before.waited_for_seconds;
    }
    for (int k = 0; k < LS_RANK_KINDS; k++) {
        sum->kinds[k].calls += before.kinds[k].calls;
        sum->kinds[k].bytes += before.kinds[k].bytes;
    }
}

double ls_rank_line_pace(const struct ls_rank_line *line)
{
    if (line->steps > 1)
        return (line->seconds - line->first) / (double)(line->steps - 1);
    return line->steps > 0 ? line->seconds : 0;
}

int ls_rank_straggler(const struct ls_rank_line *totals, const double *waited, int size)
{
    int worst = -1;
    double most = SLOW_SECONDS;
    for (int rank = 0; rank < size && size > 1; rank++) {
        double lost = waited[rank] / (size - 1) - totals[rank].late;
        if (lost > SLOW_SHARE * totals[rank].seconds && lost > most) {
            worst = rank;
            most = lost;
        }
    }
    return worst;
}

/* --- the line ----------------------------------------------------------------------------------------------------- */

/* A host that is not UTF-8 becomes "". */
static void put_text(FILE *out, const char *name, const char *value)
{
    json_t *text = json_string(value);
    fprintf(out, ", \"%s\": ", name);
    if (!text || json_dumpf(text, out, JSON_ENCODE_ANY) != 0)
        fputs("\"\"", out);
    json_decref(text);
}

static void put_kinds(FILE *out, const char *const names[LS_RANK_KINDS], const struct ls_rank_line *line)
{
    const char *joint = "";
    fputs(", \"collectives\": {", out);
    for (int k = 0; k < LS_RANK_KINDS; k++) {
        if (line->kinds[k].calls == 0)
            continue;
        fprintf(out, "%s\"%s\": {\"calls\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", joint, names[k],
                line->kinds[k].calls, line->kinds[k].bytes);
        joint = ", ";
    }
    fputc('}', out);
}

enum ls_status ls_rank_line_write(struct ls_metrics *m, int64_t step, int64_t epoch, int rank, const char *host,
                                  const char *const names[LS_RANK_KINDS], const struct ls_rank_line *line)
{
    FILE *out = m->file;
    fprintf(out, "{\"kind\": \"rank\", \"step\": %" PRId64 ", \"epoch\": %" PRId64, step, epoch + 1);
    ls_metrics_put_time(out, 0);
    fprintf(out, ", \"rank\": %d", rank);
    put_text(out, "host", host);
    fprintf(out, ", \"steps\": %" PRId64, line->steps);
    ls_metrics_put_real(out, "seconds", line->seconds);
    ls_metrics_put_real(out, "input_seconds", line->input);
    ls_metrics_put_real(out, "compute_seconds", line->compute);
    ls_metrics_put_real(out, "exposed_seconds", line->exposed);
    ls_metrics_put_real(out, "hidden_seconds", line->hidden);
    ls_metrics_put_real(out, "late_seconds", line->late);
    fprintf(out, ", \"waited_for\": %" PRId64, line->waited_for);
    ls_metrics_put_real(out, "waited_for_seconds", line->waited_for_seconds);
    ls_metrics_put_real(out, "update_seconds", line->update);
    put_kinds(out, names, line);
    if (line->on_gpu)
        ls_metrics_put_gpu(out, &line->gpu);
    fputs("}\n", out);
    return ls_metrics_flush(m);
}
