#include "train/step.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

static enum ls_status next_from_loader(void *context, const struct ls_slot **slot)
{
    return ls_loader_next(context, slot);
}

struct ls_feed ls_feed_loader(struct ls_loader *loader)
{
    return (struct ls_feed){next_from_loader, loader};
}

/* --- one pass: forward and backward over one slot ----------------------------------------------------- */

static enum ls_status run_net(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot,
                              struct ls_totals *totals)
{
    const struct ls_backend *b = s->engine->backend;
    s->run.valid = slot->valid;
    LS_TRY(b->input(net->program, net->graph.input, slot->images));
    LS_TRY(b->input(net->program, net->graph.label, slot->labels));
    LS_TRY(b->run(net->program, 0, net->end, &s->run));
    LS_TRY(b->read(net->program, net->graph.loss, s->loss));
    LS_TRY(b->read(net->program, net->graph.rank, s->rank));
    for (int64_t i = 0; i < slot->valid; i++) {
        totals->loss += (double)s->loss[i];
        totals->top1 += s->rank[i] == 0;
        totals->top5 += s->rank[i] >= 0 && s->rank[i] < 5;
    }
    totals->samples += slot->valid;
    return LS_OK;
}

static enum ls_status run_pass(void *context, int replica, int pass, struct ls_totals *totals)
{
    struct ls_stepper *s = context;
    const struct ls_slot *slot;
    double start = ls_now();
    LS_TRY(s->feed.next(s->feed.context, &slot));
    double fed = ls_now();
    s->input_seconds += fed - start;
    if (!slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    if (slot->valid == 0) {
        ls_replicas_clear(&s->replicas);
        return LS_OK;
    }
    s->run.replica = (uint32_t)(replica * s->replicas.passes + pass);
    s->run.stat_weight = (float)slot->valid * s->run.grad_scale;
    LS_TRY(run_net(s, &s->engine->train, slot, totals));
    s->compute_seconds += ls_now() - fed;
    return LS_OK;
}

/* --- the step ----------------------------------------------------------------------------------------- */

enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r)
{
    struct ls_engine *e = s->engine;
    struct ls_totals totals;
    double start = ls_now();
    s->input_seconds = s->compute_seconds = 0;
    s->run.step = step;
    s->run.lr = (float)lr;
    s->run.grad_scale = 1.0f / (float)samples;

    LS_TRY(ls_replicas_run(&s->replicas, run_pass, s, &totals));
    if (totals.samples != samples)
        return ls_fail(LS_FAILED, "step %llu: %lld samples came where %lld were expected", (unsigned long long)step,
                       (long long)totals.samples, (long long)samples);
    if (e->train.end < e->train.graph.n_nodes)
        LS_TRY(e->backend->run(e->train.program, e->train.end, e->train.graph.n_nodes, &s->run));

    ls_totals_report(&totals, r);
    r->step = (int64_t)step + 1;
    r->lr = lr;
    r->seconds = ls_now() - start;
    r->input_seconds = s->input_seconds;
    r->compute_seconds = s->compute_seconds;
    r->update_seconds = r->seconds - r->input_seconds - r->compute_seconds;
    return LS_OK;
}

enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    s->run.replica = 0;
    return slot->valid > 0 ? run_net(s, &s->engine->eval, slot, totals) : LS_OK;
}

void ls_totals_report(const struct ls_totals *totals, struct ls_report *r)
{
    double n = totals->samples > 0 ? (double)totals->samples : 1;
    r->samples = totals->samples;
    r->loss = totals->loss / n;
    r->top1 = (double)totals->top1 / n;
    r->top5 = (double)totals->top5 / n;
}

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed, uint64_t seed)
{
    enum ls_status st = LS_OK;
    struct ls_grad_range *ranges = NULL;
    int n_ranges = 0;
    *s = (struct ls_stepper){.engine = engine, .feed = feed, .run = {.seed = seed}};
    s->loss = ls_alloc((size_t)engine->size.batch, sizeof *s->loss);
    s->rank = ls_alloc((size_t)engine->size.batch, sizeof *s->rank);
    if (!s->loss || !s->rank) {
        st = LS_FAILED;
        goto failed;
    }
    if (engine->replicas * engine->passes > 1)
        LS_TRY_GOTO(failed, ls_engine_gradients(engine, &ranges, &n_ranges));
    LS_TRY_GOTO(failed, ls_replicas_init(&s->replicas, engine->replicas, engine->passes, ranges, n_ranges));
    ls_free(ranges);
    return LS_OK;
failed:
    ls_free(ranges);
    ls_stepper_release(s);
    return st;
}

void ls_stepper_release(struct ls_stepper *s)
{
    ls_replicas_release(&s->replicas);
    ls_free(s->loss);
    ls_free(s->rank);
    *s = (struct ls_stepper){0};
}
