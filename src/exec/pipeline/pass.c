/* The passes of a step, and of an evaluation, through the stage of this process. */
#include "base/log.h"
#include "base/system/clock.h"
#include "exec/pipeline/pipeline.h"
#include "exec/stepper.h"

#include <string.h>

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Samples of a pass of the step under way, as the loader deals them. */
static int64_t samples_of(const struct ls_stepper *s, int pass)
{
    int64_t all = s->engine->tree->replicas * s->replicas.passes;
    return s->sync.samples / all + (s->replicas.order[pass] < s->sync.samples % all);
}

/* The first stage takes a slot of the feed. */
static enum ls_status take_slot(struct ls_stepper *s, struct ls_lane *l, const struct ls_slot *slot)
{
    size_t labels = (size_t)s->engine->size.batch * sizeof *l->note->labels;
    l->note->valid = slot->valid;
    l->note->position = slot->position;
    memcpy(l->note->labels, slot->labels, labels);
    if (slot->form == LS_FORM_PLANES)
        return s->engine->backend->input(l->net->program, l->net->graph.input, slot->images);
    return s->engine->backend->queue->crops(l->net->program, slot->crops, slot->pixels);
}

/* Labels are read where the loss is. */
static enum ls_status set_labels(struct ls_stepper *s, struct ls_lane *l)
{
    int label = l->net->graph.label;
    return label == LS_NONE ? LS_OK : s->engine->backend->input(l->net->program, label, l->note->labels);
}

static enum ls_status next_slot(struct ls_stepper *s, const struct ls_slot **slot)
{
    double start = ls_now();
    LS_TRY(s->feed.next(s->feed.context, slot));
    s->input_seconds += ls_now() - start;
    if (!*slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    s->replaced += (*slot)->broken;
    return LS_OK;
}

/* Asks for the results of the lane's pass, where the loss is. */
static enum ls_status ask_results(struct ls_stepper *s, struct ls_lane *l)
{
    if (l->net->graph.loss == LS_NONE)
        return LS_OK;
    l->asked = true;
    l->asked_at = s->engine->pipeline->at;
    return s->engine->backend->queue->ask(l->net->program, 0);
}

/* Counts them, when they have not been: until then the labels must stay. */
static enum ls_status count_results(struct ls_stepper *s, struct ls_lane *l, struct ls_totals *totals)
{
    const float *loss;
    const int32_t *rank;
    if (!l->asked)
        return LS_OK;
    l->asked = false;
    LS_TRY(s->engine->backend->queue->results(l->net->program, 0, &loss, &rank));
    ls_totals_count(totals, loss, rank, l->run.valid);
    ls_pipeline_reach(s->engine->pipeline, l->asked_at);
    return LS_OK;
}

static enum ls_status go_forward(struct ls_stepper *s, int pass)
{
    struct ls_engine *e = s->engine;
    struct ls_pipeline *p = e->pipeline;
    struct ls_lane *l = &p->lanes[pass % p->n_lanes];
    const struct ls_slot *slot = NULL;
    bool again = pass + p->n_lanes < s->replicas.n_slices && samples_of(s, pass + p->n_lanes) > 0;
    LS_TRY(count_results(s, l, &s->pending[s->n_pending].totals)); /* of the lane's last pass */
    LS_TRY(ls_wires_await_input(e, l));
    l->pass = pass;
    l->run = s->run;
    l->run.valid = samples_of(s, pass);
    l->run.replica = (uint32_t)s->replicas.order[pass];
    l->run.stat_weight = (float)l->run.valid * l->run.grad_scale;
    if (p->stage == 0)
        LS_TRY(next_slot(s, &slot));
    if (l->run.valid == 0)
        return LS_OK;
    LS_TRY(p->stage == 0 ? take_slot(s, l, slot) : ls_lane_take_note(e, l, again));
    if (l->note->valid != l->run.valid)
        return ls_fail(LS_FAILED, "step %llu: a pass has %lld samples where %lld were expected",
                       (unsigned long long)s->run.step, (long long)l->note->valid, (long long)l->run.valid);
    LS_TRY(ls_lane_send_note(p, l));
    LS_TRY(set_labels(s, l));
    double begin = ls_trace_begin(s->track);
    LS_TRY(ls_lane_run(e, l, 0, l->backward, again));
    LS_TRY(ls_wires_mark_input(e, l));
    LS_TRY(e->backend->queue->copy(l->net->program, l->early, e->kept, p->early)); /* PIPE-2 */
    ls_step_record(s, begin, LS_SLICE_PASS, "forward", l->run.replica);
    LS_TRY(ask_results(s, l));
    return e->backend->queue->delay > 0 ? LS_OK : count_results(s, l, &s->pending[s->n_pending].totals);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

static enum ls_status go_backward(struct ls_stepper *s, int pass)
{
    struct ls_engine *e = s->engine;
    struct ls_pipeline *p = e->pipeline;
    struct ls_lane *l = &p->lanes[pass % p->n_lanes];
    bool again = pass + p->n_lanes < s->replicas.n_slices && samples_of(s, pass + p->n_lanes) > 0;
    if (l->run.valid == 0)
        return ls_replicas_clear(&s->replicas);
    double begin = ls_trace_begin(s->track);
    LS_TRY(e->backend->queue->copy(l->net->program, e->kept, l->early, p->early));
    LS_TRY(ls_lane_run(e, l, l->backward, l->net->end, again));
    ls_step_record(s, begin, LS_SLICE_PASS, "backward", l->run.replica);
    return LS_OK;
}

/* The last gradients are there, or enqueued: this process adds what is left, and updates. */
static enum ls_status finish(struct ls_stepper *s)
{
    struct ls_engine *e = s->engine;
    struct ls_pending *now = &s->pending[s->n_pending];
    s->at = e->train.end;
    LS_TRY(ls_step_settle_all(s));
    LS_TRY(ls_pipeline_post_due(e, true));
    LS_TRY(ls_step_hand_over(s));
    for (int i = 0; i < e->pipeline->n_lanes; i++) {
        LS_TRY(ls_lane_flush(e->pipeline, &e->pipeline->lanes[i]));
        LS_TRY(count_results(s, &e->pipeline->lanes[i], &now->totals));
    }
    now->slot = LS_NONE; /* all results are counted */
    return ls_wires_end_step(s, s->sync.samples >= s->engine->tree->replicas * s->replicas.passes);
}

static enum ls_status run_pass(struct ls_stepper *s, bool last)
{
    struct ls_pipeline *p = s->engine->pipeline;
    for (; ls_stage_begins_next(p->n_lanes, s->replicas.n_slices, p->begun, p->done); p->begun++)
        LS_TRY(go_forward(s, p->begun));
    LS_TRY(go_backward(s, p->done++));
    return last ? finish(s) : LS_OK;
}

/* Seconds that this stage was idle. */
static double waited_so_far(const struct ls_stepper *s)
{
    return ls_comm_waited(s->engine->comm) + s->device_wait_seconds;
}

enum ls_status ls_pipeline_pass(void *stepper, int replica, int pass, bool last)
{
    struct ls_stepper *s = stepper;
    struct ls_pipeline *p = s->engine->pipeline;
    (void)replica;
    if (p->done == s->replicas.n_slices)
        p->begun = p->done = 0;
    if (p->begun == 0)
        ls_wires_begin_step(p);
    ls_comm_position(p->comm, s->run.step, pass, LS_STAGE_COMPUTE);
    double start = ls_now(), waited = waited_so_far(s), input = s->input_seconds;
    LS_TRY(run_pass(s, last));
    s->compute_seconds += ls_now() - start - (waited_so_far(s) - waited) - (s->input_seconds - input);
    return LS_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

enum ls_status ls_pipeline_next_slot(struct ls_stepper *s, const struct ls_slot **slot)
{
    struct ls_pipeline *p = s->engine->pipeline;
    LS_TRY(ls_lane_take_note(s->engine, &p->eval, false));
    p->eval_slot = (struct ls_slot){
        .labels = p->eval.note->labels, .valid = p->eval.note->valid, .position = p->eval.note->position};
    *slot = p->eval.note->valid == LS_NOTE_END ? NULL : &p->eval_slot;
    return LS_OK;
}

enum ls_status ls_pipeline_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    struct ls_pipeline *p = s->engine->pipeline;
    struct ls_lane *l = &p->eval;
    if (slot && slot->valid == 0)
        return LS_OK;
    if (!slot)
        l->note->valid = LS_NOTE_END;
    else if (p->stage == 0)
        LS_TRY(take_slot(s, l, slot));
    LS_TRY(ls_lane_send_note(p, l));
    if (!slot) {
        LS_TRY(ls_pipeline_post_due(s->engine, true));
        return ls_lane_flush(p, l);
    }
    l->run = s->run;
    l->run.valid = slot->valid;
    l->run.replica = 0;
    LS_TRY(set_labels(s, l));
    LS_TRY(ls_lane_run(s->engine, l, 0, l->net->end, false));
    LS_TRY(ask_results(s, l));
    return count_results(s, l, totals);
}
