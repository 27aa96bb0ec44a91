/* A stepper opened and closed: its strategy, and the memory that it is fed from. */
#include "exec/stepper.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/device/host_copy.h"
#include "exec/device/peers.h"
#include "exec/pipeline/pipeline.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"
#include "sync/compress.h"

#include <string.h>

/* --- the feed ------------------------------------------------------------------------------------------------- */

static enum ls_status next_from_loader(void *context, const struct ls_slot **slot)
{
    return ls_loader_next(context, slot);
}

static bool loader_ready(void *context, int64_t slots)
{
    return ls_loader_ready(context, slots);
}

struct ls_feed ls_feed_loader(struct ls_loader *loader)
{
    return (struct ls_feed){next_from_loader, loader, loader_ready};
}

void ls_feed_pin(const struct ls_engine *e, struct ls_loader *loader)
{
    size_t bytes;
    if (!loader)
        return;
    void *region = ls_loader_region(loader, &bytes);
    e->backend->queue->pin(region, bytes);
}

void ls_feed_unpin(const struct ls_engine *e, struct ls_loader *loader)
{
    size_t bytes;
    if (loader && e->backend)
        e->backend->queue->unpin(ls_loader_region(loader, &bytes));
}

/* --- the strategy --------------------------------------------------------------------------------------------- */

/* A server updates for steps and rates that its workers name. */
static enum ls_status update(void *context, int bucket)
{
    struct ls_stepper *s = context;
    s->run.step = s->sync.step;
    s->run.lr = (float)s->sync.lr;
    if (s->replicas.n_slices == 0)
        ls_trace_step(s->trace, s->sync.step + 1);
    double begin = ls_trace_begin(s->track);
    LS_TRY(ls_engine_update(s->engine, bucket, &s->run));
    ls_trace_end(s->track, begin, &(struct ls_slice){.kind = LS_SLICE_UPDATE, .name = "update", .number = bucket});
    return LS_OK;
}

static enum ls_status update_piece(void *context, int piece)
{
    struct ls_stepper *s = context;
    double begin = ls_trace_begin(s->track);
    LS_TRY(ls_shards_update(s->engine, piece, &s->run));
    ls_trace_end(s->track, begin, &(struct ls_slice){.kind = LS_SLICE_UPDATE, .name = "update", .number = piece});
    return LS_OK;
}

static enum ls_status take_piece(void *context, int piece)
{
    struct ls_stepper *s = context;
    double begin = ls_trace_begin(s->track);
    LS_TRY(ls_shards_take(s->engine, piece, &s->run));
    ls_trace_end(s->track, begin, &(struct ls_slice){.kind = LS_SLICE_UPDATE, .name = "take", .number = piece});
    return LS_OK;
}

static enum ls_status fetch_values(void *context, int bucket, enum ls_sync_part part)
{
    const struct ls_stepper *s = context;
    return ls_host_copy_fetch(s->engine, bucket, part);
}

static enum ls_status values_arrived(void *context)
{
    const struct ls_stepper *s = context;
    return ls_host_copy_arrived(s->engine);
}

/* In fp16 a step is left out where a gradient overflows: all must see the same ones, as they are. */
static enum ls_status check_scaled(const struct ls_options *o, const struct ls_sync_ops *ops)
{
    if (ops->shards)
        return ls_fail(
            LS_USAGE,
            "--dtype fp16: with --sync %s no process sees all gradients, so none can tell when one overflows; "
            "use --dtype bf16, or --sync overlap, allreduce, gather or local",
            o->sync);
    const struct ls_codec *codec = ls_compress_find(o->compress);
    if (strcmp(o->compress, "none") != 0 && !(codec && codec->shows_overflow))
        return ls_fail(
            LS_USAGE,
            "--dtype fp16: its gradients are scaled up and may overflow, which --compress %s would hide or keep "
            "for ever; use --dtype bf16, or --compress bf16 or none",
            o->compress);
    return LS_OK;
}

static enum ls_status check_strategy(const struct ls_engine *e, const struct ls_options *o)
{
    const struct ls_sync_ops *ops = e->strategy;
    if (ops->local_mean && !ops->servers && e->tree->replicas != e->tree->size)
        return ls_fail(LS_USAGE, "--sync %s needs as many replicas as workers: leave --replicas out, or give %d",
                       o->sync, e->tree->size);
    if (o->ema > 0 && ops->servers)
        return ls_fail(LS_USAGE,
                       "--ema: with --sync %s%s servers hold the averages, which the processes that evaluate lack; use "
                       "--sync overlap, allreduce, gather or local, or server without --servers",
                       o->sync, o->servers > 0 ? " --servers" : "");
    if (o->clip_norm > 0 && ops->shards)
        return ls_fail(
            LS_USAGE,
            "--clip-norm: with --sync %s no process sees all gradients of a step, so none can tell their norm; "
            "use --sync overlap, allreduce, gather or local",
            o->sync);
    if (e->train.graph.act_dtype == LS_F16 && !ops->no_reduce)
        return check_scaled(o, ops);
    return LS_OK;
}

static enum ls_status open_sync(struct ls_stepper *s, const struct ls_options *o)
{
    struct ls_engine *e = s->engine;
    LS_TRY(check_strategy(e, o));
    LS_TRY(ls_engine_make_buckets(e, o));
    s->sync = (struct ls_sync){.ops = e->strategy,
                               .o = o,
                               .comm = e->comm,
                               .group = e->pipeline ? &e->pipeline->mates : ls_split_mates(e),
                               .grads = e->grads,
                               .parts = s->replicas.parts,
                               .n_parts = s->replicas.n_parts,
                               .buckets = e->buckets,
                               .n_buckets = e->n_buckets,
                               .update = update,
                               .fetch_values = fetch_values,
                               .values_arrived = values_arrived,
                               .update_piece = update_piece,
                               .take_piece = take_piece,
                               .context = s,
                               .signal = ls_step_wants_to_stop};
    s->sync.pieces = ls_shards_pieces(e, &s->sync.n_pieces);
    LS_TRY(ls_sync_open(&s->sync));
    s->last_pass = e->peers ? ls_step_on_device : ls_step_by_buckets;
    return ls_peers_share(e, ls_step_settle, s);
}

/* --- opened and closed ---------------------------------------------------------------------------------------- */

/* A step is one pass of every process, and the host does not wait for its gradients: steps can be enqueued. */
static bool can_run_ahead(const struct ls_engine *e)
{
    return e->tree->replicas == e->tree->size && e->passes == 1 && e->strategy->no_reduce && !e->pipeline;
}

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed,
                               const struct ls_options *o)
{
    enum ls_status st = LS_OK;
    *s = (struct ls_stepper){.engine = engine,
                             .feed = feed,
                             .run = {.seed = o->seed},
                             .run_pass = engine->pipeline ? ls_pipeline_pass : ls_step_run_pass,
                             .evaluate = engine->pipeline ? ls_pipeline_evaluate : ls_step_evaluate_whole};
    if (!engine->train.program)
        return LS_OK;
    struct ls_replicas_memory memory = {.grads = engine->kept,
                                        .count = engine->n_grads,
                                        .sum = engine->grads,
                                        .side = engine->side,
                                        .backend = engine->backend,
                                        .program = engine->train.program};
    LS_TRY_GOTO(failed, ls_replicas_init(&s->replicas, engine->tree, engine->place, engine->passes, &memory));
    LS_TRY_GOTO(failed, open_sync(s, o));
    LS_TRY_GOTO(failed, ls_stragglers_init(&s->stragglers, o, engine->comm ? ls_comm_rank(engine->comm) : 0,
                                           engine->comm ? ls_comm_size(engine->comm) : 1));
    LS_TRY_GOTO(failed, ls_step_usage_init(&s->usage, engine->comm));
    s->report_delay = can_run_ahead(engine) ? engine->backend->queue->delay : 0;
    return LS_OK;
failed:
    ls_stepper_release(s);
    return st;
}

enum ls_status ls_stepper_trace(struct ls_stepper *s, struct ls_trace *trace)
{
    const struct ls_engine *e = s->engine;
    size_t buckets = (size_t)(e->n_buckets + s->sync.n_pieces), nodes = (size_t)e->train.graph.n_nodes;
    struct ls_track *collectives, *messages;
    LS_TRY(ls_trace_track(trace, LS_TRACK_MAIN, "main", (size_t)s->replicas.n_slices * (nodes + 8) + 4 * buckets + 64,
                          &s->track));
    s->trace = trace;
    s->sync.track = s->track;
    if (trace && e->backend->queue->trace && e->train.program)
        LS_TRY(e->backend->queue->trace(e->train.program, trace,
                                        (size_t)s->replicas.n_slices * (nodes + 8) + 4 * buckets + 64));
    if (!e->comm)
        return LS_OK;
    LS_TRY(ls_trace_track(trace, LS_TRACK_COLLECTIVES, "communication", 4 * buckets + 16, &collectives));
    LS_TRY(ls_trace_track(trace, LS_TRACK_MESSAGES, "messages", 16 * buckets + 64, &messages));
    ls_comm_trace(e->comm, collectives, messages);
    return LS_OK;
}

void ls_stepper_trace_end(struct ls_stepper *s)
{
    if (s->trace && s->engine->backend->queue->trace_end && s->engine->train.program)
        s->engine->backend->queue->trace_end(s->engine->train.program);
}

void ls_stepper_release(struct ls_stepper *s)
{
    ls_step_drop(s);
    ls_stepper_trace_end(s);
    if (s->trace && s->engine->comm)
        ls_comm_trace(s->engine->comm, NULL, NULL);
    ls_device_dataset_close(&s->train);
    ls_device_dataset_close(&s->eval);
    ls_sync_close(&s->sync);
    ls_replicas_release(&s->replicas);
    ls_step_usage_release(&s->usage);
    *s = (struct ls_stepper){0};
}
