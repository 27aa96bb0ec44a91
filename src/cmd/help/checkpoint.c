/* lockstep help checkpoint and help metrics: explain the files that a run writes. */
#include "base/text/help.h"
#include "cmd/help/help.h"
#include "report/metrics/metrics.h"
#include "checkpoint/model_card.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/rundir.h"
#include "checkpoint/state.h"

enum ls_status ls_help_checkpoint(const char *what, FILE *out)
{
    (void)what;
    fprintf(out, "A run directory (--run DIR, or the next free runs/MODEL-DATA-NNN)\n");
    ls_help_rows(ls_rundir_files, 2, out);
    fprintf(out, "\nA checkpoint, RUN/checkpoints/step-NNNNNNNN or RUN/checkpoints/best\n");
    ls_help_rows(ls_checkpoint_files, 2, out);
    putc('\n', out);
    ls_help_text(
        "eval, predict and --resume take a run (its newest checkpoint) or a checkpoint; eval, predict and --init take "
        "a model.safetensors too. It can be copied elsewhere by itself.",
        0, out);
    fprintf(out, "\nMetadata of model.safetensors (texts; lists are JSON in a text)\n");
    ls_help_rows(ls_model_card_keys, 2, out);
    fprintf(out, "\nstate.json\n");
    ls_help_rows(ls_state_keys, 2, out);
    fprintf(out, "\nIn Python\n"
                 "  from safetensors import safe_open\n"
                 "  f = safe_open(\"model.safetensors\", \"pt\")\n"
                 "  f.metadata()[\"lockstep.model\"], f.get_tensor(\"conv1.weight\")\n");
    return LS_OK;
}

enum ls_status ls_help_metrics(const char *what, FILE *out)
{
    (void)what;
    ls_help_text(
        "RUN/metrics.jsonl holds one JSON object a line, for each step, epoch and evaluation in the order in which they "
        "happened. Values that are not finite are null. --resume drops the lines after the checkpoint.",
        0, out);
    fprintf(out, "\nKeys\n");
    ls_help_rows(ls_metrics_keys, 2, out);
    fprintf(out, "\nThe accuracy after each epoch\n"
                 "  jq -r 'select(.kind == \"eval\") | [.epoch, .top1] | @tsv' RUN/metrics.jsonl\n");
    return LS_OK;
}
