/* A pipeline opened: which stage this process has, its programs and its lanes. */
#include "base/log.h"
#include "base/memory.h"
#include "backend/core/store.h"
#include "exec/pipeline/pipeline.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

enum { TAGS_TRAIN = 0, TAGS_EVAL = LS_TAG_LIMIT / 2 };

/* --- what goes with it -------------------------------------------------------------------------------------------- */

static enum ls_status refuse(const struct ls_options *o, const char *option, const char *value, const char *why)
{
    return ls_fail(LS_USAGE, "--parallel %s: %s%s%s does not go with it: %s", o->parallel, option, *value ? " " : "",
                   value, why);
}

enum ls_status ls_pipeline_check(const struct ls_options *o, const struct ls_engine *e)
{
    const struct ls_sync_ops *sync = ls_sync_find(o->sync);
    int pipelines = e->mesh.axes[LS_PARALLEL_DATA].size;
    if (e->mesh.axes[LS_PARALLEL_PIPELINE].size <= 1)
        return LS_OK;
    if (o->replicas < pipelines)
        return ls_fail(LS_USAGE, "--parallel %s: %d pipelines cannot share %lld replica%s; give --replicas %d or more",
                       o->parallel, pipelines, (long long)o->replicas, o->replicas == 1 ? "" : "s", pipelines);
    if (sync && !sync->exact)
        return refuse(o, "--sync", o->sync, "every stage has the only copy of its parameters");
    if (o->servers > 0)
        return refuse(o, "--servers", "", "every process has a stage");
    if (strcmp(o->compress, "none") != 0)
        return refuse(o, "--compress", o->compress, "no gradients are summed over processes");
    if (strcmp(o->collective, "nccl") == 0 && !e->backend->wires)
        return refuse(o, "--collective", "nccl", "NCCL is for GPUs: take --backend cuda, or leave it out");
    if (strcmp(o->collective, "nccl") == 0 && o->trace)
        return refuse(o, "--collective nccl", "with --trace", "steps that are recorded cannot wait for NCCL");
    if (o->clip_norm > 0 && !e->backend->squares)
        return refuse(o, "--clip-norm", "",
                      "no process has the gradients of all stages, so none can compute their norm");
    if (o->bn_samples > 0)
        return refuse(o, "--bn-samples", "", "no process has the whole model to measure statistics with");
    return LS_OK;
}

enum ls_status ls_pipeline_check_cut(const struct ls_options *o, const struct ls_backend *b, struct ls_graph *g)
{
    struct ls_mesh mesh;
    struct ls_stages stages;
    LS_TRY(ls_mesh_parse(o->parallel, ls_mesh_size(o->parallel), 0, &mesh));
    LS_TRY(ls_graph_backward(g));
    const struct ls_mesh_axis *axis = &mesh.axes[LS_PARALLEL_PIPELINE];
    enum ls_status st = ls_stages_choose(g, axis->size, axis->at, axis->at_length, b->joined ? "" : NULL, &stages);
    ls_stages_release(&stages);
    return st;
}

enum ls_status ls_pipeline_new(struct ls_engine *e, const struct ls_options *o)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_PIPELINE];
    if (axis->size <= 1)
        return LS_OK;
    LS_TRY(ls_pipeline_check(o, e));
    struct ls_pipeline *p = e->pipeline = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    *p = (struct ls_pipeline){.comm = e->comm, .stages = axis->size, .stage = axis->place};
    ls_graph_init(&p->eval_whole);
    return LS_OK;
}

enum ls_status ls_pipeline_find_mates(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    const struct ls_mesh_axis *data = &e->mesh.axes[LS_PARALLEL_DATA];
    p->mate_ranks = ls_alloc((size_t)data->size, sizeof *p->mate_ranks);
    if (!p->mate_ranks)
        return LS_FAILED;
    for (int place = 0; place < data->size; place++)
        p->mate_ranks[place] = ls_mesh_rank(&e->mesh, LS_PARALLEL_DATA, place);
    p->mates = (struct ls_sync_group){.tree = e->tree, .ranks = p->mate_ranks, .place = data->place};
    return LS_OK;
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

enum ls_status ls_pipeline_take_stage(struct ls_engine *e, struct ls_net *net)
{
    struct ls_pipeline *p = e->pipeline;
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_PIPELINE];
    bool train = net == &e->train;
    struct ls_graph *whole = train ? &e->whole : &p->eval_whole;
    ls_graph_release(whole);
    *whole = net->graph;
    ls_graph_init(&net->graph);
    LS_TRY(train ? ls_stages_choose(whole, p->stages, axis->at, axis->at_length, e->backend->joined ? p->joined : NULL,
                                    &p->cut)
                 : ls_stages_like(&p->cut, &e->whole, whole, &p->eval_cut));
    return ls_stage_graph(whole, train ? &p->cut : &p->eval_cut, p->stage, &net->graph);
}

/* --- lanes -------------------------------------------------------------------------------------------------------- */

/* Gradients lie in the order in which a pass makes them, so that those made forward come first. */
static size_t early_floats(const struct ls_engine *e)
{
    const struct ls_graph *g = &e->train.graph;
    size_t floats = 0;
    for (int n = 0; n < e->train.end; n++)
        for (int i = 0; i < LS_MAX_OUT; i++) {
            int t = g->nodes[n].phase == LS_FORWARD ? g->nodes[n].out[i] : LS_NONE;
            size_t bytes;
            if (t == LS_NONE || g->tensors[t].role != LS_ROLE_GRAD)
                continue;
            const float *at = e->backend->memory(e->train.program, t, &bytes);
            size_t end = (size_t)(at - e->kept) + bytes / sizeof *at;
            floats = end > floats ? end : floats;
        }
    return floats;
}

static enum ls_status open_lane(struct ls_engine *e, const struct ls_options *o, int number,
                                enum ls_status (*prepare)(struct ls_engine *e, const struct ls_options *o,
                                                          struct ls_net *net))
{
    struct ls_pipeline *p = e->pipeline;
    struct ls_lane *l = &p->lanes[number];
    l->net = number == 0 ? &e->train : &l->own;
    ls_graph_init(&l->own.graph);
    if (number > 0) {
        LS_TRY(ls_stage_graph(&e->whole, &p->cut, p->stage, &l->own.graph));
        LS_TRY(prepare(e, o, &l->own));
        LS_TRY(ls_backend_take(e->backend, e->arena_bytes, &l->arena));
        LS_TRY(e->backend->bind(l->own.program, l->arena, e->kept));
        l->own.end = e->train.end;
    }
    void *early;
    LS_TRY(ls_backend_take(e->backend, p->early * sizeof *l->early, &early));
    l->early = early;
    return ls_lane_open(e, l, TAGS_TRAIN);
}

/* Both ends of a message agree on its bytes, which they would not with different processors. */
static enum ls_status check_same_sizes(struct ls_pipeline *p)
{
    struct ls_lane *l = &p->lanes[0];
    for (int i = 0; i < l->n_transfers; i++) {
        struct ls_transfer *m = &l->transfers[i];
        uint64_t other = m->bytes;
        struct ls_work w = {.kind = m->send ? LS_WORK_SEND : LS_WORK_RECEIVE,
                            .peer = m->peer,
                            .tag = m->tag,
                            .data = &other,
                            .bytes = sizeof other};
        LS_TRY(ls_comm_do(p->comm, &w));
        if (other != m->bytes)
            return ls_fail(LS_FAILED,
                           "rank %d (%s) stores %s in %llu bytes, this process in %zu; do all hosts have the same "
                           "processor?",
                           m->peer, ls_comm_host(p->comm, m->peer), l->net->graph.tensors[m->tensor].name,
                           (unsigned long long)other, m->bytes);
    }
    return LS_OK;
}

/* Passes of a step through this process. */
static int passes_of(const struct ls_engine *e)
{
    return (e->tree->first[e->place + 1] - e->tree->first[e->place]) * e->passes;
}

static int lanes_of(const struct ls_engine *e)
{
    return ls_stage_lanes(e->pipeline->stages, e->pipeline->stage, passes_of(e));
}

void ls_pipeline_describe(const struct ls_engine *e, struct ls_stage_about *about)
{
    const struct ls_pipeline *p = e->pipeline;
    const struct ls_graph *g = &e->train.graph;
    int tensors;
    memset(about, 0, sizeof *about);
    snprintf(about->first, sizeof about->first, "%s", p->cut.first[p->stage]);
    about->share = p->cut.share[p->stage];
    about->lanes = lanes_of(e);
    about->parameters = ls_graph_parameters(g, &tensors);
    about->store = e->store_bytes;
    about->arena = e->arena_bytes;
    about->grads = (e->n_grads + ls_replicas_unfinished(e->tree->replicas, e->passes, e->n_grads)) * sizeof(float);
    for (int n = 0; n < g->n_nodes; n++) {
        bool sends = g->nodes[n].op == &ls_op_send;
        size_t bytes;
        if (!sends && g->nodes[n].op != &ls_op_receive)
            continue;
        e->backend->memory(e->train.program, sends ? g->nodes[n].in[0] : g->nodes[n].out[0], &bytes);
        about->travel += sends ? bytes : 0;
        about->buffers += (size_t)about->lanes * bytes;
    }
}

/* What every process has. */
static enum ls_status share_about(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    struct ls_stage_about own;
    char title[LS_TITLE_ROOM];
    ls_pipeline_describe(e, &own);
    p->about = ls_alloc((size_t)ls_comm_size(p->comm), sizeof *p->about);
    if (!p->about)
        return LS_FAILED;
    for (int rank = 0; rank < ls_comm_size(p->comm); rank++) {
        snprintf(title, sizeof title, "stage %d of %d", rank % p->stages, p->stages);
        ls_comm_title(p->comm, rank, title);
    }
    return ls_comm_allgather(p->comm, &own, sizeof own, p->about);
}

enum ls_status ls_pipeline_bubble(const struct ls_engine *e, double seconds, double waited, double *busy,
                                  double *bubble, double *least)
{
    const struct ls_pipeline *p = e->pipeline;
    int size = ls_comm_size(p->comm);
    double own = seconds > 0 ? 1 - waited / seconds : 0, sum = 0, passes = passes_of(e);
    double *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(p->comm, &own, sizeof own, all) : LS_FAILED;
    for (int stage = 0; stage < p->stages; stage++)
        busy[stage] = 0;
    for (int rank = 0; st == LS_OK && rank < size; rank++) {
        busy[rank % p->stages] += all[rank] * p->stages / size;
        sum += all[rank];
    }
    *bubble = 1 - sum / size;
    *least = (p->stages - 1) / (passes + p->stages - 1);
    ls_free(all);
    return st;
}

enum ls_status ls_pipeline_open(struct ls_engine *e, const struct ls_options *o,
                                enum ls_status (*prepare)(struct ls_engine *e, const struct ls_options *o,
                                                          struct ls_net *net))
{
    struct ls_pipeline *p = e->pipeline;
    int lanes = lanes_of(e);
    p->early = early_floats(e);
    p->lanes = ls_alloc((size_t)lanes, sizeof *p->lanes);
    if (!p->lanes)
        return LS_FAILED;
    for (p->n_lanes = 0; p->n_lanes < lanes;)
        LS_TRY(open_lane(e, o, p->n_lanes++, prepare));
    if (e->eval.program) {
        p->eval.net = &e->eval;
        LS_TRY(ls_lane_open(e, &p->eval, TAGS_EVAL));
    }
    LS_TRY(check_same_sizes(p));
    LS_TRY(ls_outbox_open(e, strcmp(o->collective, "auto") == 0));
    LS_TRY(ls_wires_open(e, o));
    for (int i = 0; i < p->n_lanes; i++)
        LS_TRY(ls_lane_take_buffers(e, &p->lanes[i]));
    if (e->eval.program)
        LS_TRY(ls_lane_take_buffers(e, &p->eval));
    e->store_bytes = ls_store_bytes(e->store);
    return share_about(e);
}

void ls_pipeline_close(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    if (!p)
        return;
    ls_wires_close(e);
    for (int i = 0; i < p->n_lanes; i++)
        ls_lane_close(e, &p->lanes[i]);
    ls_lane_close(e, &p->eval);
    ls_outbox_close(e);
    ls_stages_release(&p->cut);
    ls_stages_release(&p->eval_cut);
    ls_graph_release(&p->eval_whole);
    ls_free(p->lanes);
    ls_free(p->about);
    ls_free(p->mate_ranks);
    ls_free(p->choices[0]);
    ls_free(p->choices[1]);
    ls_free(p->joined);
    ls_free(p);
    e->pipeline = NULL;
}

/* --- samples -------------------------------------------------------------------------------------------------------- */

bool ls_engine_reads_samples(const struct ls_engine *e)
{
    return !e->pipeline || e->pipeline->stage == 0;
}

int ls_engine_readers(const struct ls_engine *e, int *own)
{
    *own = e->pipeline ? e->mesh.axes[LS_PARALLEL_DATA].place : e->comm ? ls_comm_rank(e->comm) : 0;
    return e->pipeline ? e->mesh.axes[LS_PARALLEL_DATA].size : e->comm ? ls_comm_size(e->comm) : 1;
}

int ls_engine_passes_at_once(const struct ls_engine *e)
{
    return e->pipeline ? e->pipeline->n_lanes : 1;
}
