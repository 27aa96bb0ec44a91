#define _GNU_SOURCE
#include "train/engine.h"
#include "backend/store.h"
#include "base/file.h"
#include "base/log.h"
#include "model/model.h"
#include "optim/optim.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int ls_engine_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1)
        return 1;
    return CPU_COUNT(&set);
}

enum ls_status ls_engine_pass_batch(const struct ls_options *o, int64_t *batch)
{
    int64_t parts = o->replicas * o->accumulate;
    if (o->batch % parts != 0)
        return ls_fail(
            LS_USAGE,
            "--batch %lld cannot be dealt evenly to %lld replicas of %lld passes; use a multiple of %lld, such "
            "as %lld",
            (long long)o->batch, (long long)o->replicas, (long long)o->accumulate, (long long)parts,
            (long long)((o->batch / parts + 1) * parts));
    *batch = o->batch / parts;
    return LS_OK;
}

/* ~/.cache/lockstep/plans unless told; NULL when there is no home. Freed by ls_free. */
static char *plan_cache(const struct ls_options *o)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (o->plan_cache)
        return ls_strdup(o->plan_cache);
    if (cache && *cache)
        return ls_format("%s/lockstep/plans", cache);
    return home && *home ? ls_format("%s/.cache/lockstep/plans", home) : NULL;
}

static enum ls_status build(const struct ls_options *o, const struct ls_model_size *size, bool training,
                            struct ls_graph *g)
{
    struct ls_model_request request = {
        .model = o->model,
        .size = *size,
        .training = training,
        .dtype = strcmp(o->dtype, "bf16") == 0 ? LS_BF16 : LS_F32,
        .loss = o->loss,
        .smoothing = training ? (float)o->label_smoothing : 0.0f,
        .dropout = (float)o->dropout,
    };
    LS_TRY(ls_model_build(&request, g));
    return ls_graph_fuse(g);
}

static enum ls_status prepare(struct ls_engine *e, const struct ls_options *o, const char *record, struct ls_net *net,
                              bool keep_grads)
{
    char *cache = plan_cache(o);
    struct ls_backend_options options = {
        .threads = e->threads,
        .reuse = o->reuse,
        .keep_grads = keep_grads,
        .tune = o->tune,
        .cache = cache,
        .record = record,
    };
    const char *why_not = e->backend->refuses(net->graph.act_dtype);
    enum ls_status st = why_not ? ls_fail(LS_USAGE, "--dtype %s: %s", o->dtype, why_not)
                                : e->backend->prepare(&options, &net->graph, e->store, &net->program);
    ls_free(cache);
    if (st != LS_OK)
        return st;
    size_t bytes = e->backend->arena_bytes(net->program);
    e->arena_bytes = bytes > e->arena_bytes ? bytes : e->arena_bytes;
    net->end = net->graph.n_nodes;
    return LS_OK;
}

static enum ls_status make_train(struct ls_engine *e, const struct ls_options *o, const char *record)
{
    bool one_pass = e->replicas * e->passes == 1;
    struct ls_net *net = &e->train;
    struct ls_optim optim = {
        .name = o->optimizer,
        .momentum = (float)o->momentum,
        .weight_decay = (float)o->weight_decay,
        .trust = (float)o->trust,
        .nesterov = o->nesterov,
        .decay_all = o->decay_all,
        .interleave = one_pass,
    };
    LS_TRY(build(o, &e->size, true, &net->graph));
    LS_TRY(ls_graph_backward(&net->graph));
    LS_TRY(ls_optim_update(&net->graph, &optim));
    LS_TRY(prepare(e, o, record, net, !one_pass));
    while (!one_pass && net->end > 0 && net->graph.nodes[net->end - 1].phase == LS_UPDATE)
        net->end--;
    return LS_OK;
}

static enum ls_status make_eval(struct ls_engine *e, const struct ls_options *o, const char *record)
{
    LS_TRY(build(o, &e->size, false, &e->eval.graph));
    return prepare(e, o, record, &e->eval, false);
}

static enum ls_status bind_arena(struct ls_engine *e)
{
    LS_TRY(ls_region_map(e->arena_bytes, &e->arena));
    if (e->train.program)
        LS_TRY(e->backend->bind(e->train.program, e->arena));
    if (e->eval.program)
        LS_TRY(e->backend->bind(e->eval.program, e->arena));
    return LS_OK;
}

const struct ls_net *ls_engine_net(const struct ls_engine *e)
{
    return e->train.program ? &e->train : &e->eval;
}

enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, const struct ls_model_size *size,
                              const char *record, unsigned uses)
{
    enum ls_status st = LS_OK;
    *e = (struct ls_engine){.size = *size, .replicas = 1, .passes = 1};
    ls_graph_init(&e->train.graph);
    ls_graph_init(&e->eval.graph);
    e->threads = o->threads > 0 ? (int)o->threads : ls_engine_cores();
    omp_set_num_threads(e->threads);
    e->backend = ls_backend_find(o->backend);
    if (!e->backend) {
        st = ls_fail(LS_USAGE, "--backend %s: this program was built without it", o->backend);
        goto failed;
    }
    e->store = ls_store_new();
    if (!e->store) {
        st = LS_FAILED;
        goto failed;
    }
    if (uses & LS_ENGINE_TRAIN) {
        e->replicas = (int)o->replicas;
        e->passes = (int)o->accumulate;
        LS_TRY_GOTO(failed, make_train(e, o, record));
    }
    if (uses & LS_ENGINE_EVAL)
        LS_TRY_GOTO(failed, make_eval(e, o, record));
    LS_TRY_GOTO(failed, bind_arena(e));
    e->store_bytes = ls_store_bytes(e->store);
    const struct ls_net *net = ls_engine_net(e);
    LS_TRY_GOTO(failed, ls_program_init_params(e->backend, net->program, &net->graph, o->seed));
    return LS_OK;
failed:
    ls_engine_close(e);
    return st;
}

static void close_net(struct ls_engine *e, struct ls_net *net)
{
    if (net->program)
        e->backend->release(net->program);
    ls_graph_release(&net->graph);
}

void ls_engine_close(struct ls_engine *e)
{
    close_net(e, &e->eval);
    close_net(e, &e->train);
    ls_region_unmap(e->arena, e->arena_bytes);
    ls_store_free(e->store);
    *e = (struct ls_engine){0};
}

enum ls_status ls_engine_record(const struct ls_engine *e, const char *path)
{
    const struct ls_program *train = e->train.program, *eval = e->eval.program;
    char *text = ls_format("%s%s", train ? e->backend->choices(train) : "", eval ? e->backend->choices(eval) : "");
    enum ls_status st = text ? ls_file_write(path, text, strlen(text)) : LS_FAILED;
    ls_free(text);
    return st;
}

enum ls_status ls_engine_gradients(const struct ls_engine *e, struct ls_grad_range **ranges, int *n)
{
    const struct ls_graph *g = &e->train.graph;
    struct ls_grad_range *list = ls_alloc((size_t)g->n_tensors, sizeof *list);
    if (!list)
        return LS_FAILED;
    *n = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        size_t bytes = 0;
        if (g->tensors[t].role != LS_ROLE_GRAD)
            continue;
        void *memory = e->backend->memory(e->train.program, t, &bytes);
        if (!memory || bytes % sizeof(float) != 0) {
            ls_free(list);
            return ls_fail(LS_FAILED, "backend %s keeps no f32 memory for %s", e->backend->name, g->tensors[t].name);
        }
        list[(*n)++] = (struct ls_grad_range){memory, bytes / sizeof(float)};
    }
    *ranges = list;
    return LS_OK;
}
