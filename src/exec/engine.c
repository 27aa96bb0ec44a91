#define _GNU_SOURCE
#include "exec/engine.h"
#include "exec/dtype.h"
#include "exec/pipeline/pipeline.h"
#include "backend/core/store.h"
#include "base/system/cgroup.h"
#include "base/files/cache_dir.h"
#include "base/files/file.h"
#include "base/log.h"
#include "model/model.h"
#include "optim/optim.h"
#include "exec/clip.h"
#include "exec/identity.h"
#include "exec/shards/params.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"
#include "exec/tta.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

char *ls_engine_plan_cache(const struct ls_options *o)
{
    return o->plan_cache ? ls_strdup(o->plan_cache) : ls_cache_path("plans");
}

/* Are kernels to be measured? */
static bool tunes(const struct ls_engine *e, const struct ls_options *o)
{
    return o->tune == LS_AUTO ? e->backend->measures : o->tune == LS_ON;
}

/* Measured kernels that cannot be kept cost time at every start, and nothing else. */
static void warn_no_cache(const struct ls_engine *e, const struct ls_options *o)
{
    char *cache = ls_engine_plan_cache(o);
    if (tunes(e, o) && !o->quiet && (!cache || !ls_file_can_write(cache)))
        ls_warn(
            "no plan cache: %s%s; kernels are measured again at each start; --plan-cache FILE or XDG_CACHE_HOME names "
            "another place",
            cache ? cache : "there is no home directory", cache ? " cannot be written" : "");
    ls_free(cache);
}

static enum ls_status build(const struct ls_options *o, const struct ls_backend *b, const struct ls_model_size *size,
                            bool training, struct ls_views views, struct ls_graph *g)
{
    struct ls_model_request request = {
        .model = o->model,
        .yaml = o->model_yaml,
        .size = *size,
        .training = training,
        .dtype = ls_dtype_activations(o),
        .loss = o->loss,
        .smoothing = training ? (float)o->label_smoothing : 0.0f,
        .dropout = (float)o->dropout,
        .drop_path = (float)o->drop_path,
        .mixup = (float)o->mixup,
        .cutmix = (float)o->cutmix,
        .views = views,
    };
    LS_TRY(ls_model_build(&request, g));
    if (training && o->freeze)
        LS_TRY(ls_graph_freeze(g, o->freeze));
    if (training && o->zero_init_residual && ls_graph_zero_residuals(g) == 0)
        return ls_fail(LS_USAGE, "--zero-init-residual: %s has no residual block that ends with BN; leave it out",
                       o->model);
    return ls_graph_fuse(g, b->dense_1x1);
}

static enum ls_status check_tta(const struct ls_options *o, struct ls_tta *tta)
{
    LS_TRY(ls_tta_parse(o->tta, tta));
    if (tta->least < 1 && ls_mesh_divides_model(o->parallel))
        return ls_fail(LS_USAGE, "--tta least: each process needs the whole model; leave out --parallel, or least");
    return LS_OK;
}

enum ls_status ls_engine_check(const struct ls_options *o, const struct ls_model_size *size, int processes)
{
    struct ls_graph g;
    struct ls_tta tta;
    const struct ls_backend *backend;
    LS_TRY(ls_backend_open(o->backend, &backend));
    LS_TRY(check_tta(o, &tta));
    ls_graph_init(&g);
    enum ls_status st = build(o, backend, size, true, tta.views, &g);
    if (st == LS_OK)
        st = ls_optim_rates(&g, o);
    if (st == LS_OK && ls_mesh_has_pipeline(o->parallel))
        st = ls_pipeline_check_cut(o, &g);
    ls_graph_release(&g);
    if (st == LS_OK)
        st = ls_shards_check(o, backend, processes);
    return st == LS_OK ? ls_dtype_check(o, backend) : st;
}

/* Kernels to be taken instead of choosing some. */
struct given_plan {
    const char *lines, *name; /* name: for people; NULL: what it lacks is chosen without a word */
    bool binding;
};

static enum ls_status prepare(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                              struct ls_net *net, bool keep_grads)
{
    bool tune = tunes(e, o);
    char *cache = tune ? ls_engine_plan_cache(o) : NULL; /* without --tune nothing is read from it */
    struct ls_backend_options options = {
        .threads = e->threads,
        .reuse = o->reuse,
        .keep_grads = keep_grads,
        .tune = tune,
        .quiet = o->quiet,
        .plan_only = e->plan_only,
        .cache = cache,
        .plan = plan->lines,
        .plan_name = plan->name,
        .plan_binding = plan->binding,
        .tf32 = ls_dtype_tf32(o),
        .fast = o->fast,
        .loss_scale = (float)o->loss_scale,
    };
    enum ls_status st = ls_dtype_check(o, e->backend);
    if (st == LS_OK)
        st = e->backend->prepare(&options, &net->graph, e->store, &net->program);
    ls_free(cache);
    if (st != LS_OK)
        return st;
    size_t bytes = e->backend->arena_bytes(net->program);
    e->arena_bytes = bytes > e->arena_bytes ? bytes : e->arena_bytes;
    net->end = net->graph.n_nodes;
    return LS_OK;
}

/* One pass is a whole step: nothing to sum, so gradients need not outlive their updates. */
static bool one_pass(const struct ls_engine *e)
{
    return e->strategy->updates_in_pass && e->tree->replicas * e->passes == 1 && !e->pipeline;
}

enum ls_status ls_engine_graph(const struct ls_options *o, const struct ls_backend *b, const struct ls_model_size *size,
                               struct ls_graph *g)
{
    LS_TRY(build(o, b, size, true, (struct ls_views){0}, g));
    LS_TRY(ls_graph_backward(g));
    return ls_optim_update(g, o, false);
}

static bool shards_parameters(const struct ls_engine *e, const struct ls_options *o)
{
    return e->strategy->shards_state && strcmp(o->shard, "parameters") == 0;
}

static enum ls_status make_train(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan)
{
    struct ls_net *net = &e->train;
    /* Enqueued updates run best all at once. Clipping needs all gradients before the first update; averages stand last. */
    bool interleave = one_pass(e) && e->backend->queue->delay == 0 && o->clip_norm <= 0 && o->ema <= 0;
    LS_TRY(build(o, e->backend, &e->size, true, (struct ls_views){0}, &net->graph));
    LS_TRY(ls_split_graph(e, &net->graph));
    LS_TRY(ls_graph_backward(&net->graph));
    LS_TRY(ls_optim_update(&net->graph, o, interleave));
    if (e->pipeline)
        LS_TRY(ls_pipeline_take_stage(e, net));
    if (e->strategy->shards_state)
        ls_shards_mark(&net->graph, shards_parameters(e, o));
    LS_TRY(prepare(e, o, plan, net, !one_pass(e)));
    while (!one_pass(e) && net->end > 0 && net->graph.nodes[net->end - 1].phase == LS_UPDATE)
        net->end--;
    e->n_grads = e->backend->grad_bytes(net->program) / sizeof(float);
    return LS_OK;
}

/* Evaluation takes the kernels of the training program where it has the same layers. */
static enum ls_status make_eval(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                                struct ls_views views, struct ls_net *net)
{
    const char *own = e->train.program ? e->backend->choices(e->train.program) : "";
    char *lines = ls_format("%s%s", plan->lines ? plan->lines : "", own);
    struct given_plan known = {.lines = lines, .name = e->train.program || !plan->lines ? NULL : plan->name};
    enum ls_status st = lines ? build(o, e->backend, &e->size, false, views, &net->graph) : LS_FAILED;
    if (st == LS_OK && e->pipeline)
        st = ls_pipeline_take_stage(e, net);
    if (st == LS_OK)
        st = ls_split_graph(e, &net->graph);
    if (st == LS_OK && e->train.program && shards_parameters(e, o))
        ls_shards_mark_like(&net->graph, &e->train.graph);
    if (st == LS_OK)
        st = prepare(e, o, &known, net, false);
    ls_free(lines);
    return st;
}

/* Memory of the host for gradients, where the other processes of this node can read it. */
static enum ls_status take_grads(struct ls_engine *e, size_t floats, float **memory)
{
    void *region;
    LS_TRY(e->comm ? ls_comm_region(e->comm, floats * sizeof(float), &region)
                   : ls_region_map(floats * sizeof(float), &region));
    *memory = region;
    e->backend->queue->pin(region, floats * sizeof(float));
    return LS_OK;
}

static enum ls_status take_kept(struct ls_engine *e)
{
    bool own_memory = e->backend->queue->own_memory;
    int most = ls_tree_most_parts(e->tree);
    void *memory = NULL;
    if (e->n_grads == 0)
        return LS_OK;
    if (own_memory)
        LS_TRY(ls_backend_take(e->backend, e->n_grads * sizeof(float), &memory));
    e->kept = memory;
    LS_TRY(ls_peers_open(e));
    if (e->drops_grads) {
        LS_TRY(ls_region_map(e->n_grads * sizeof(float), &memory));
        e->grads = memory;
    } else if (own_memory && e->strategy->no_reduce)
        e->grads = e->kept;
    else
        LS_TRY(take_grads(e, e->n_grads, &e->grads));
    if (!own_memory)
        e->kept = e->grads;
    return most > 1 ? take_grads(e, (size_t)(most - 1) * e->n_grads, &e->side) : LS_OK;
}

/* Memory of take_grads; comm gives its regions back itself. */
static void give_grads(struct ls_engine *e, float *memory, size_t floats)
{
    if (!memory)
        return;
    e->backend->queue->unpin(memory);
    if (!e->comm || e->drops_grads)
        ls_region_unmap(memory, floats * sizeof *memory);
}

static void give_kept(struct ls_engine *e)
{
    bool own_memory = e->backend && e->backend->queue->own_memory;
    if (own_memory)
        ls_backend_give(e->backend, e->kept, e->n_grads * sizeof *e->kept);
    give_grads(e, own_memory && e->grads == e->kept ? NULL : e->grads, e->n_grads);
    give_grads(e, e->side, (size_t)(e->side ? ls_tree_most_parts(e->tree) - 1 : 0) * e->n_grads);
}

static enum ls_status bind_memory(struct ls_engine *e, const struct ls_options *o)
{
    LS_TRY(ls_backend_take(e->backend, e->arena_bytes, &e->arena));
    e->drops_grads = e->comm && e->strategy->shards_state && e->tree->replicas == e->tree->size &&
                     ls_params_drop_gradients(o, e->passes);
    LS_TRY(take_kept(e));
    LS_TRY(ls_params_open(e, o));
    if (e->train.program)
        LS_TRY(e->backend->bind(e->train.program, e->arena, e->kept));
    if (e->eval.program)
        LS_TRY(e->backend->bind(e->eval.program, e->arena, NULL));
    if (e->glance.program)
        LS_TRY(e->backend->bind(e->glance.program, e->arena, NULL));
    return LS_OK;
}

const struct ls_net *ls_engine_net(const struct ls_engine *e)
{
    return e->train.program ? &e->train : &e->eval;
}

const char *ls_engine_train_choices(const struct ls_engine *e)
{
    return e->pipeline ? e->pipeline->choices[0] : e->backend->choices(ls_engine_net(e)->program);
}

char *ls_engine_choices(const struct ls_engine *e)
{
    if (e->pipeline)
        return ls_format("%s%s", e->pipeline->choices[0], e->pipeline->choices[1]);
    const struct ls_program *train = e->train.program, *eval = e->eval.program, *glance = e->glance.program;
    return ls_format("%s%s%s", train ? e->backend->choices(train) : "", eval ? e->backend->choices(eval) : "",
                     glance ? e->backend->choices(glance) : "");
}

static void close_net(struct ls_engine *e, struct ls_net *net)
{
    if (net->program)
        e->backend->release(net->program);
    ls_graph_release(&net->graph);
}

static enum ls_status make_programs(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                                    unsigned uses)
{
    struct ls_tta tta;
    LS_TRY(check_tta(o, &tta));
    if (uses & LS_ENGINE_TRAIN)
        LS_TRY(make_train(e, o, plan));
    if (uses & LS_ENGINE_EVAL)
        LS_TRY(make_eval(e, o, plan, tta.views, &e->eval));
    if ((uses & LS_ENGINE_EVAL) && tta.least < 1)
        LS_TRY(make_eval(e, o, plan, (struct ls_views){0}, &e->glance));
    return LS_OK;
}

enum ls_status ls_engine_share_text(struct ls_comm *comm, char **text)
{
    uint64_t bytes = *text ? strlen(*text) + 1 : 0;
    LS_TRY(ls_comm_broadcast(comm, 0, &bytes, sizeof bytes));
    if (!*text && !(*text = ls_alloc(bytes, 1)))
        return LS_FAILED;
    return ls_comm_broadcast(comm, 0, *text, bytes);
}

/* Rank 0 chooses, the others follow. */
static enum ls_status make_same_programs(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                                         unsigned uses)
{
    bool root = ls_comm_rank(e->comm) == 0;
    char *text = NULL;
    if (root) {
        LS_TRY(make_programs(e, o, plan, uses));
        text = ls_engine_choices(e);
        if (!text)
            return LS_FAILED;
    }
    enum ls_status st = ls_engine_share_text(e->comm, &text);
    if (st == LS_OK && !root)
        st = make_programs(e, o, &(struct given_plan){text, "rank 0's plan", true}, uses);
    ls_free(text);
    return st;
}

/* Appends the pairs of layers that a program computes together to the text, as parallel/stages.h has them; takes the text. */
static char *list_joined(const struct ls_backend *b, const struct ls_net *net, char *text)
{
    const struct ls_graph *g = &net->graph;
    for (int n = 0; b->joined && net->program && text && n < g->n_nodes; n++)
        for (int other = 0; text && other < n; other++) {
            if (!b->joined(net->program, n, other) || strcmp(g->nodes[n].name, g->nodes[other].name) == 0)
                continue;
            char *more = ls_format("%s%s\t%s\n", text, g->nodes[other].name, g->nodes[n].name);
            ls_free(text);
            text = more;
        }
    return text;
}

/* The kernels of the whole model, as one process would choose them: so stages compute the bits of one process. The programs
 * never run, and their memory is never touched: it is the host's, which costs nothing then. */
static enum ls_status choose_whole(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                                   unsigned uses)
{
    struct ls_pipeline *p = e->pipeline;
    struct ls_engine whole = *e;
    ls_graph_init(&whole.train.graph);
    ls_graph_init(&whole.eval.graph);
    ls_graph_init(&whole.glance.graph);
    whole.pipeline = NULL;
    whole.store = ls_store_new(ls_backend_find("ref"));
    enum ls_status st = whole.store ? make_programs(&whole, o, plan, uses) : LS_FAILED;
    if (st == LS_OK) {
        p->choices[0] = ls_strdup(e->backend->choices(whole.train.program));
        p->choices[1] = ls_strdup(whole.eval.program ? e->backend->choices(whole.eval.program) : "");
        p->joined = list_joined(e->backend, &whole.train, ls_strdup(""));
        p->joined = list_joined(e->backend, &whole.eval, p->joined);
        st = p->choices[0] && p->choices[1] && p->joined ? LS_OK : LS_FAILED;
    }
    close_net(&whole, &whole.eval);
    close_net(&whole, &whole.train);
    ls_store_free(whole.store);
    return st;
}

/* Rank 0 chooses for the whole model, and every stage follows. */
static enum ls_status make_stage(struct ls_engine *e, const struct ls_options *o, const struct given_plan *plan,
                                 unsigned uses)
{
    struct ls_pipeline *p = e->pipeline;
    if (ls_comm_rank(e->comm) == 0)
        LS_TRY(choose_whole(e, o, plan, uses));
    LS_TRY(ls_engine_share_text(e->comm, &p->choices[0]));
    LS_TRY(ls_engine_share_text(e->comm, &p->choices[1]));
    LS_TRY(ls_engine_share_text(e->comm, &p->joined));
    char *lines = ls_engine_choices(e);
    enum ls_status st =
        lines ? make_programs(e, o, &(struct given_plan){lines, "rank 0's plan", true}, uses) : LS_FAILED;
    ls_free(lines);
    return st == LS_OK ? ls_engine_open_parts(e, NULL) : st;
}

/* Another lane of a pipeline computes with the same kernels. */
static enum ls_status prepare_lane(struct ls_engine *e, const struct ls_options *o, struct ls_net *net)
{
    return prepare(e, o, &(struct given_plan){e->pipeline->choices[0], "rank 0's plan", true}, net, true);
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

enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, struct ls_comm *comm,
                              const struct ls_model_size *size, const char *plan, unsigned uses)
{
    enum ls_status st = LS_OK;
    bool train = uses & LS_ENGINE_TRAIN;
    struct given_plan given = {.lines = plan, .name = "the run's plan"};
    char *lines = NULL;
    *e = (struct ls_engine){
        .size = *size, .passes = train ? (int)o->accumulate : 1, .plan_only = uses & LS_ENGINE_PREDICT};
    e->comm = comm && ls_comm_size(comm) > 1 ? comm : NULL;
    ls_graph_init(&e->train.graph);
    ls_graph_init(&e->eval.graph);
    ls_graph_init(&e->glance.graph);
    ls_graph_init(&e->whole);
    if (train)
        LS_TRY_GOTO(failed, take_mesh(e, o, uses));
    e->threads = o->threads > 0 ? (int)o->threads : ls_engine_cores();
    if (o->plan) {
        LS_TRY_GOTO(failed, take_plan(e, o, &lines));
        given = (struct given_plan){lines, "--plan", train};
    }
    omp_set_num_threads(e->threads);
    LS_TRY_GOTO(failed, ls_backend_open(o->backend, &e->backend));
    e->store = ls_store_new(e->backend);
    if (!e->store) {
        st = LS_FAILED;
        goto failed;
    }
    LS_TRY_GOTO(failed, train ? ls_pipeline_new(e, o) : LS_OK);
    LS_TRY_GOTO(failed, train ? ls_split_check(o, e) : LS_OK);
    LS_TRY_GOTO(failed, take_tree(e, o, train));
    LS_TRY_GOTO(failed, train ? ls_peers_plan(e, o) : LS_OK);
    if (e->pipeline && !e->comm) /* only a plan */
        LS_TRY_GOTO(failed, choose_whole(e, o, &given, uses));
    LS_TRY_GOTO(failed, !e->comm      ? make_programs(e, o, &given, uses)
                        : e->pipeline ? make_stage(e, o, &given, uses)
                                      : make_same_programs(e, o, &given, uses));
    LS_TRY_GOTO(failed, train ? open_rows(e, o) : LS_OK);
    if (!given.lines && (!e->comm || ls_comm_rank(e->comm) == 0))
        warn_no_cache(e, o);
    if (uses & LS_ENGINE_PREDICT) {
        e->store_bytes = ls_store_bytes(e->store);
        ls_free(lines);
        return LS_OK;
    }
    LS_TRY_GOTO(failed, bind_memory(e, o));
    if (uses & LS_ENGINE_MEASURE) {
        ls_free(lines);
        return LS_OK;
    }
    if (e->pipeline)
        LS_TRY_GOTO(failed, ls_pipeline_open(e, o, prepare_lane));
    LS_TRY_GOTO(failed, train ? ls_split_open(e, o) : LS_OK);
    LS_TRY_GOTO(failed, ls_clip_open(e));
    LS_TRY_GOTO(failed, e->params ? ls_engine_make_buckets(e, o) : LS_OK); /* which say where start values go */
    e->store_bytes = ls_store_bytes(e->store);
    LS_TRY_GOTO(failed, ls_engine_start_values(e, o->seed));
    ls_free(lines);
    return LS_OK;
failed:
    ls_free(lines);
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
    close_net(e, &e->glance);
    close_net(e, &e->eval);
    close_net(e, &e->train);
    if (e->arena)
        ls_backend_give(e->backend, e->arena, e->arena_bytes);
    give_kept(e);
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
    struct ls_run with_squares = *run;
    if (e->grads != e->kept)
        LS_TRY(e->backend->queue->send(e->train.program, e->kept + b->first, e->grads + b->first, b->count));
    if (e->updates_together && bucket + 1 < e->n_buckets)
        return LS_OK;
    if (e->updates_together) {
        LS_TRY(ls_clip_gather(e, &with_squares.squares));
        return e->backend->run(e->train.program, e->train.end, e->train.graph.n_nodes, &with_squares);
    }
    for (int i = e->update_first[bucket]; i < e->update_first[bucket + 1];) {
        int first = e->update_nodes[i], last = first;
        while (i < e->update_first[bucket + 1] && e->update_nodes[i] == last)
            i++, last++;
        LS_TRY(e->backend->run(e->train.program, first, last, run));
    }
    return LS_OK;
}
