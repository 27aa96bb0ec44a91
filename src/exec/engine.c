#define _GNU_SOURCE
#include "exec/engine.h"
#include "exec/device/host_copy.h"
#include "exec/device/peers.h"
#include "exec/clip.h"
#include "exec/identity.h"
#include "exec/pipeline/pipeline.h"
#include "exec/programs.h"
#include "exec/shards/params.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"
#include "backend/core/store.h"
#include "base/log.h"
#include "base/system/cgroup.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>

int ls_engine_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1)
        return 1;
    return ls_cgroup_cores("", CPU_COUNT(&set));
}

enum ls_status ls_engine_pass_batch(const struct ls_options *o, int64_t *batch)
{
    int64_t parts = o->replicas * o->accumulate;
    if (o->batch < parts)
        return ls_fail(LS_USAGE,
                       "--batch %lld is too small for %lld replicas of %lld passes: each needs a sample, %lld in all",
                       (long long)o->batch, (long long)o->replicas, (long long)o->accumulate, (long long)parts);
    *batch = (o->batch + parts - 1) / parts;
    return LS_OK;
}

static enum ls_status bind_memory(struct ls_engine *e, const struct ls_options *o)
{
    LS_TRY(ls_backend_take(e->backend, e->arena_bytes, &e->arena));
    e->drops_grads = e->comm && e->strategy->shards_state && e->tree->replicas == e->tree->size &&
                     ls_params_drop_gradients(e->backend, o, e->passes);
    LS_TRY(ls_gradients_open(e));
    LS_TRY(ls_params_open(e, o));
    if (e->train.program)
        LS_TRY(e->backend->bind(e->train.program, e->arena, e->kept));
    if (e->eval.program)
        LS_TRY(e->backend->bind(e->eval.program, e->arena, NULL));
    if (e->glance.program)
        LS_TRY(e->backend->bind(e->glance.program, e->arena, NULL));
    return LS_OK;
}

/* Which replicas each process computes: comm's tree, unless some ranks only serve. */
static enum ls_status take_tree(struct ls_engine *e, const struct ls_options *o, bool train)
{
    int size = e->comm ? ls_comm_size(e->comm) : 1, servers = train ? ls_sync_servers(o, size) : 0;
    e->place = e->comm ? ls_comm_rank(e->comm) : 0;
    if (e->pipeline) { /* the processes of a stage divide the replicas among themselves */
        const struct ls_mesh_axis *data = &e->mesh.axes[LS_PARALLEL_DATA];
        e->strategy = data->size > 1 ? &ls_sync_group : &ls_sync_none;
        e->tree = &e->own_tree;
        e->place = data->place;
        LS_TRY(ls_tree_init(&e->own_tree, (int)o->replicas, data->size));
        return ls_pipeline_find_mates(e);
    }
    e->strategy = train ? ls_sync_choose(o, size) : &ls_sync_none;
    if (train)
        LS_TRY(ls_shards_check(o, e->backend, size));
    e->tree = e->comm && servers == 0 ? ls_comm_tree(e->comm) : &e->own_tree;
    if (e->tree != &e->own_tree)
        return LS_OK;
    if (servers >= size)
        return ls_fail(LS_USAGE, "--servers %d: none of the %d processes would be left to train; start more", servers,
                       size);
    if (servers > 0 && o->replicas != size - servers)
        return ls_fail(LS_USAGE, "--sync %s needs as many replicas as workers: leave --replicas out, or give %d",
                       o->sync, size - servers);
    LS_TRY(ls_tree_init(&e->own_tree, train ? (int)o->replicas : 1, size - servers));
    return ls_tree_add_idle(&e->own_tree, servers);
}

const struct ls_net *ls_engine_net(const struct ls_engine *e)
{
    return e->train.program ? &e->train : &e->eval;
}

/* --plan, and the number of threads that it was made for. */
static enum ls_status take_plan(struct ls_engine *e, const struct ls_options *o, char **lines)
{
    char identity[LS_IDENTITY_ROOM], value[24];
    LS_TRY(ls_identity_load_plan(o->plan, lines));
    ls_identity_of_plan(*lines, identity);
    int threads = ls_identity_value(identity, "threads", value, sizeof value) ? (int)strtol(value, NULL, 10) : 0;
    if (o->threads > 0 && threads > 0 && o->threads != threads)
        return ls_fail(LS_USAGE,
                       "--threads %lld: the plan %s is for %d threads, which decide bits as it does; give one of them",
                       (long long)o->threads, o->plan, threads);
    e->threads = threads > 0 ? threads : e->threads;
    return LS_OK;
}

/* The place of this process, or of the one that is predicted. */
static enum ls_status take_mesh(struct ls_engine *e, const struct ls_options *o, unsigned uses)
{
    if (uses & (LS_ENGINE_PREDICT | LS_ENGINE_MEASURE))
        return ls_mesh_parse(o->parallel, ls_mesh_size(o->parallel), (int)(uses / LS_ENGINE_RANK), &e->mesh);
    return ls_mesh_parse(o->parallel, e->comm ? ls_comm_size(e->comm) : 1, e->comm ? ls_comm_rank(e->comm) : 0,
                         &e->mesh);
}

/* Tells all which rows of the large dense layers are here. */
static enum ls_status open_rows(struct ls_engine *e, const struct ls_options *o)
{
    if (e->mesh.axes[LS_PARALLEL_DENSE].size < 2)
        return LS_OK;
    LS_TRY(ls_engine_graph(o, e->backend, &e->size, &e->whole));
    struct ls_rows *rows = ls_alloc((size_t)e->whole.n_tensors, sizeof *rows);
    enum ls_status st = rows ? ls_split_rows(e, rows) : LS_FAILED;
    if (st == LS_OK)
        st = ls_engine_open_parts(e, rows);
    ls_free(rows);
    return st;
}

/* Decides how this process computes: its place, threads, backend, kernels and tree of replicas. The lines of --plan are kept in
 * `lines`. */
static enum ls_status decide(struct ls_engine *e, const struct ls_options *o, unsigned uses, char **lines)
{
    bool train = uses & LS_ENGINE_TRAIN;
    if (train)
        LS_TRY(take_mesh(e, o, uses));
    e->threads = o->threads > 0 ? (int)o->threads : ls_engine_cores();
    if (o->plan)
        LS_TRY(take_plan(e, o, lines));
    omp_set_num_threads(e->threads);
    LS_TRY(ls_backend_open(o->backend, &e->backend));
    bool predict = uses & LS_ENGINE_PREDICT; /* memory that is never touched costs the host nothing */
    e->store = ls_store_new(predict ? ls_backend_find("ref") : e->backend);
    if (!e->store)
        return LS_FAILED;
    if (train)
        LS_TRY(ls_pipeline_new(e, o));
    if (train)
        LS_TRY(ls_split_check(o, e));
    LS_TRY(take_tree(e, o, train));
    return train ? ls_peers_plan(e, o) : LS_OK;
}

/* What needs programs that are bound to memory: layouts, clipping, first values. */
static enum ls_status open_run(struct ls_engine *e, const struct ls_options *o, bool train)
{
    if (e->pipeline)
        LS_TRY(ls_pipeline_open(e, o, ls_program_prepare_lane));
    if (train)
        LS_TRY(ls_split_open(e, o));
    LS_TRY(ls_clip_open(e));
    if (e->params) /* the buckets say where first values go */
        LS_TRY(ls_engine_make_buckets(e, o));
    e->store_bytes = ls_store_bytes(e->store);
    return ls_engine_start_values(e, o->seed);
}

static enum ls_status open_engine(struct ls_engine *e, const struct ls_options *o, const char *plan, unsigned uses,
                                  char **lines)
{
    bool train = uses & LS_ENGINE_TRAIN;
    LS_TRY(decide(e, o, uses, lines));
    struct ls_given_plan given = {.lines = plan, .name = "the run's plan"};
    if (*lines)
        given = (struct ls_given_plan){*lines, "--plan", train};
    LS_TRY(ls_programs_make(e, o, &given, uses));
    if (uses & LS_ENGINE_PREDICT) {
        e->store_bytes = ls_store_bytes(e->store);
        return LS_OK;
    }
    if (train)
        LS_TRY(open_rows(e, o));
    LS_TRY(bind_memory(e, o));
    return uses & LS_ENGINE_MEASURE ? LS_OK : open_run(e, o, train);
}

enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, struct ls_comm *comm,
                              const struct ls_model_size *size, const char *plan, unsigned uses)
{
    char *lines = NULL;
    *e = (struct ls_engine){.size = *size,
                            .passes = uses & LS_ENGINE_TRAIN ? (int)o->accumulate : 1,
                            .plan_only = uses & LS_ENGINE_PREDICT,
                            .comm = comm && ls_comm_size(comm) > 1 ? comm : NULL};
    ls_graph_init(&e->train.graph);
    ls_graph_init(&e->eval.graph);
    ls_graph_init(&e->glance.graph);
    ls_graph_init(&e->whole);
    enum ls_status st = open_engine(e, o, plan, uses, &lines);
    ls_free(lines);
    if (st != LS_OK)
        ls_engine_close(e);
    return st;
}

void ls_engine_close(struct ls_engine *e)
{
    ls_peers_close(e, false);
    ls_pipeline_close(e);
    ls_split_close(e);
    ls_clip_close(e);
    ls_engine_close_parts(e);
    ls_graph_release(&e->whole);
    ls_params_close(e);
    ls_shards_close(e);
    ls_engine_free_buckets(e);
    ls_program_close(e, &e->glance);
    ls_program_close(e, &e->eval);
    ls_program_close(e, &e->train);
    if (e->arena)
        ls_backend_give(e->backend, e->arena, e->arena_bytes);
    ls_gradients_close(e);
    ls_tree_release(&e->own_tree);
    ls_store_free(e->store);
    *e = (struct ls_engine){0};
}

static enum ls_status share_values(struct ls_engine *e, const struct ls_net *net, int tensor)
{
    enum ls_status st = LS_OK;
    size_t count = (size_t)ls_shape_count(&net->graph.tensors[tensor].shape);
    float *values = ls_alloc(count, sizeof *values);
    if (!values)
        return LS_FAILED;
    LS_TRY_GOTO(free_values, e->backend->read(net->program, tensor, values));
    LS_TRY_GOTO(free_values, ls_comm_broadcast(e->comm, 0, values, count * sizeof *values));
    if (ls_comm_rank(e->comm) > 0)
        st = e->backend->write(net->program, tensor, values);
free_values:
    ls_free(values);
    return st;
}

enum ls_status ls_engine_share(struct ls_engine *e)
{
    const struct ls_net *net = ls_engine_net(e);
    for (int t = 0; e->comm && !e->parts && t < net->graph.n_tensors; t++) {
        if (ls_role_kept(net->graph.tensors[t].role) && !net->graph.tensors[t].apart)
            LS_TRY(share_values(e, net, t));
    }
    return ls_host_copy_pull_all(e);
}

enum ls_status ls_engine_update(struct ls_engine *e, int bucket, const struct ls_run *run)
{
    const struct ls_bucket *b = &e->buckets[bucket];
    struct ls_run known = *run;
    bool stays = b->local && !ls_split_mates(e); /* no other process has added to it */
    if (e->grads != e->kept && !stays)
        LS_TRY(e->backend->queue->send(e->train.program, e->kept + b->first, e->grads + b->first, b->count));
    if (e->updates_together && bucket + 1 < e->n_buckets)
        return LS_OK;
    if (e->updates_together) {
        LS_TRY(ls_clip_gather(e, &known));
        return e->backend->run(e->train.program, e->train.end, e->train.graph.n_nodes, &known);
    }
    for (int i = e->update_first[bucket]; i < e->update_first[bucket + 1];) {
        int first = e->update_nodes[i], last = first;
        while (i < e->update_first[bucket + 1] && e->update_nodes[i] == last)
            i++, last++;
        LS_TRY(e->backend->run(e->train.program, first, last, run));
    }
    return LS_OK;
}
