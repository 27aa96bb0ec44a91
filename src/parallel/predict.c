#include "parallel/predict.h"
#include "graph/split.h"

#include <math.h>

/* Passes of the process that has most of them, where the replicas are divided among so many. */
static int passes_of(const struct ls_prices *p, int among)
{
    return (p->replicas + among - 1) / among * p->accumulate;
}

/* How many times longer work takes when all processes compute. */
static double slowdown(const struct ls_prices *p)
{
    return p->cores > 0 && p->processes > p->cores ? p->processes / p->cores : 1;
}

/* Memories of the size of all gradients: a part of the sum, and sums that are not finished (exec/replicas.h). */
static int grad_copies(const struct ls_prices *p, int passes)
{
    int depth = 0;
    while (1 << depth < p->replicas)
        depth++;
    return 1 + (passes > 1 ? depth + (p->accumulate > 1) : 0);
}

/* Seconds for each byte of gradients of so many passes, which one process adds: all but one are added, and every second one is
 * kept until its neighbour comes (exec/replicas.h, exec/split/sums.h). */
static double additions(const struct ls_prices *p, int passes)
{
    return passes > 1 ? (passes - 1) * p->add + passes / 2 * p->copy : 0;
}

/* Seconds in which the processes of a group exchange so many bytes of gradients: parts of sums, then sums. */
static double exchange_ranges(const struct ls_prices *p, double bytes)
{
    const struct ls_cost *c = p->range.alpha > 0 ? &p->range : &p->message;
    return bytes > 0 ? 2 * c->alpha + c->beta * bytes : 0;
}

/* --- data and dense ----------------------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Layers are divided among `width` processes; 1: they are not. */
static bool is_split(const struct ls_layer *a, int width)
{
    return width > 1 && a->rows > 0 && ls_split_count(a->rows) >= width;
}

/* Bytes that a process sends for a split layer in one pass: inputs to all others and results back, then columns of the
 * gradient to all, and parts of the inputs' gradient back. The last travel while gradients of weights are computed. */
struct exchange {
    double waited, behind;
};

static struct exchange exchange_of(const struct ls_layer *a, int width)
{
    double others = width - 1, columns = others / width * (double)a->results;
    double parts = LS_SPLIT_CHUNKS % width == 0 ? 1 : 1.5;
    return (struct exchange){.waited = others * (double)a->inputs + 2 * columns,
                             .behind = others * parts * (double)a->part};
}

/* Seconds for which a pass waits at a layer. An exchange ends when the last process has had its turn: where processes share
 * cores, later by as much as they slow each other down. */
static double wait_at(const struct ls_layer *a, const struct ls_prices *p, int width)
{
    if (!is_split(a, width))
        return 0;
    struct exchange x = exchange_of(a, width);
    double parts = p->message.alpha + p->message.beta * x.behind - a->backward * slowdown(p) / 2;
    return slowdown(p) * (3 * p->message.alpha + p->message.beta * x.waited + larger(parts, 0));
}

/* When the sums of the last pass are complete, counted from its begin. Gradients come from the last layer to the first. When
 * one is there, what is not summed yet takes its time from then on. No sum begins before the last exchange. */
static double end_of_sums(const struct ls_layers *l, const struct ls_prices *p, int width)
{
    double slow = slowdown(p), at = 0, end = 0, left = 0, exchanged = 0;
    for (int n = 0; n < l->n; n++) {
        at += l->list[n].forward * slow + wait_at(&l->list[n], p, width) / 2;
        left += is_split(&l->list[n], width) ? 0 : (double)l->list[n].grads;
    }
    double all = left;
    for (int n = l->n - 1; n >= 0; n--) {
        const struct ls_layer *a = &l->list[n];
        at += a->backward * slow + wait_at(a, p, width) / 2;
        if (is_split(a, width)) {
            exchanged = at;
            continue;
        }
        if (a->grads > 0 && p->overlap)
            end = larger(end, at + p->sum.alpha + p->sum.beta * left);
        left -= (double)a->grads;
    }
    if (all > 0)
        end = larger(end, (p->overlap ? exchanged : at) + p->sum.alpha + p->sum.beta * all);
    return larger(end, at);
}

static void predict(const struct ls_layers *l, const struct ls_prices *p, int width, struct ls_prediction *out)
{
    struct ls_layer all = ls_layers_sum(l, 0, l->n);
    int passes = passes_of(p, p->processes), groups = p->processes / width;
    double slow = slowdown(p), work = 0, waits = 0, sent = 0, summed = 0, split = 0, kept = 0, grads = 0, buffers = 0;
    for (int n = 0; n < l->n; n++) {
        const struct ls_layer *a = &l->list[n];
        bool here = is_split(a, width);
        int slices = here ? passes * width : passes;
        double share = here ? 1.0 / width : 1;
        work += passes * (a->forward + a->backward) + share * (a->update + additions(p, slices) * (double)a->grads);
        kept += share * (double)a->kept;
        grads += share * (double)a->grads * grad_copies(p, slices);
        *(here ? &split : &summed) += share * (double)a->grads;
        if (!here)
            continue;
        struct exchange x = exchange_of(a, width);
        waits += wait_at(a, p, width);
        sent += passes * (x.waited + x.behind);
        buffers += width * (double)(a->inputs + 2 * (a->part + a->results));
    }
    double ranges = 2.0 * (groups - 1) / groups * split; /* rows are summed over the groups after the pass */
    double pass = (all.forward + all.backward) * slow;
    double before = (passes - 1) * (pass + waits) + (work - passes * (all.forward + all.backward) - all.update) * slow;
    double path = larger(larger(before, 0) + end_of_sums(l, p, width), work * slow + passes * waits);
    double comm = p->sum_work * summed + p->message_work * (sent + ranges);
    double cores = p->cores > 0 && p->cores < p->processes ? p->cores : p->processes;
    double seconds = larger(path + exchange_ranges(p, ranges), (work + comm) * p->processes / cores);
    *out = (struct ls_prediction){
        .seconds = seconds,
        .work = work,
        .waits = seconds - work * slow,
        .sent = (size_t)(sent + ranges + summed * 2 * (p->processes - 1) / p->processes),
        .bytes = (size_t)(kept + grads + buffers + (p->arena > 0 ? p->arena : 1) * (double)all.activations)};
}

void ls_predict_data(const struct ls_layers *l, const struct ls_prices *p, struct ls_prediction *out)
{
    predict(l, p, 1, out);
}

bool ls_predict_dense(const struct ls_layers *l, const struct ls_prices *p, int width, struct ls_prediction *out)
{
    bool any = false;
    for (int n = 0; n < l->n && width <= LS_SPLIT_CHUNKS; n++)
        any = any || is_split(&l->list[n], width);
    if (any)
        predict(l, p, width, out);
    return any;
}

/* --- pipelines ---------------------------------------------------------------------------------------------------- */

enum doing { WAITS, FORWARD, BACKWARD, SUMS, UPDATES, DONE };

/* A stage in the simulation of a step. */
struct stage {
    double forward, backward, update; /* seconds of a pass at full speed, and of the updates */
    double sums;                      /* seconds in which its gradients are summed over pipelines */
    double travel;                    /* seconds of a message from the stage before, or back to it */
    int lanes, begun, done;
    enum doing doing;
    double left;    /* of what it does: seconds at full speed; of sums: until when */
    double ends;    /* when it is through with that, if nothing changes before; INFINITY: it waits */
    double *in;     /* when the input of each pass is there; INFINITY: not yet */
    double *back;   /* when its gradient is */
    double wire[2]; /* until when the wires from and to the stage before are in use */
};

struct simulation {
    struct stage stages[LS_MOST_STAGES];
    int n, passes;
    double cores; /* for one pipeline */
    double now;
};

static void fill_stage(const struct ls_layers *l, const struct ls_prices *p, const int *cuts, int stages, int passes,
                       int number, struct stage *s)
{
    int first = cuts[number], end = number + 1 < stages ? cuts[number + 1] : l->n, groups = p->processes / stages;
    struct ls_layer sum = ls_layers_sum(l, first, end);
    double in = number > 0 ? (double)l->list[first].crossing : 0, out = end < l->n ? (double)l->list[end].crossing : 0;
    double ranges = 2.0 * (groups - 1) / groups * (double)sum.grads;
    s->forward = sum.forward + p->message_work * (in + out);
    s->backward = sum.backward + p->message_work * (in + out) + additions(p, passes) / passes * (double)sum.grads;
    s->update = sum.update + p->message_work * ranges + (groups > 1 ? p->add * (double)sum.grads : 0);
    s->sums = exchange_ranges(p, ranges);
    s->travel = p->message.alpha + p->message.beta * in;
    s->lanes = ls_stage_lanes(stages, number, passes);
}

/* What an idle stage may begin now. Sets *until to when it may begin what comes next, where that is known. */
static void begin_next(struct simulation *x, struct stage *s, double *until)
{
    bool forward = ls_stage_begins_next(s->lanes, x->passes, s->begun, s->done);
    if (s->done == x->passes) {
        s->doing = SUMS;
        s->left = x->now + s->sums;
        return;
    }
    double ready = forward ? s->in[s->begun] : s->back[s->done];
    if (ready <= x->now) {
        s->doing = forward ? FORWARD : BACKWARD;
        s->left = forward ? s->forward : s->backward;
    } else if (ready < *until)
        *until = ready;
}

/* A message on a wire that carries one at a time. */
static double arrival(double now, double *wire, double travel)
{
    *wire = larger(*wire, now) + travel;
    return *wire;
}

static void complete(struct simulation *x, int number)
{
    struct stage *s = &x->stages[number];
    if (s->doing == FORWARD) {
        int pass = s->begun++;
        if (number + 1 < x->n) {
            struct stage *next = s + 1;
            next->in[pass] = arrival(x->now, &next->wire[0], next->travel);
        } else
            s->back[pass] = x->now;
    } else if (s->doing == BACKWARD) {
        int pass = s->done++;
        if (number > 0)
            (s - 1)->back[pass] = arrival(x->now, &s->wire[1], s->travel);
    }
    s->doing = s->doing == SUMS ? UPDATES : s->doing == UPDATES ? DONE : WAITS;
    s->left = s->doing == UPDATES ? s->update : 0;
}

/* The time of a step. */
static double simulate(struct simulation *x)
{
    for (int left = x->n; left > 0;) {
        double next = INFINITY;
        int busy = 0;
        for (int i = 0; i < x->n; i++) {
            struct stage *s = &x->stages[i];
            if (s->doing == WAITS)
                begin_next(x, s, &next);
            busy += s->doing == FORWARD || s->doing == BACKWARD || s->doing == UPDATES;
        }
        double rate = busy > x->cores ? x->cores / busy : 1;
        for (int i = 0; i < x->n; i++) {
            struct stage *s = &x->stages[i];
            s->ends = s->doing == SUMS                        ? s->left
                      : s->doing == WAITS || s->doing == DONE ? INFINITY
                                                              : x->now + s->left / rate;
            next = s->ends < next ? s->ends : next;
        }
        double went = (next - x->now) * rate;
        x->now = next;
        for (int i = 0; i < x->n; i++) {
            struct stage *s = &x->stages[i];
            if (s->doing == WAITS || s->doing == DONE)
                continue;
            if (s->doing != SUMS)
                s->left -= went;
            bool over = s->ends <= x->now; /* not left <= 0: what rounding leaves may be too little to move the clock */
            if (over)
                complete(x, i);
            left -= over && s->doing == DONE;
        }
    }
    return x->now;
}

struct ls_cut_rule ls_predict_rule(const struct ls_prices *p, int stages)
{
    int passes = passes_of(p, p->processes / stages);
    return (struct ls_cut_rule){.stages = stages,
                                .passes = passes,
                                .message = p->message.alpha,
                                .byte = p->message.beta,
                                .limit = p->limit,
                                .grad_copies = grad_copies(p, passes),
                                .arena = p->arena,
                                .additions = additions(p, passes)};
}

enum ls_status ls_predict_stages(const struct ls_layers *l, const struct ls_prices *p, int stages, const int *cuts,
                                 struct ls_prediction *out)
{
    struct ls_cut_rule rule = ls_predict_rule(p, stages);
    int passes = rule.passes;
    double *times = ls_alloc((size_t)(2 * stages * passes), sizeof *times);
    struct simulation *x = ls_alloc(1, sizeof *x);
    enum ls_status st = times && x ? LS_OK : LS_FAILED;
    *out = (struct ls_prediction){0};
    for (int i = 0; st == LS_OK && i < 2 * stages * passes; i++)
        times[i] = INFINITY;
    for (int i = 0; st == LS_OK && i < stages; i++) {
        struct stage *s = &x->stages[i];
        int end = i + 1 < stages ? cuts[i + 1] : l->n;
        size_t bytes = ls_stage_memory(l, cuts[i], end, &rule, i);
        fill_stage(l, p, cuts, stages, passes, i, s);
        s->in = times + 2 * i * passes;
        s->back = s->in + passes;
        for (int pass = 0; i == 0 && pass < passes; pass++)
            s->in[pass] = 0;
        out->cuts[i] = cuts[i];
        out->bytes = bytes > out->bytes ? bytes : out->bytes;
        out->work = larger(out->work, passes * (s->forward + s->backward) + s->update);
        double ranges =
            2.0 * (p->processes / stages - 1) / (p->processes / stages) * (double)ls_layers_sum(l, cuts[i], end).grads;
        size_t sent = (size_t)ranges + (size_t)passes * ((i > 0 ? l->list[cuts[i]].crossing : 0) +
                                                         (end < l->n ? l->list[end].crossing : 0));
        out->sent = sent > out->sent ? sent : out->sent;
    }
    if (st == LS_OK) {
        x->n = stages;
        x->passes = passes;
        x->cores = p->cores > 0 && p->cores < p->processes ? p->cores * stages / p->processes : stages;
        out->seconds = simulate(x);
    }
    ls_free(times);
    ls_free(x);
    return st;
}

enum ls_status ls_predict_pipeline(const struct ls_layers *l, const struct ls_prices *p, int stages,
                                   struct ls_prediction *out)
{
    int cuts[LS_MOST_STAGES] = {0};
    struct ls_cut_rule rule = ls_predict_rule(p, stages);
    LS_TRY(ls_cut_evenly(l, &rule, cuts));
    return ls_predict_stages(l, p, stages, cuts, out);
}
