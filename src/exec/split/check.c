/* What does not go with split layers. */
#include "exec/split/split.h"
#include "base/log.h"

#include <string.h>

/* Does the optimizer update each value by itself? */
static bool by_value(const char *optimizer)
{
    static const struct {
        const char *name;
        bool norms;
    } list[] = {
#define X(name, least, most, norms) {#name, norms},
#include "config/lists/optimizers.def"
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(optimizer, list[i].name) == 0)
            return !list[i].norms;
    return false;
}

enum ls_status ls_split_check(const struct ls_options *o, const struct ls_engine *e)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_DENSE];
    if (axis->size < 2)
        return LS_OK;
    if (e->mesh.axes[LS_PARALLEL_PIPELINE].size > 1)
        return ls_fail(
            LS_USAGE,
            "--parallel %s: dense does not go with pipeline: workers that share layers run their passes side by "
            "side, stages one after the other, and large dense layers stand in one or two stages; use "
            "data:D,dense:N or data:D,pipeline:S",
            o->parallel);
    if (axis->at)
        return ls_fail(LS_USAGE, "--parallel %s: dense splits every large layer; leave out what follows '@'",
                       o->parallel);
    int most = ls_split_most(&e->backend->split, LS_SPLIT_CHUNKS);
    if (axis->size > most)
        return ls_fail(
            LS_USAGE,
            "--parallel %s: at most %d workers share a layer with --backend %s; use groups of fewer workers, as in "
            "data:%d,dense:%d",
            o->parallel, most, e->backend->name, (axis->size + most - 1) / most, most);
    if (strcmp(o->sync, "overlap") != 0 && strcmp(o->sync, "allreduce") != 0)
        return ls_fail(LS_USAGE,
                       "--parallel dense:%d with --sync %s: all workers take part in each step, whose other gradients "
                       "they add at once; use --sync overlap or allreduce",
                       axis->size, o->sync);
    if (strcmp(o->collective, "nccl") == 0)
        return ls_fail(
            LS_USAGE,
            "--parallel dense:%d with --collective nccl: workers exchange values in the middle of a pass; leave "
            "--collective out",
            axis->size);
    if (strcmp(o->compress, "none") != 0)
        return ls_fail(
            LS_USAGE,
            "--parallel dense:%d with --compress %s: gradients of split layers do not travel and would not be "
            "compressed, so results would depend on the layout; leave it out",
            axis->size, o->compress);
    if (!by_value(o->optimizer))
        return ls_fail(
            LS_USAGE,
            "--parallel dense:%d with --optimizer %s: it updates a layer as a whole, of which no worker has all "
            "rows; use sgd or adamw",
            axis->size, o->optimizer);
    if (o->bn_samples > 0)
        return ls_fail(LS_USAGE, "--parallel dense:%d with --bn-samples: passes that only measure are not divided",
                       axis->size);
    return LS_OK;
}
