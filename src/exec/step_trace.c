/* The slices of a step in a trace (base/trace.h). */
#include "exec/stepper.h"
#include "base/system/clock.h"

void ls_step_record(struct ls_stepper *s, double begin, enum ls_slice_kind kind, const char *name, int64_t number)
{
    ls_trace_end(s->track, begin, &(struct ls_slice){.kind = kind, .name = name, .number = number});
}

/* Before node n runs, or at the end of the pass. The first node that is not forward's ends forward. */
static void record_phase(struct ls_stepper *s, int n)
{
    const struct ls_net *net = &s->engine->train;
    bool ends = n == net->end;
    if (n > 0 && !ends && (s->phase == LS_BACKWARD || net->graph.nodes[n].phase == LS_FORWARD))
        return;
    if (n > 0)
        ls_step_record(s, s->phase_begin, LS_SLICE_PHASE, s->phase == LS_FORWARD ? "forward" : "backward", 0);
    s->phase = n > 0 ? LS_BACKWARD : LS_FORWARD;
    s->phase_begin = ls_now();
}

/* Each node is a slice. The kernels are those of one run over all of them. */
static enum ls_status run_recorded(struct ls_stepper *s, int first, int end)
{
    const struct ls_net *net = &s->engine->train;
    for (int n = first; n < end; n++) {
        const struct ls_node *node = &net->graph.nodes[n];
        record_phase(s, n);
        double begin = ls_now();
        LS_TRY(s->engine->backend->run(net->program, n, n + 1, &s->run));
        bool update = node->phase == LS_UPDATE;
        ls_trace_add_since(s->track, begin,
                           &(struct ls_slice){.kind = update ? LS_SLICE_UPDATE : LS_SLICE_NODE,
                                              .name = node->name,
                                              .detail = node->op->name,
                                              .number = -1});
    }
    if (end == net->end)
        record_phase(s, end);
    return LS_OK;
}

enum ls_status ls_step_run_nodes(struct ls_stepper *s, int first, int end)
{
    double begin = ls_trace_begin(s->track);
    if (begin > 0 && s->engine->backend->queue->delay == 0)
        return run_recorded(s, first, end);
    LS_TRY(s->engine->backend->run(s->engine->train.program, first, end, &s->run));
    ls_step_record(s, begin, LS_SLICE_ENQUEUE, "enqueue", end - first);
    return LS_OK;
}
