/* lockstep bench: measures the time of a training step. Batches come from memory, so that only the step is measured; with
 * --with-input they come from a loader. */
#include "base/system/clock.h"
#include "base/system/program.h"
#include "base/memory.h"
#include "cmd/bench/axes.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/session.h"
#include "cmd/cmd.h"
#include "cmd/world.h"
#include "exec/device/peers.h"
#include "exec/dtype.h"
#include "exec/identity.h"
#include "launch/children/workers.h"

#include <string.h>
#include <time.h>

/* --- measuring ---------------------------------------------------------------------------------------- */

/* Workers of parameter servers, which do not wait for each other in a step, synchronise. */
static enum ls_status synchronise_workers(struct ls_bench_session *b)
{
    return b->stepper.sync.ops->servers ? ls_step_collect(&b->stepper) : LS_OK;
}

static enum ls_status one_step(struct ls_bench_session *b, struct ls_report *r)
{
    /* A small rate keeps all values normal numbers; random labels cannot be learned. */
    double lr = ls_options_given(b->o, "lr") ? b->o->lr : 0.001;
    *r = (struct ls_report){0};
    LS_TRY(ls_step(&b->stepper, b->step, b->o->batch, lr, r));
    b->step = b->stepper.outcome.next_step;
    return LS_OK;
}

/* The first step is not counted: it touches pages and starts threads. Without --steps a repetition lasts about a second. */
static enum ls_status warm_up(struct ls_bench_session *b)
{
    struct ls_report r = {0};
    b->start_seconds = ls_program_age();
    while (b->step < (uint64_t)b->o->warmup_steps || b->step < 1)
        LS_TRY(one_step(b, &r));
    LS_TRY(ls_step_flush(&b->stepper, &r));
    LS_TRY(synchronise_workers(b));
    double seconds = r.seconds;
    b->steps = b->o->steps;
    if (b->steps == 0)
        b->steps = seconds > 0.34 ? 3 : seconds < 0.005 ? 200 : (int64_t)(1.0 / seconds);
    if (b->comm)
        LS_TRY(ls_comm_broadcast(b->comm, 0, &b->steps, sizeof b->steps));
    b->step_ms = ls_alloc((size_t)(b->steps * b->o->repeat), sizeof *b->step_ms);
    b->speed = ls_alloc((size_t)b->o->repeat, sizeof *b->speed);
    return b->step_ms && b->speed ? LS_OK : LS_FAILED;
}

/* With a queue only the time of all steps is known: they are complete when the last one is. */
static enum ls_status end_repetition(struct ls_bench_session *b, double start, double *step_ms, int64_t *samples)
{
    struct ls_report r = {0};
    LS_TRY(ls_step_flush(&b->stepper, &r));
    *samples += r.samples;
    b->input_seconds += r.input_seconds;
    double mean = 1000 * (ls_now() - start) / (double)b->steps;
    for (int64_t k = 0; k < b->steps && b->engine.backend->queue->delay; k++)
        step_ms[k] = mean;
    return LS_OK;
}

static enum ls_status gather_peaks(struct ls_bench_session *b)
{
    int size = ls_comm_size(b->comm), stages = b->engine.pipeline->stages;
    size_t now, most, *all = ls_alloc((size_t)size, sizeof *all);
    b->engine.backend->queue->taken(&now, &most);
    enum ls_status st = all ? ls_comm_allgather(b->comm, &most, sizeof most, all) : LS_FAILED;
    for (int rank = 0; st == LS_OK && rank < size; rank++)
        if (all[rank] > b->peaks[rank % stages])
            b->peaks[rank % stages] = all[rank];
    ls_free(all);
    return st;
}

static enum ls_status measure(struct ls_bench_session *b)
{
    uint64_t first = b->step;
    clock_t cpu = clock();
    for (int64_t i = 0; i < b->o->repeat; i++) {
        double start = ls_now();
        int64_t samples = 0;
        while (b->step < first + (uint64_t)((i + 1) * b->steps)) {
            struct ls_report r;
            uint64_t at = b->step;
            LS_TRY(one_step(b, &r));
            for (uint64_t k = at; k < b->step; k++) /* several where this process was cut off */
                b->step_ms[k - first] = 1000 * r.seconds / (double)(b->step - at);
            samples += r.samples;
            b->input_seconds += r.input_seconds;
            b->waited_seconds += r.wait_seconds;
        }
        LS_TRY(end_repetition(b, start, b->step_ms + i * b->steps, &samples));
        double seconds = ls_now() - start;
        b->speed[i] = (double)samples / seconds;
        b->measured_seconds += seconds;
    }
    b->cpu_seconds = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    if (b->engine.pipeline) {
        LS_TRY(ls_pipeline_bubble(&b->engine, b->measured_seconds, b->waited_seconds, b->busy, &b->bubble,
                                  &b->least_bubble));
        LS_TRY(gather_peaks(b));
    }
    return synchronise_workers(b);
}

/* Events between the nodes of a card cost time: its shares come from further steps, which are not measured. */
static enum ls_status record_card(struct ls_bench_session *b)
{
    enum { STEPS = 20 };
    uint64_t first = b->step;
    struct ls_report r = {0};
    if (b->engine.backend->queue->delay == 0)
        return LS_OK;
    LS_TRY(ls_bench_shares_begin(b->o, &b->stepper, first + 1, STEPS, &b->trace));
    while (b->trace && b->step < first + STEPS)
        LS_TRY(one_step(b, &r));
    LS_TRY(ls_step_flush(&b->stepper, &r));
    return b->trace ? synchronise_workers(b) : LS_OK;
}

/* --- the command -------------------------------------------------------------------------------------- */

static void release(struct ls_bench_session *b)
{
    ls_step_drop(&b->stepper); /* after a failure the last step may still be reading its input */
    ls_bench_free_batches(b);
    ls_bench_close_input(b);
    ls_free(b->step_ms);
    ls_free(b->speed);
    ls_stepper_release(&b->stepper);
    ls_trace_free(b->trace);
    ls_engine_close(&b->engine);
    ls_layout_release(&b->layout);
    ls_task_close(&b->task);
}

static enum ls_status setup(struct ls_bench_session *b)
{
    bool from_data = ls_options_given(b->o, "data") || b->o->with_input;
    LS_TRY(from_data ? ls_task_open(&b->task, b->o, true, false, NULL) : ls_task_size(&b->task, b->o));
    LS_TRY(ls_engine_pass_batch(b->o, &b->task.size.batch));
    char *recorded = ls_identity_recorded_plan(b->o->config_run);
    enum ls_status st = ls_layout_settle(b->o, b->comm, &b->task.size, recorded, &b->layout);
    if (st == LS_OK) {
        b->settled = *b->o;
        b->settled.parallel = b->layout.parallel;
        b->o = &b->settled;
        st = ls_engine_open(&b->engine, b->o, b->comm, &b->task.size, recorded, LS_ENGINE_TRAIN);
    }
    ls_free(recorded);
    LS_TRY(st);
    LS_TRY(ls_stepper_init(&b->stepper, &b->engine, (struct ls_feed){.next = ls_bench_next_batch, .context = b}, b->o));
    return b->o->with_input ? ls_bench_open_input(b) : ls_bench_make_batches(b, from_data);
}

/* Measures the steps of one configuration in this process, or as a rank of a run. */
static enum ls_status bench_steps(struct ls_options *o, struct ls_comm *comm)
{
    enum ls_status st;
    bool root = !comm || ls_comm_rank(comm) == 0;
    struct ls_bench_session b = {.o = o, .comm = comm};
    if (o->weak && comm)
        o->batch *= ls_comm_size(comm);
    LS_TRY_GOTO(out, ls_dtype_settle(o, comm, NULL));
    LS_TRY_GOTO(out, root ? ls_bench_check_output(o) : LS_OK);
    LS_TRY_GOTO(out, setup(&b));
    LS_TRY_GOTO(out, warm_up(&b));
    if (b.engine.backend->queue->delay == 0)
        LS_TRY_GOTO(out, ls_bench_shares_begin(o, &b.stepper, b.step + 1, (uint64_t)(b.steps * o->repeat), &b.trace));
    LS_TRY_GOTO(out, measure(&b));
    LS_TRY_GOTO(out, ls_bench_report(&b));
    LS_TRY_GOTO(out, record_card(&b));
    LS_TRY_GOTO(out, ls_bench_shares(o, &b.stepper, b.trace));
    ls_peers_close(&b.engine, true);
    if (o->profile && root)
        LS_TRY_GOTO(out, ls_bench_profile(o, &b.engine, &b.stepper.run));
out:
    release(&b);
    return st;
}

enum ls_status ls_cmd_bench(struct ls_options *o)
{
    enum ls_status st;
    struct ls_world world;
    bool done = false;
    o->json = o->json || strcmp(o->format, "json") == 0;
    if (o->merge)
        return ls_bench_merge(o);
    if (o->loader && !ls_bench_has_lists(o))
        return ls_bench_loader(o);
    if (ls_bench_over_axes_wanted(o))
        LS_TRY(ls_bench_over_axes(o, &done));
    if (done)
        return LS_OK;
    if (ls_workers_took_over(o, &st))
        return st;
    if (ls_bench_collective_wanted(o))
        return ls_bench_collective(o);
    LS_TRY(ls_world_open(&world, o));
    if (world.comm && ls_bench_scale_wanted(o)) {
        st = ls_bench_over_ranks(o, &world, &done);
        if (done || st != LS_OK) {
            bool whole = ls_comm_broken(world.comm) == LS_OK; /* then all ranks have this status */
            ls_world_close(&world, whole ? LS_OK : st);
            return st;
        }
    }
    st = bench_steps(o, world.comm);
    ls_world_close(&world, st);
    return st;
}
