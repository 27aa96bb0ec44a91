/* Checkpoints of a run, and what must hold before one is written. */
#include "base/system/clock.h"
#include "base/log.h"
#include "exec/averages.h"
#include "train/ranks/rank_check.h"
#include "train/trainer.h"

#include <inttypes.h>

void ls_trainer_name_checkpoint(const struct ls_trainer *t)
{
    if (t->checkpoint)
        ls_trainer_say(t, "The last good checkpoint is %s.", t->checkpoint);
    else
        ls_trainer_say(t, "No checkpoint was saved yet.");
}

/* Wait until the checkpoint under way is written, and take it for the newest good one. */
enum ls_status ls_trainer_await_saved(struct ls_trainer *t)
{
    if (!t->writing)
        return LS_OK;
    t->writing = false;
    LS_TRY(ls_checkpoint_finish(&t->writer));
    char *folder = ls_format("%s/checkpoints/step-%08" PRIu64, t->run, t->writer.state.step);
    if (!folder)
        return LS_FAILED;
    ls_free(t->checkpoint);
    t->checkpoint = folder;
    ls_note("Saved %s.", folder);
    return LS_OK;
}

/* A thread may write it; it is known to be good once it is waited for. */
static enum ls_status begin_saving(struct ls_trainer *t)
{
    LS_TRY(ls_trainer_await_saved(t));
    t->state.seconds = t->seconds_before + ls_now() - t->began;
    LS_TRY(ls_metrics_sync(&t->metrics)); /* the steps before the checkpoint: --resume keeps what stands there */
    LS_TRY(ls_observers_sync(&t->observers));
    LS_TRY(ls_averages_swap(&t->engine));
    enum ls_status st = ls_checkpoint_begin(&t->writer, t->run, &t->engine, &t->card, t->lock, &t->state, t->o->keep);
    enum ls_status back = ls_averages_swap(&t->engine);
    LS_TRY(st == LS_OK ? back : st);
    t->writing = true;
    return t->writer.on ? LS_OK : ls_trainer_await_saved(t);
}

/* Counts the time, and after a failure names the checkpoint to go on from. */
static enum ls_status saved_since(struct ls_trainer *t, double start, enum ls_status st)
{
    t->saving += ls_now() - start;
    if (ls_trace_on(t->stepper.track))
        ls_trace_add_since(
            t->stepper.track, start,
            &(struct ls_slice){.kind = LS_SLICE_SAVE, .name = "checkpoint", .number = (int64_t)t->state.step});
    if (st != LS_OK)
        ls_trainer_name_checkpoint(t);
    return st;
}

enum ls_status ls_trainer_compare(struct ls_trainer *t, int parts)
{
    double begin = ls_trace_begin(t->stepper.track);
    enum ls_status st = ls_trainer_all_know(t, ls_rank_check_values(&t->engine, t->state.step, parts));
    ls_trace_end(t->stepper.track, begin,
                 &(struct ls_slice){.kind = LS_SLICE_CHECK, .name = "compare ranks", .number = (int64_t)t->state.step});
    t->check_due = false;
    if (st == LS_OK || st == LS_PEER_LOST || !t->root)
        return st;
    ls_trainer_await_saved(t);
    ls_trainer_name_checkpoint(t);
    return st;
}

enum ls_status ls_trainer_collect(struct ls_trainer *t)
{
    LS_TRY(ls_step_collect(&t->stepper));
    t->state.verified = !t->engine.comm || t->o->check_every > 0;
    return t->o->check_every > 0 ? ls_trainer_compare(t, LS_RANK_CHECK_PARTS) : LS_OK;
}

/* What a rank that writes no file does meanwhile: it gives rank 0 its part of the model, or of the optimizer's state. */
static enum ls_status give_part(struct ls_trainer *t)
{
    if (!ls_engine_in_parts(&t->engine))
        return ls_engine_serve(&t->engine);
    LS_TRY(ls_averages_swap(&t->engine));
    LS_TRY(ls_engine_serve(&t->engine));
    return ls_averages_swap(&t->engine);
}

/* Servers take part in a gathering once the workers have collected. */
static enum ls_status save(struct ls_trainer *t, bool last)
{
    double start = ls_now();
    LS_TRY(ls_trainer_collect(t));
    LS_TRY(last ? ls_ranks_write(t) : ls_rank_steps_gather(t));
    LS_TRY(ls_broken_gather(t));
    if (!t->root)
        return give_part(t);
    ls_trainer_say_position(t, LS_STAGE_SAVE);
    return saved_since(t, start, ls_engine_served(&t->engine, begin_saving(t)));
}

enum ls_status ls_trainer_save(struct ls_trainer *t)
{
    return save(t, false);
}

enum ls_status ls_trainer_save_last(struct ls_trainer *t)
{
    return save(t, true);
}

enum ls_status ls_trainer_finish_saving(struct ls_trainer *t)
{
    double start = ls_now();
    return t->writing ? saved_since(t, start, ls_trainer_await_saved(t)) : LS_OK;
}

void ls_trainer_keep_saving(struct ls_trainer *t)
{
    if (!t->writing)
        return;
    ls_trainer_say_position(t, LS_STAGE_SAVE);
    ls_trainer_finish_saving(t);
}
