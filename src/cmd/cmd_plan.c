/* lockstep plan: prints what a training step does, node by node, and the memory that it needs. */
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "cmd/plan_stages.h"
#include "cmd/world.h"
#include "config/table.h"
#include "graph/ops.h"
#include "report/formats/table.h"
#include "exec/dtype.h"
#include "exec/engine.h"
#include "exec/identity.h"
#include "exec/shards/shards.h"
#include "exec/shards/worker_memory.h"
#include "launch/children/workers.h"
#include "train/task.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

static const char *const phases[] = {[LS_FORWARD] = "forward", [LS_BACKWARD] = "backward", [LS_UPDATE] = "update"};

/* Reorders are counted because a better choice of layouts would save them. */
struct summary {
    int reorders, tensors;
    int64_t reorder_bytes, parameters;
};

static struct summary summarise(const struct ls_graph *g)
{
    struct summary s = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != &ls_op_reorder)
            continue;
        const struct ls_tensor *t = &g->tensors[g->nodes[i].out[0]];
        s.reorders++;
        s.reorder_bytes += ls_shape_count(&t->shape) * (int64_t)ls_dtype_size(t->dtype);
    }
    s.parameters = ls_graph_parameters(g, &s.tensors);
    return s;
}

/* The tensor that a node writes. For an update it is the tensor that the node changes. */
static const struct ls_tensor *result_of(const struct ls_graph *g, const struct ls_node *n)
{
    for (int i = 0; i < LS_MAX_OUT; i++)
        if (n->out[i] != LS_NONE)
            return &g->tensors[n->out[i]];
    return &g->tensors[n->in[0]];
}

/* The memory of each worker, for --workers. */
static enum ls_status print_workers(const struct ls_options *o, const struct ls_engine *e)
{
    struct ls_worker_memory m;
    char gathered[64] = "";
    LS_TRY(ls_worker_memory(e, o, (int)o->workers, &m));
    if (m.gathered > 0)
        snprintf(gathered, sizeof gathered, " (sharded) + %.1f MiB gathered", (double)m.gathered / 1048576);
    if (m.exchanged > 0)
        snprintf(gathered, sizeof gathered, " (rows) + %.1f MiB exchanged", (double)m.exchanged / 1048576);
    printf("Each of %" PRId64
           " workers: %.1f MiB = %.1f MiB parameters%s + %.1f MiB optimizer state%s + %.1f MiB gradients "
           "+ %.1f MiB activations, beside the program and its input\n",
           o->workers, (double)ls_worker_memory_sum(&m) / 1048576, (double)m.parameters / 1048576, gathered,
           (double)m.state / 1048576, m.state < m.all_state ? " (sharded)" : "", (double)m.gradients / 1048576,
           (double)m.activations / 1048576);
    return LS_OK;
}

static enum ls_status print_table(const struct ls_options *o, const struct ls_engine *e, const struct ls_engine *worker)
{
    static const char *const headings[] = {
        "node", "phase", "op", "layer", "shape", "type", "kernel, layouts and memory"};
    const struct ls_graph *g = &e->train.graph;
    struct summary s = summarise(g);
    struct ls_table t;
    ls_table_init(&t, "rllllll", headings);
    for (int i = 0; i < g->n_nodes; i++) {
        char shape[64], text[512] = "";
        const struct ls_node *n = &g->nodes[i];
        const struct ls_tensor *result = result_of(g, n);
        e->backend->describe(e->train.program, i, text, sizeof text);
        ls_table_row(&t);
        ls_table_cell(&t, "%d", i);
        ls_table_cell(&t, "%s", phases[n->phase]);
        ls_table_cell(&t, "%s", n->op->name);
        ls_table_cell(&t, "%s", n->name);
        ls_table_cell(&t, "%s", ls_shape_text(&result->shape, shape));
        ls_table_cell(&t, "%s", ls_dtype_name(result->dtype));
        ls_table_cell(&t, "%s", text);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    printf("\n%" PRId64 " parameters in %d tensors, %d nodes, backend %s, %d thread%s\n", s.parameters, s.tensors,
           g->n_nodes, e->backend->name, e->threads, e->threads == 1 ? "" : "s");
    printf(
        "Peak: %zu bytes (%.1f MiB) of activations and gradients in one arena, %zu bytes (%.1f MiB) of parameters and state\n",
        e->arena_bytes, (double)e->arena_bytes / 1048576, e->store_bytes, (double)e->store_bytes / 1048576);
    printf("Reorders: %d, moving %" PRId64 " bytes (%.1f MiB) a pass\n", s.reorders, s.reorder_bytes,
           (double)s.reorder_bytes / 1048576);
    return st == LS_OK && o->workers > 1 ? print_workers(o, worker) : st;
}

static json_t *workers_json(const struct ls_options *o, const struct ls_worker_memory *m)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "workers", (json_int_t)o->workers, "parameter_bytes",
                     (json_int_t)m->parameters, "gathered_bytes", (json_int_t)m->gathered, "exchanged_bytes",
                     (json_int_t)m->exchanged, "state_bytes", (json_int_t)m->state, "gradient_bytes",
                     (json_int_t)m->gradients, "activation_bytes", (json_int_t)m->activations, "bytes",
                     (json_int_t)ls_worker_memory_sum(m));
}

static json_t *node_json(const struct ls_engine *e, int i)
{
    const struct ls_node *n = &e->train.graph.nodes[i];
    const struct ls_tensor *result = result_of(&e->train.graph, n);
    char text[512] = "";
    json_t *shape = json_array();
    e->backend->describe(e->train.program, i, text, sizeof text);
    for (int d = 0; d < result->shape.rank; d++)
        json_array_append_new(shape, json_integer(result->shape.dim[d]));
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s}", "phase", phases[n->phase], "op", n->op->name, "layer", n->name,
                     "shape", shape, "dtype", ls_dtype_name(result->dtype), "kernel", text);
}

static enum ls_status print_json(const struct ls_options *o, const struct ls_engine *e, const struct ls_engine *worker)
{
    struct summary s = summarise(&e->train.graph);
    struct ls_worker_memory memory;
    LS_TRY(ls_worker_memory(worker, o, (int)o->workers, &memory));
    json_t *nodes = json_array();
    for (int i = 0; i < e->train.graph.n_nodes; i++)
        json_array_append_new(nodes, node_json(e, i));
    json_t *out =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:i, s:I, s:i, s:I, s:I, s:i, s:I, s:o, s:o}", "kind", "plan", "model",
                  o->model, "batch", (json_int_t)o->batch, "backend", e->backend->name, "dtype", o->dtype, "threads",
                  e->threads, "parameters", (json_int_t)s.parameters, "tensors", s.tensors, "arena_bytes",
                  (json_int_t)e->arena_bytes, "store_bytes", (json_int_t)e->store_bytes, "reorders", s.reorders,
                  "reorder_bytes", (json_int_t)s.reorder_bytes, "worker", workers_json(o, &memory), "nodes", nodes);
    int bad = !out || ls_json_print(out, JSON_INDENT(1)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the plan cannot be written to standard output") : LS_OK;
}

/* Takes the processes that --workers and --parallel name, and checks what they share. */
static enum ls_status take_processes(struct ls_options *o, struct ls_mesh *mesh)
{
    const struct ls_backend *backend;
    int named = ls_mesh_size(o->parallel), processes = o->workers > 1 ? (int)o->workers : named;
    LS_TRY(ls_backend_open(o->backend, &backend));
    LS_TRY(ls_mesh_parse(o->parallel, processes, 0, mesh));
    if (!ls_options_given(o, "replicas")) /* as train has it */
        o->replicas = processes;
    o->workers = processes;
    if (mesh->axes[LS_PARALLEL_PIPELINE].size == 1 && o->replicas < processes)
        return ls_fail(LS_USAGE, "--workers %d: there %s only %" PRId64 " replica%s; give --replicas", processes,
                       o->replicas == 1 ? "is" : "are", o->replicas, o->replicas == 1 ? "" : "s");
    char *all = ls_mesh_text(mesh);
    enum ls_status st = all ? ls_option_set(o, ls_option_find("parallel"), "--parallel", all) : LS_FAILED;
    ls_free(all);
    LS_TRY(st);
    LS_TRY(ls_mesh_parse(o->parallel, processes, 0, mesh));
    return ls_shards_check(o, backend, processes);
}

/* Every process computes these nodes. With split dense layers it has some rows of them, and its memory is that of `worker`. */
static enum ls_status plan_nodes(struct ls_options *o, const struct ls_mesh *mesh, const struct ls_model_size *size,
                                 const char *recorded)
{
    struct ls_engine whole = {0}, worker = {0};
    bool split = mesh->axes[LS_PARALLEL_DENSE].size > 1;
    enum ls_status st = LS_OK;
    if (split)
        LS_TRY(ls_engine_open(&worker, o, NULL, size, recorded, LS_ENGINE_TRAIN | LS_ENGINE_PREDICT));
    LS_TRY_GOTO(close, ls_option_set(o, ls_option_find("parallel"), "--parallel", "data"));
    LS_TRY_GOTO(close, ls_engine_open(&whole, o, NULL, size, recorded, LS_ENGINE_TRAIN));
    st = (o->json ? print_json : print_table)(o, &whole, split ? &worker : &whole);
close:
    ls_engine_close(&whole);
    ls_engine_close(&worker);
    return st;
}

/* The one process of `plan` stands for all that there will be, except to choose a layout: that takes the processes. */
static enum ls_status plan_layout(struct ls_options *o)
{
    struct ls_world world;
    struct ls_task task = {0};
    enum ls_status st;
    if (ls_workers_took_over(o, &st))
        return st;
    LS_TRY(ls_world_open(&world, o));
    LS_TRY_GOTO(out, ls_dtype_settle(o, world.comm, NULL));
    LS_TRY_GOTO(out, ls_options_given(o, "data") ? ls_task_open(&task, o, true, false, NULL) : ls_task_size(&task, o));
    LS_TRY_GOTO(out, ls_engine_pass_batch(o, &task.size.batch));
    st = ls_plan_choice(o, world.comm, &task.size);
out:
    ls_task_close(&task);
    ls_world_close(&world, st);
    return st;
}

enum ls_status ls_cmd_plan(struct ls_options *o)
{
    if (ls_mesh_is_auto(o->parallel))
        return plan_layout(o);
    struct ls_task task = {0};
    struct ls_mesh mesh;
    enum ls_status st = LS_OK;
    char *recorded;
    LS_TRY(ls_dtype_settle(o, NULL, NULL));
    LS_TRY_GOTO(out, take_processes(o, &mesh));
    LS_TRY_GOTO(out, ls_options_given(o, "data") ? ls_task_open(&task, o, true, false, NULL) : ls_task_size(&task, o));
    LS_TRY_GOTO(out, ls_engine_pass_batch(o, &task.size.batch));
    recorded = ls_identity_recorded_plan(o->config_run);
    st = ls_mesh_has_pipeline(o->parallel) ? ls_plan_stages(o, &task.size, recorded)
                                           : plan_nodes(o, &mesh, &task.size, recorded);
    ls_free(recorded);
out:
    ls_task_close(&task);
    return st;
}
