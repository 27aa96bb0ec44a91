#include "exec/programs.h"
#include "exec/dtype.h"
#include "exec/pipeline/pipeline.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"
#include "exec/tta.h"
#include "backend/core/store.h"
#include "base/files/cache_dir.h"
#include "base/files/file.h"
#include "base/log.h"
#include "model/model.h"
#include "optim/optim.h"

#include <string.h>

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

/* What can be wrong with the layout that was named, for a training graph without gradients. */
static enum ls_status check_layout(const struct ls_options *o, const struct ls_backend *backend, int processes,
                                   struct ls_graph *g)
{
    struct ls_engine e = {.backend = backend};
    if (ls_mesh_is_auto(o->parallel))
        return LS_OK;
    LS_TRY(ls_mesh_parse(o->parallel, processes, 0, &e.mesh));
    LS_TRY(ls_pipeline_check(o, &e));
    LS_TRY(ls_split_check(o, &e));
    LS_TRY(ls_split_graph(&e, g));
    return ls_mesh_has_pipeline(o->parallel) ? ls_pipeline_check_cut(o, backend, g) : LS_OK;
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
    if (st == LS_OK)
        st = check_layout(o, backend, processes, &g);
    ls_graph_release(&g);
    if (st == LS_OK)
        st = ls_shards_check(o, backend, processes);
    return st == LS_OK ? ls_dtype_check(o, backend) : st;
}

static enum ls_status prepare(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
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

static enum ls_status make_train(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan)
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
static enum ls_status make_eval(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
                                struct ls_views views, struct ls_net *net)
{
    const char *own = e->train.program ? e->backend->choices(e->train.program) : "";
    char *lines = ls_format("%s%s", plan->lines ? plan->lines : "", own);
    struct ls_given_plan known = {.lines = lines, .name = e->train.program || !plan->lines ? NULL : plan->name};
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

void ls_program_close(struct ls_engine *e, struct ls_net *net)
{
    if (net->program)
        e->backend->release(net->program);
    ls_graph_release(&net->graph);
}

static enum ls_status make_programs(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
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
static enum ls_status make_same_programs(struct ls_engine *e, const struct ls_options *o,
                                         const struct ls_given_plan *plan, unsigned uses)
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
        st = make_programs(e, o, &(struct ls_given_plan){text, "rank 0's plan", true}, uses);
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

char *ls_engine_joined(const struct ls_engine *e)
{
    return list_joined(e->backend, &e->train, ls_strdup(""));
}

/* The plan has the kernels of the whole model. */
static enum ls_status take_whole(struct ls_engine *e, const struct ls_given_plan *plan)
{
    struct ls_pipeline *p = e->pipeline;
    p->choices[0] = ls_strdup(plan->lines ? plan->lines : "");
    p->choices[1] = ls_strdup("");
    p->joined = ls_strdup("");
    return p->choices[0] && p->choices[1] && p->joined ? LS_OK : LS_FAILED;
}

/* The kernels of the whole model, as one process would choose them: so stages compute the bits of one process. The programs
 * never run, and their memory is never touched: it is the host's, which costs nothing then. */
static enum ls_status choose_whole(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
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
    ls_program_close(&whole, &whole.eval);
    ls_program_close(&whole, &whole.train);
    ls_store_free(whole.store);
    return st;
}

/* Rank 0 chooses for the whole model, and every stage follows. */
static enum ls_status make_stage(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
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
        lines ? make_programs(e, o, &(struct ls_given_plan){lines, "rank 0's plan", true}, uses) : LS_FAILED;
    ls_free(lines);
    return st == LS_OK ? ls_engine_open_parts(e, NULL) : st;
}

enum ls_status ls_program_prepare_lane(struct ls_engine *e, const struct ls_options *o, struct ls_net *net)
{
    return prepare(e, o, &(struct ls_given_plan){e->pipeline->choices[0], "rank 0's plan", true}, net, true);
}

enum ls_status ls_programs_make(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
                                unsigned uses)
{
    if (e->pipeline && !e->comm) /* only a plan, or to be measured */
        LS_TRY(uses & LS_ENGINE_MEASURE ? take_whole(e, plan) : choose_whole(e, o, plan, uses));
    LS_TRY(!e->comm      ? make_programs(e, o, plan, uses)
           : e->pipeline ? make_stage(e, o, plan, uses)
                         : make_same_programs(e, o, plan, uses));
    if (!plan->lines && (!e->comm || ls_comm_rank(e->comm) == 0))
        warn_no_cache(e, o);
    return LS_OK;
}
