/* Rules about what is missing or damaged in the files of a run, and how it ended. */
#include "cmd/report/findings/findings.h"

#include <inttypes.h>

static void say_state(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    if (v->is_running)
        ls_remark(r, LS_REMARK_NOTE, run, "This run is still running; the page shows it up to step %" PRId64 ".",
                  v->last_step);
    else if (v->has_log && v->exit_code == -1) {
        ls_remark(r, LS_REMARK_WARNING, run, "This run ended without a word: it was killed, or the machine failed.");
        ls_remark_advise(r, "lockstep train --run %s --resume", v->path);
    } else if (v->exit_code == 75)
        ls_remark(r, LS_REMARK_NOTE, run, "This run was stopped after saving, at step %" PRId64 "; --resume goes on.",
                  v->last_step);
    else if (v->exit_code > 0 && v->exit_code != 5)
        ls_remark(r, LS_REMARK_BAD, run, "This run failed with exit code %d; the end of log.txt says why.",
                  v->exit_code);
}

void ls_findings_files(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    const struct ls_metrics_tally *t = &v->tally;
    say_state(v, run, r);
    if (!v->has_config)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "config.yaml is missing or cannot be read: the options of this run are unknown.");
    if (!v->has_log)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "log.txt is missing: model, hardware and the end of this run are unknown.");
    if (!v->has_metrics)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "metrics.jsonl is missing or has no metrics yet: there is nothing to plot.");
    if (t->broken > 0)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "metrics.jsonl is damaged: %" PRId64 " of %" PRId64 " lines are left out, line %" PRId64 " first.",
                  t->broken, t->lines, t->first_broken);
    if (t->is_cut && !v->is_running)
        ls_remark(r, LS_REMARK_NOTE, run, "The last line of metrics.jsonl is incomplete and left out.");
    if (t->other > 0)
        ls_remark(r, LS_REMARK_NOTE, run,
                  "%" PRId64 " lines of metrics.jsonl are of a kind that this version does not know.", t->other);
    if (v->old_lines > 0)
        ls_remark(r, LS_REMARK_NOTE, run,
                  "%" PRId64 " lines of metrics.jsonl are from an older version: they have no time of day.",
                  v->old_lines);
    if (v->has_metrics && v->n_steps == 0)
        ls_remark(r, LS_REMARK_NOTE, run, "metrics.jsonl has no lines of steps: curves have one point an epoch.");
    if (v->has_metrics && v->n_evals == 0 && v->diverged_step < 0)
        ls_remark(r, LS_REMARK_NOTE, run, "This run was not evaluated: there are no validation curves.");
}
