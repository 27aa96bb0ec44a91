/* lockstep plan --parallel pipeline:S: what each process of a pipeline would have. */
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "cmd/plan_stages.h"
#include "exec/pipeline/pipeline.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <stdio.h>

static enum ls_status predict(const struct ls_options *o, const struct ls_model_size *size, const char *plan, int rank,
                              struct ls_stage_about *about)
{
    struct ls_engine e = {0};
    unsigned uses = LS_ENGINE_TRAIN | LS_ENGINE_PREDICT | LS_ENGINE_RANK * (unsigned)rank;
    LS_TRY(ls_engine_open(&e, o, NULL, size, plan, uses));
    ls_pipeline_describe(&e, about);
    ls_engine_close(&e);
    return LS_OK;
}

static double mib(size_t bytes)
{
    return (double)bytes / 1048576;
}

static enum ls_status print_table(const struct ls_options *o, const struct ls_stage_about *all, int stages)
{
    static const char *const headings[] = {"stage",       "from layer", "work",    "parameters",   "state MiB",
                                           "activations", "gradients",  "buffers", "together MiB", "sends MiB"};
    struct ls_table t;
    int64_t passes = o->replicas * o->accumulate;
    ls_table_init(&t, "rlrrrrrrrr", headings);
    for (int i = 0; i < stages; i++) {
        const struct ls_stage_about *a = &all[i];
        ls_table_row(&t);
        ls_table_cell(&t, "%d", i);
        ls_table_cell(&t, "%s", a->first);
        ls_table_cell(&t, "%.1f%%", 100 * a->share);
        ls_table_cell(&t, "%" PRId64, a->parameters);
        ls_table_cell(&t, "%.1f", mib(a->store));
        ls_table_cell(&t, "%" PRId64 " x %.1f", a->lanes, mib(a->arena));
        ls_table_cell(&t, "%.1f", mib(a->grads));
        ls_table_cell(&t, "%.1f", mib(a->buffers));
        ls_table_cell(&t, "%.1f", mib(ls_stage_bytes(a)));
        ls_table_cell(&t, "%.2f", mib(a->travel));
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    printf("\n%d stages, %" PRId64
           " passes a step: at least %.1f%% of the time is idle. A stage sends that much a pass.\n",
           stages, passes, 100.0 * (stages - 1) / (double)(passes + stages - 1));
    return st;
}

static enum ls_status print_json(const struct ls_options *o, const struct ls_stage_about *all, int stages)
{
    json_t *list = json_array();
    for (int i = 0; i < stages; i++) {
        const struct ls_stage_about *a = &all[i];
        json_array_append_new(list, json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "first_layer",
                                              a->first, "work", a->share, "parameters", (json_int_t)a->parameters,
                                              "passes_at_once", (json_int_t)a->lanes, "store_bytes",
                                              (json_int_t)a->store, "arena_bytes", (json_int_t)a->arena, "grad_bytes",
                                              (json_int_t)a->grads, "buffer_bytes", (json_int_t)a->buffers, "bytes",
                                              (json_int_t)ls_stage_bytes(a), "sent_bytes", (json_int_t)a->travel));
    }
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "kind", "plan", "model", o->model, "parallel", o->parallel, "batch",
                  (json_int_t)o->batch, "passes", (json_int_t)(o->replicas * o->accumulate), "stages", list);
    int bad = !out || ls_json_print(out, JSON_INDENT(1)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the plan cannot be written to standard output") : LS_OK;
}

enum ls_status ls_plan_stages(const struct ls_options *o, const struct ls_model_size *size, const char *plan)
{
    struct ls_mesh mesh;
    LS_TRY(ls_mesh_parse(o->parallel, ls_mesh_size(o->parallel), 0, &mesh));
    int stages = mesh.axes[LS_PARALLEL_PIPELINE].size;
    struct ls_stage_about *all = ls_alloc((size_t)stages, sizeof *all);
    enum ls_status st = all ? LS_OK : LS_FAILED;
    for (int i = 0; i < stages && st == LS_OK; i++)
        st = predict(o, size, plan, i, &all[i]);
    if (st == LS_OK)
        st = o->json ? print_json(o, all, stages) : print_table(o, all, stages);
    ls_free(all);
    return st;
}
