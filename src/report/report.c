#include "report/report.h"

static double mean(double a, int64_t of_a, double b, int64_t of_b)
{
    if (of_a == 0 || of_b == 0) /* a mean over no samples may have any value */
        return of_b == 0 ? a : b;
    return (a * (double)of_a + b * (double)of_b) / (double)(of_a + of_b);
}

void ls_report_add(struct ls_report *sum, const struct ls_report *step)
{
    struct ls_report before = *sum;
    *sum = *step;
    sum->samples += before.samples;
    sum->loss = mean(before.loss, before.samples, step->loss, step->samples);
    sum->top1 = mean(before.top1, before.samples, step->top1, step->samples);
    sum->top5 = mean(before.top5, before.samples, step->top5, step->samples);
    sum->broken += before.broken;
    sum->gradients += before.gradients;
    sum->staleness = mean(before.staleness, before.gradients, step->staleness, step->gradients);
    sum->closed += before.closed;
    sum->cutoff_k = mean(before.cutoff_k, before.closed, step->cutoff_k, step->closed);
    sum->seconds += before.seconds;
    sum->input_seconds += before.input_seconds;
    sum->compute_seconds += before.compute_seconds;
    sum->update_seconds += before.update_seconds;
    sum->wait_seconds += before.wait_seconds;
    sum->late_seconds += before.late_seconds;
    sum->hidden_seconds += before.hidden_seconds;
}

double ls_report_speed(const struct ls_report *r)
{
    return r->seconds > 0 ? (double)r->samples / r->seconds : 0;
}
