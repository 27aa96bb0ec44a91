#include "report/log_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum ls_line_format ls_line_format_of(const char *name)
{
    static const char *const names[] = {
#define X(name, NAME) [LS_LINE_##NAME] = #name,
#include "config/lists/line_formats.def"
    };
    int i = (int)(sizeof names / sizeof *names) - 1;
    while (i > 0 && strcmp(name, names[i]) != 0)
        i--;
    return (enum ls_line_format)i;
}

/* "1/5", or "1" if the number of epochs is unknown. */
static const char *epoch_of(const struct ls_report *r, const char *joint, char text[48])
{
    if (r->epochs > 0)
        snprintf(text, 48, "%" PRId64 "%s%" PRId64, r->epoch + 1, joint, r->epochs);
    else
        snprintf(text, 48, "%" PRId64, r->epoch + 1);
    return text;
}

void ls_line_step(enum ls_line_format format, const struct ls_line_steps *s, char text[LS_LINE_ROOM])
{
    const struct ls_report *step = s->step, *line = s->line, *epoch = s->epoch;
    double n = (double)s->epoch_steps;
    char of[48];
    switch (format) {
    case LS_LINE_PLAIN:
        snprintf(text, LS_LINE_ROOM,
                 "epoch %s  step %" PRId64 "/%" PRId64 "  loss %.4f  top1 %.2f%%  lr %.4g  %.0f samples/s",
                 epoch_of(step, "/", of), step->step_in_epoch, step->steps_per_epoch, line->loss, 100 * line->top1,
                 step->lr, ls_report_speed(line));
        break;
    case LS_LINE_CNTK:
        snprintf(text, LS_LINE_ROOM,
                 " Minibatch[%" PRId64 "-%" PRId64 "]: loss = %.6f * %" PRId64 ", metric = %.2f%% * %" PRId64 ";",
                 s->first, step->step_in_epoch, line->loss, line->samples, 100 * (1 - line->top1), line->samples);
        break;
    case LS_LINE_THESIS:
        snprintf(text, LS_LINE_ROOM,
                 "Epoch: [%" PRId64 "][%" PRId64 "/%" PRId64 "]\tTime %.3f (%.3f)\tData %.3f (%.3f)\t"
                 "Loss %.4f (%.4f)\tAcc@1 %.3f (%.3f)\tAcc@5 %.3f (%.3f)",
                 step->epoch, step->step_in_epoch, step->steps_per_epoch, step->seconds, epoch->seconds / n,
                 step->input_seconds, epoch->input_seconds / n, step->loss, epoch->loss, 100 * step->top1,
                 100 * epoch->top1, 100 * step->top5, 100 * epoch->top5);
        break;
    }
}

void ls_line_epoch(enum ls_line_format format, const struct ls_report *epoch, char text[LS_LINE_ROOM])
{
    char of[48];
    text[0] = 0;
    if (format == LS_LINE_PLAIN)
        snprintf(text, LS_LINE_ROOM, "epoch %s: loss %.4f, top1 %.2f%%, %.1f s at %.0f samples/s (input %.0f%%)",
                 epoch_of(epoch, "/", of), epoch->loss, 100 * epoch->top1, epoch->seconds, ls_report_speed(epoch),
                 epoch->seconds > 0 ? 100 * epoch->input_seconds / epoch->seconds : 0);
    else if (format == LS_LINE_CNTK)
        snprintf(text, LS_LINE_ROOM,
                 "Finished Epoch[%s]: [Training] loss = %.6f * %" PRId64 ", metric = %.2f%% * %" PRId64
                 " %.3fs (%.1f samples/s);",
                 epoch_of(epoch, " of ", of), epoch->loss, epoch->samples, 100 * (1 - epoch->top1), epoch->samples,
                 epoch->seconds, ls_report_speed(epoch));
}

void ls_line_eval(enum ls_line_format format, const struct ls_report *eval, int64_t number, char text[LS_LINE_ROOM])
{
    char broken[64] = "";
    if (eval->broken > 0)
        snprintf(broken, sizeof broken, ", %" PRId64 " broken left out", eval->broken);
    switch (format) {
    case LS_LINE_PLAIN:
        snprintf(text, LS_LINE_ROOM, "evaluation: loss %.4f, top1 %.2f%%, top5 %.2f%%, %" PRId64 " samples in %.2f s%s",
                 eval->loss, 100 * eval->top1, 100 * eval->top5, eval->samples, eval->seconds, broken);
        break;
    case LS_LINE_CNTK:
        snprintf(text, LS_LINE_ROOM,
                 "Finished Evaluation [%" PRId64 "]: Minibatch[1-%" PRId64 "]: metric = %.2f%% * %" PRId64 ";", number,
                 eval->step_in_epoch, 100 * (1 - eval->top1), eval->samples);
        break;
    case LS_LINE_THESIS:
        snprintf(text, LS_LINE_ROOM, " * Acc@1 %.3f Acc@5 %.3f", 100 * eval->top1, 100 * eval->top5);
        break;
    }
}
