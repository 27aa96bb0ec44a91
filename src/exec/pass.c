/* One pass over one batch: of training, where the last pass of a step hands its gradients to the strategy bucket by bucket,
 * and of evaluation. */
#include "exec/stepper.h"
#include "base/log.h"
#include "base/system/clock.h"
#include "exec/pipeline/pipeline.h"
#include "exec/shards/params.h"
#include "exec/split/split.h"

static const struct ls_backend_queue *queue_of(const struct ls_stepper *s)
{
    return s->engine->backend->queue;
}

static void set_position(const struct ls_stepper *s, int bucket, enum ls_stage stage)
{
    if (s->engine->comm)
        ls_comm_position(s->engine->comm, s->run.step, bucket, stage);
}

/* Seconds that this process has waited for communication; a strategy may wait within a pass. */
static double waited_so_far(const struct ls_stepper *s)
{
    return s->engine->comm ? ls_comm_waited(s->engine->comm) : 0;
}

/* --- a pass --------------------------------------------------------------------------------------------------- */

static enum ls_status set_input(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot)
{
    s->run.valid = slot->valid;
    return ls_device_dataset_input(s->engine->backend, net, slot);
}

/* Returns the feed's next slot, or NULL when this process is starved: then it computes nothing until all stop. */
static enum ls_status next_slot(struct ls_stepper *s, const struct ls_slot **slot)
{
    double start = ls_now();
    *slot = NULL;
    if (s->starved)
        return LS_OK;
    set_position(s, 0, LS_STAGE_INPUT);
    LS_TRY(s->feed.next(s->feed.context, slot));
    s->input_seconds += ls_now() - start;
    ls_step_record(s, ls_trace_on(s->track) ? start : 0, LS_SLICE_INPUT, "input", 0);
    if (!*slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    s->replaced += (*slot)->broken;
    set_position(s, 0, LS_STAGE_COMPUTE);
    return LS_OK;
}

/* A pass without samples has run already, and its gradients are zero. */
static enum ls_status load_batch(struct ls_stepper *s, int replica, int pass)
{
    const struct ls_slot *slot;
    LS_TRY(next_slot(s, &slot));
    s->run.valid = slot ? slot->valid : 0;
    s->run.replica = (uint32_t)(replica * s->replicas.passes + pass);
    s->run.stat_weight = (float)s->run.valid * s->run.grad_scale;
    s->idle = s->run.valid == 0;
    s->at = s->idle && !s->engine->params ? s->engine->train.end : 0; /* PARAM-1 */
    if (!s->idle)
        return set_input(s, &s->engine->train, slot);
    if (s->engine->drops_grads)
        ls_region_drop(s->engine->grads, s->engine->n_grads * sizeof(float));
    LS_TRY(s->engine->drops_grads ? LS_OK : ls_replicas_clear(&s->replicas));
    return s->engine->split ? ls_split_serve(s->engine->split, &s->run) : LS_OK;
}

static enum ls_status run_stretch(void *stepper, int first, int end)
{
    return ls_step_run_nodes(stepper, first, end);
}

/* Runs the nodes of the pass before `end` that have not run. */
static enum ls_status run_to(struct ls_stepper *s, int end)
{
    int first = s->at;
    if (end <= first)
        return LS_OK;
    s->at = end;
    if (s->engine->split)
        return ls_split_run(s->engine->split, first, end, &s->run);
    if (s->engine->params)
        return ls_params_run(s->engine, &s->engine->train, first, end, s->idle ? NULL : run_stretch, s);
    return ls_step_run_nodes(s, first, end);
}

static enum ls_status request_results(struct ls_stepper *s)
{
    return queue_of(s)->ask(s->engine->train.program, s->turn);
}

enum ls_status ls_step_take_results(struct ls_stepper *s, const struct ls_net *net, int slot, int64_t valid,
                                    struct ls_totals *totals)
{
    const float *loss;
    const int32_t *rank;
    double start = ls_now();
    if (slot == LS_NONE)
        return LS_OK;
    LS_TRY(queue_of(s)->results(net->program, slot, &loss, &rank));
    ls_totals_count(totals, loss, rank, valid);
    s->compute_seconds += ls_now() - start;
    ls_step_record(s, ls_trace_on(s->track) ? start : 0, LS_SLICE_WAIT, "results", -1);
    return LS_OK;
}

/* --- the last pass -------------------------------------------------------------------------------------------- */

/* Strategies read gradients in other memory than the passes write. */
static bool fetches(const struct ls_engine *e)
{
    return e->grads != e->kept;
}

/* Buckets that come to the host together: one, unless there are more of them than marks. */
static int buckets_a_mark(const struct ls_engine *e)
{
    return (e->n_buckets + LS_QUEUE_MARKS - 1) / LS_QUEUE_MARKS;
}

enum ls_status ls_step_settle(void *stepper, int bucket)
{
    struct ls_stepper *s = stepper;
    const struct ls_bucket *b = &s->engine->buckets[bucket];
    if (b->local)
        return LS_OK;
    return ls_replicas_settle(&s->replicas, b->first, b->count);
}

/* No other process adds to it. */
static bool stays(const struct ls_engine *e, const struct ls_bucket *b)
{
    return b->local && !ls_split_mates(e);
}

static enum ls_status fetch_bucket(struct ls_stepper *s, int bucket)
{
    const struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e), mark = bucket / each;
    if (!fetches(e) || ((bucket + 1) % each != 0 && bucket + 1 < e->n_buckets))
        return LS_OK;
    size_t first = e->buckets[mark * each].first, end = e->buckets[bucket].first + e->buckets[bucket].count;
    if (each == 1 && stays(e, &e->buckets[bucket]))
        return LS_OK;
    LS_TRY(ls_split_fetch(e, mark, first, end));
    return queue_of(s)->fetch(e->train.program, mark, e->grads + first, e->kept + first, end - first);
}

/* Gives the buckets before `end` to the strategy, each when it has arrived. */
static enum ls_status hand_over(struct ls_stepper *s, int end)
{
    const struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e);
    for (; s->handed < end; s->handed++) {
        if (fetches(e) && s->handed % each == 0)
            LS_TRY(queue_of(s)->arrived(e->train.program, s->handed / each));
        set_position(s, s->handed, LS_STAGE_COMPUTE);
        LS_TRY(ls_sync_ready(&s->sync, s->handed, s->at));
    }
    return LS_OK;
}

enum ls_status ls_step_settle_all(struct ls_stepper *s)
{
    for (int bucket = 0; bucket < s->engine->n_buckets; bucket++) {
        LS_TRY(ls_step_settle(s, bucket));
        LS_TRY(fetch_bucket(s, bucket));
    }
    return LS_OK;
}

enum ls_status ls_step_hand_over(struct ls_stepper *s)
{
    s->handed = 0;
    return hand_over(s, s->engine->n_buckets);
}

/* Where run only enqueues, buckets arrive when all is enqueued. An update that is enqueued after that changes nothing that
 * the pass still reads: for SYNC-2 the pass is over. */
enum ls_status ls_step_by_buckets(struct ls_stepper *s)
{
    const struct ls_engine *e = s->engine;
    bool at_once = queue_of(s)->delay == 0;
    s->handed = 0;
    for (int bucket = 0; bucket < e->n_buckets; bucket++) {
        LS_TRY(run_to(s, e->buckets[bucket].ready + 1));
        LS_TRY(ls_step_settle(s, bucket));
        LS_TRY(fetch_bucket(s, bucket));
        LS_TRY(hand_over(s, at_once && !ls_split_exchanges(e, s->at) ? bucket + 1 : 0));
    }
    LS_TRY(run_to(s, e->train.end));
    LS_TRY(request_results(s));
    return hand_over(s, e->n_buckets);
}

/* The devices run the pass, sum, and update. A rank may be without samples where a step has fewer than passes. */
enum ls_status ls_step_on_device(struct ls_stepper *s)
{
    const struct ls_engine *e = s->engine;
    bool scarce = s->sync.samples < (int64_t)e->tree->replicas * s->replicas.passes;
    double begin = ls_trace_begin(s->track);
    LS_TRY(e->backend->peers->step(e->train.program, &s->run, scarce));
    ls_step_record(s, begin, LS_SLICE_ENQUEUE, "enqueue pass, sums and updates", e->train.graph.n_nodes);
    return request_results(s);
}

/* A pass whose gradients another pass of this process will be added to. */
static enum ls_status run_whole(struct ls_stepper *s)
{
    LS_TRY(run_to(s, s->engine->train.end));
    return request_results(s);
}

enum ls_status ls_step_run_pass(void *stepper, int replica, int pass, bool last)
{
    struct ls_stepper *s = stepper;
    double begin = ls_trace_begin(s->track);
    LS_TRY(load_batch(s, replica, pass));
    double start = ls_now(), waited = waited_so_far(s);
    LS_TRY(last ? s->last_pass(s) : run_whole(s));
    s->compute_seconds += ls_now() - start - (waited_so_far(s) - waited);
    ls_step_record(s, begin, LS_SLICE_PASS, "pass", s->run.replica);
    struct ls_totals *totals = &s->pending[s->n_pending].totals;
    return last ? LS_OK : ls_step_take_results(s, &s->engine->train, s->turn, s->run.valid, totals);
}

/* --- evaluation ----------------------------------------------------------------------------------------------- */

static enum ls_status run_evaluation(void *stepper, int first, int end)
{
    struct ls_stepper *s = stepper;
    return s->engine->backend->run(s->engine->eval.program, first, end, &s->run);
}

/* A pass with samples, or one in which this process only gives others its part of the model. */
static enum ls_status run_evaluation_pass(struct ls_stepper *s, bool some)
{
    struct ls_engine *e = s->engine;
    if (e->split)
        return ls_split_evaluate(e->split, some, &s->run);
    if (!e->params)
        return some ? run_evaluation(s, 0, e->eval.end) : LS_OK;
    ls_params_forget(e);
    return ls_params_run(e, &e->eval, 0, e->eval.end, some ? run_evaluation : NULL, s);
}

static enum ls_status enqueue_evaluation(struct ls_stepper *s, const struct ls_slot *slot)
{
    struct ls_net *net = &s->engine->eval;
    double begin = ls_trace_begin(s->track);
    s->run.replica = 0;
    LS_TRY(set_input(s, net, slot));
    LS_TRY(run_evaluation_pass(s, true));
    LS_TRY(queue_of(s)->ask(net->program, s->eval_turn));
    ls_step_record(s, begin, LS_SLICE_PASS, "pass", 0);
    s->eval_valid[s->eval_turn] = slot->valid;
    s->eval_turn = 1 - s->eval_turn;
    s->eval_pending++;
    return LS_OK;
}

enum ls_status ls_step_glance(struct ls_stepper *s, const struct ls_slot *slot, float *logits, const float **loss,
                              const int32_t **rank)
{
    struct ls_net *net = &s->engine->glance;
    double begin = ls_trace_begin(s->track);
    s->run.replica = 0;
    LS_TRY(set_input(s, net, slot));
    LS_TRY(s->engine->backend->run(net->program, 0, net->end, &s->run));
    LS_TRY(queue_of(s)->ask(net->program, 0));
    LS_TRY(queue_of(s)->results(net->program, 0, loss, rank));
    ls_step_record(s, begin, LS_SLICE_PASS, "pass", 0);
    return s->engine->backend->read(net->program, net->graph.logits, logits);
}

enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    return s->evaluate(s, slot, totals);
}

enum ls_status ls_step_evaluate_next(struct ls_stepper *s, struct ls_loader *loader, const struct ls_slot **slot)
{
    return loader ? ls_loader_next(loader, slot) : ls_pipeline_next_slot(s, slot);
}

enum ls_status ls_step_evaluate_whole(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    bool some = slot && slot->valid > 0;
    if (some)
        LS_TRY(enqueue_evaluation(s, slot));
    else if (slot)
        LS_TRY(run_evaluation_pass(s, false));
    while (s->eval_pending > (some ? queue_of(s)->delay : 0)) {
        int oldest = s->eval_pending == 2 ? s->eval_turn : 1 - s->eval_turn;
        s->eval_pending--;
        LS_TRY(ls_step_take_results(s, &s->engine->eval, oldest, s->eval_valid[oldest], totals));
    }
    return LS_OK;
}
