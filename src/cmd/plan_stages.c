/* lockstep plan --parallel: what each process of a pipeline would have, and which layout auto takes. */
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "cmd/plan_stages.h"
#include "exec/layout/layout.h"
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

static enum ls_status put_json(json_t *out)
{
    int bad = !out || ls_json_print(out, JSON_INDENT(1)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the plan cannot be written to standard output") : LS_OK;
}

static double mib(size_t bytes)
{
    return (double)bytes / 1048576;
}

/* The share of a stage in the work of a pass: measured, or estimated. */
static double share_of(const struct ls_layout *l, const struct ls_stage_about *all, int stage)
{
    double sum = 0;
    for (int i = 0; i < l->stages; i++)
        sum += l->ms[i];
    return sum > 0 ? l->ms[stage] / sum : all[stage].share;
}

/* The passes of a step in the pipeline that has most of them. */
static int64_t passes_of(const struct ls_options *o, int pipelines)
{
    return (o->replicas + pipelines - 1) / pipelines * o->accumulate;
}

static enum ls_status print_table(const struct ls_options *o, const struct ls_layout *l,
                                  const struct ls_stage_about *all, int stages, int pipelines)
{
    static const char *const headings[] = {"stage",      "from layer",   "ms",          "work",
                                           "parameters", "state MiB",    "activations", "gradients",
                                           "buffers",    "together MiB", "sends MiB"};
    struct ls_table t;
    int64_t passes = passes_of(o, pipelines);
    ls_table_init(&t, "rlrrrrrrrrr", headings);
    for (int i = 0; i < stages; i++) {
        const struct ls_stage_about *a = &all[i];
        ls_table_row(&t);
        ls_table_cell(&t, "%d", i);
        ls_table_cell(&t, "%s", a->first);
        if (l->stages > 0)
            ls_table_cell(&t, "%.2f", l->ms[i]);
        else
            ls_table_cell(&t, "%s", "");
        ls_table_cell(&t, "%.1f%%", 100 * share_of(l, all, i));
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
    printf("\n");
    if (pipelines > 1)
        printf("%d groups of ", pipelines);
    printf("%d stages, %" PRId64
           " pass%s a step: at least %.1f%% of the time is idle. A stage sends that much a pass.\n",
           stages, passes, passes == 1 ? "" : "es", 100.0 * (stages - 1) / (double)(passes + stages - 1));
    if (l->stages > 0)
        printf(
            "Times are measured here, on %d thread%s: of a pass, forward and backward, with the updates of a step.\n",
            (int)o->threads, o->threads == 1 ? "" : "s");
    else
        printf("The work is estimated from multiply-adds, values written and parameters.\n");
    return st;
}

static enum ls_status print_json(const struct ls_options *o, const struct ls_layout *l,
                                 const struct ls_stage_about *all, int stages, int pipelines)
{
    json_t *list = json_array();
    for (int i = 0; i < stages; i++) {
        const struct ls_stage_about *a = &all[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "first_layer",
                                        a->first, "ms", l->ms[i], "work", share_of(l, all, i), "parameters",
                                        (json_int_t)a->parameters, "passes_at_once", (json_int_t)a->lanes,
                                        "store_bytes", (json_int_t)a->store, "arena_bytes", (json_int_t)a->arena,
                                        "grad_bytes", (json_int_t)a->grads, "buffer_bytes", (json_int_t)a->buffers,
                                        "bytes", (json_int_t)ls_stage_bytes(a), "sent_bytes", (json_int_t)a->travel));
    }
    json_t *out = json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:o}", "kind", "plan", "model", o->model, "parallel",
                            o->parallel, "batch", (json_int_t)o->batch, "passes", (json_int_t)passes_of(o, pipelines),
                            "measured", l->stages > 0, "stages", list);
    return put_json(out);
}

/* Workers of one machine share its cores. */
static int64_t threads_of(const struct ls_options *o, int processes)
{
    int64_t share = ls_engine_cores() / processes;
    return o->threads > 0 ? o->threads : share > 1 ? share : 1;
}

enum ls_status ls_plan_stages(const struct ls_options *o, const struct ls_model_size *size, const char *plan)
{
    struct ls_mesh mesh;
    struct ls_layout layout = {0};
    struct ls_options each = *o;
    int processes = ls_mesh_size(o->parallel);
    LS_TRY(ls_mesh_parse(o->parallel, processes, 0, &mesh));
    int stages = mesh.axes[LS_PARALLEL_PIPELINE].size, pipelines = processes / stages;
    each.threads = threads_of(o, processes);
    LS_TRY(ls_layout_plan(&each, size, plan, &layout));
    each.parallel = layout.parallel;
    struct ls_stage_about *all = ls_alloc((size_t)stages, sizeof *all);
    enum ls_status st = all ? LS_OK : LS_FAILED;
    for (int i = 0; i < stages && st == LS_OK; i++)
        st = predict(&each, size, plan, i, &all[i]);
    if (st == LS_OK)
        st = (o->json ? print_json : print_table)(&each, &layout, all, stages, pipelines);
    ls_free(all);
    ls_layout_release(&layout);
    return st;
}

/* --- auto ------------------------------------------------------------------------------------------------------------- */

static json_t *candidate_json(const struct ls_candidate *c)
{
    json_t *out = json_pack("{s:s}", "layout", c->text);
    if (c->p.seconds > 0)
        json_object_update_new(out, json_pack("{s:f, s:f, s:I, s:I}", "step_ms", 1e3 * c->p.seconds, "work_ms",
                                              1e3 * c->p.work, "sent_bytes", (json_int_t)c->p.sent, "bytes",
                                              (json_int_t)c->p.bytes));
    if (*c->why)
        json_object_set_new(out, "why_not", json_string(c->why));
    return out;
}

static enum ls_status print_choice_json(const struct ls_options *o, const struct ls_layout *l)
{
    json_t *list = json_array();
    for (int i = 0; i < l->n; i++)
        json_array_append_new(list, candidate_json(&l->list[i]));
    return put_json(json_pack("{s:s, s:s, s:I, s:s, s:o}", "kind", "plan", "model", o->model, "batch",
                              (json_int_t)o->batch, "parallel", l->parallel, "candidates", list));
}

enum ls_status ls_plan_choice(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size)
{
    struct ls_layout layout;
    LS_TRY(ls_layout_settle(o, comm, size, NULL, &layout));
    enum ls_status st = LS_OK;
    if (comm && ls_comm_rank(comm) > 0)
        ;
    else if (o->json)
        st = print_choice_json(o, &layout);
    else
        printf("%s", layout.report);
    ls_layout_release(&layout);
    return st;
}
