/* Setup of a trainer: everything that is decided before the first step. */
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "exec/rank_reduce.h"
#include "train/evaluation/bn_estimate.h"
#include "train/ranks/fingerprint.h"
#include "exec/averages.h"
#include "exec/identity.h"
#include "train/logbook.h"
#include "checkpoint/rundir.h"
#include "train/trainer.h"
#include "train/ranks/rank_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* What follows evaluations needs some. */
static enum ls_status check_evaluated(const struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    const char *remedy = o->evaluate ? "give --eval-data, or --val-split" : "leave out --no-evaluate";
    if (!t->task.test && ls_schedule_observes(&t->schedule))
        return ls_fail(LS_USAGE, "--schedule %s follows the loss of evaluations, and there are none: %s", o->schedule,
                       remedy);
    if (!t->task.test && (o->early_stop > 0 || o->eval_every > 0 || o->bn_samples > 0))
        return ls_fail(LS_USAGE, "--%s needs evaluations, and there are none: %s",
                       o->early_stop > 0   ? "early-stop"
                       : o->eval_every > 0 ? "eval-every"
                                           : "bn-samples",
                       remedy);
    if (o->eval_every > 0 && ls_sync_choose(o, t->comm ? ls_comm_size(t->comm) : 1)->servers)
        return ls_fail(LS_USAGE,
                       "--eval-every: with --sync %s workers go on without each other and meet at the end of an epoch; "
                       "leave it out to evaluate there",
                       o->sync);
    return LS_OK;
}

static enum ls_status decide_length(struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    int64_t count = ls_dataset_info(t->task.train)->count;
    if (o->epoch_size > count)
        return ls_fail(LS_USAGE, "--epoch-size %" PRId64 ": the data has only %" PRId64 " samples", o->epoch_size,
                       count);
    if (o->bn_samples > count)
        return ls_fail(LS_USAGE, "--bn-samples %" PRId64 ": the training data has only %" PRId64 " samples",
                       o->bn_samples, count);
    t->epoch_samples = o->epoch_size > 0 ? o->epoch_size : count;
    t->steps_per_epoch = (t->epoch_samples + o->batch - 1) / o->batch;
    t->total_steps = o->steps > 0 ? o->steps : (int64_t)ceil(o->epochs * (double)t->steps_per_epoch - 1e-9);
    LS_TRY(ls_schedule_parse(o->schedule, o->warmup, &t->schedule));
    ls_schedule_scale(&t->schedule, o->lr, o->lr_per_256, o->batch, o->replicas, t->steps_per_epoch, t->total_steps);
    LS_TRY(ls_schedule_check(&t->schedule));
    return check_evaluated(t);
}

static void describe_model(struct ls_trainer *t)
{
    const struct ls_dataset_info *info = ls_dataset_info(t->task.train);
    const struct ls_model_size *size = &t->task.size;
    t->card = (struct ls_model_card){.model = t->o->model,
                                     .data = t->data,
                                     .yaml = t->o->model_yaml,
                                     .channels = size->channels,
                                     .height = size->height,
                                     .width = size->width,
                                     .classes = size->classes,
                                     .stored_height = info->height,
                                     .stored_width = info->width,
                                     .class_names = info->class_names,
                                     .class_ids = info->class_ids,
                                     .named = info->class_names ? info->classes : 0};
    ls_augment_frame_text(&t->task.test_augment, t->card.eval_resize, t->card.eval_crop);
    memcpy(t->card.mean, t->task.augment.mean, sizeof t->card.mean);
    memcpy(t->card.deviation, t->task.augment.deviation, sizeof t->card.deviation);
}

/* From now on --parallel is the layout that is used. */
static enum ls_status settle_layout(struct ls_trainer *t)
{
    LS_TRY(ls_layout_settle(t->o, t->comm, &t->task.size, t->plan, &t->layout));
    t->settled = *t->o;
    t->settled.parallel = t->layout.parallel;
    t->o = &t->settled;
    return LS_OK;
}

static enum ls_status open_engine(struct ls_trainer *t)
{
    unsigned uses = LS_ENGINE_TRAIN | (t->o->evaluate ? (unsigned)LS_ENGINE_EVAL : 0u);
    if (t->plan && !t->resumed && !t->o->plan)
        ls_identity_of_plan(t->plan, t->planned);
    return ls_engine_open(&t->engine, t->o, t->comm, &t->task.size, t->plan, uses);
}

static enum ls_status check_bn(struct ls_trainer *t)
{
    return ls_bn_estimate_check(&t->engine, t->o);
}

/* What a checkpoint leaves to be done at its step. A job that was killed may have done it and written it down. */
static unsigned lines_again(const struct ls_trainer *t)
{
    unsigned epoch = ls_trainer_epoch_over(t), eval = epoch || ls_trainer_eval_left(t) || t->state.end_due;
    return epoch << LS_METRICS_EPOCH | eval << LS_METRICS_EVAL;
}

static enum ls_status open_files(struct ls_trainer *t)
{
    char *log = ls_format("%s/log.txt", t->run), *metrics = ls_format("%s/metrics.jsonl", t->run);
    char *plan = ls_format("%s/plan.txt", t->run);
    enum ls_status st = log && metrics && plan ? LS_OK : LS_FAILED;
    if (st == LS_OK)
        st = ls_rundir_config(t->run, t->o); /* first: a run that ends before it saves starts again from this file */
    if (st == LS_OK)
        st = ls_identity_save_plan(&t->engine, t->state.identity, plan);
    if (st == LS_OK)
        st = ls_log_open(log);
    if (st == LS_OK && t->caution)
        ls_warn("%s", t->caution); /* now that log.txt is open */
    if (st == LS_OK)
        ls_logbook_begin(t);
    if (st == LS_OK)
        st = ls_metrics_open(&t->metrics, metrics, t->resumed ? (int64_t)t->state.step : -1, lines_again(t));
    if (st == LS_OK)
        st = ls_trainer_observe(t);
    ls_free(log);
    ls_free(metrics);
    ls_free(plan);
    return st;
}

/* A checkpoint has the averages of --ema in the place of the weights. A new run has none yet. */
static enum ls_status open_averages(struct ls_trainer *t)
{
    const char *bad;
    if (!t->root && !ls_engine_in_parts(&t->engine))
        return LS_OK;
    if (!t->resumed)
        return ls_averages_begin(&t->engine);
    LS_TRY(ls_averages_swap(&t->engine));
    LS_TRY(ls_averages_check(&t->engine, &bad));
    if (bad)
        return ls_fail(LS_BAD_INPUT,
                       "%s%smodel.safetensors: the average of %s is not finite; resume an older checkpoint",
                       t->checkpoint ? t->checkpoint : "", t->checkpoint ? "/" : "", bad);
    return LS_OK;
}

/* The number of slots in the loader's ring. Several processes look one step ahead (step.h: starved), so the ring
 * then holds one step of this process, up to 1 GiB and 4096 slots. */
static int ring_of(const struct ls_trainer *t)
{
    const struct ls_model_size *size = &t->task.size;
    double slot = (double)size->batch * (double)(size->channels * size->height * size->width) * sizeof(float);
    int least = 3 + t->stepper.report_delay + ls_engine_passes_at_once(&t->engine),
        most = 1073741824 / slot < 4096 ? (int)(1073741824 / slot) : 4096;
    int step = t->engine.comm ? t->stepper.replicas.n_slices + 2 + t->stepper.report_delay : 0;
    int ring = step < most ? step : most;
    return ring > least ? ring : least;
}

static enum ls_status open_loader(struct ls_trainer *t)
{
    int64_t parts = t->engine.tree->replicas * t->engine.passes;
    int most, threads = ls_task_loader_threads(t->o, &t->engine, &most);
    struct ls_loader_options options = {
        .set = t->task.train,
        .augment = t->task.augment,
        .seed = t->o->seed,
        .shuffle = t->o->shuffle,
        .on_bad = strcmp(t->o->on_bad_sample, "skip") == 0 ? LS_BAD_REPLACED : LS_BAD_FAILS,
        .threads = threads,
        .max_threads = most,
        .ring = ring_of(t),
        .held = t->stepper.report_delay + ls_engine_passes_at_once(&t->engine) - 1,
        .batch = t->task.size.batch,
        .parts = parts,
        .step = t->o->batch,
        .order = t->stepper.replicas.order,
        .own = t->stepper.replicas.n_slices,
        .epoch_samples = t->epoch_samples,
        .goes_on = t->state.goes_on,
        .epoch = t->state.epoch,
        .position = t->state.position,
        .epochs = (uint64_t)((t->total_steps + t->steps_per_epoch - 1) / t->steps_per_epoch),
        .trace = t->tracing.trace,
        .first_track = LS_TRACK_LOADER,
    };
    if (t->state.position >= t->epoch_samples) {
        options.epoch++;
        options.position = 0;
    }
    if (t->state.step >= (uint64_t)t->total_steps || options.own == 0 || !ls_engine_reads_samples(&t->engine))
        return LS_OK;
    LS_TRY(ls_device_dataset_open(&t->stepper.train, &t->engine, &t->engine.train, t->task.train, &t->task.augment));
    options.form = t->stepper.train.form;
    LS_TRY(ls_loader_new(&options, &t->loader));
    ls_feed_pin(&t->engine, t->loader);
    t->stepper.feed = ls_feed_loader(t->loader);
    return LS_OK;
}

static enum ls_status open_run(struct ls_trainer *t)
{
    if (t->root && !t->run) {
        LS_TRY(ls_rundir_make(t->o, &t->run));
        LS_TRY(ls_trainer_claim(t));
    }
    if (t->root)
        LS_TRY(open_files(t));
    LS_TRY(ls_tracing_open(t));
    LS_TRY(ls_ranks_open(t));
    return open_loader(t);
}

/* The setup that every process does without the others. */
static enum ls_status open_task(struct ls_trainer *t)
{
    LS_TRY(ls_tracing_parse(&t->tracing, t->o->trace));
    LS_TRY(ls_task_open(&t->task, t->o, true, t->o->evaluate, NULL));
    LS_TRY(ls_engine_pass_batch(t->o, &t->task.size.batch));
    LS_TRY(decide_length(t));
    LS_TRY(ls_fingerprint_take(&t->task, t->o, &t->data));
    LS_TRY(t->comm ? ls_engine_check(t->o, &t->task.size, ls_comm_size(t->comm)) : LS_OK);
    return ls_trainer_find_run(t);
}

/* Runs open on every rank. A failure on one rank ends all of them and is printed once. */
static enum ls_status together(struct ls_trainer *t, enum ls_status (*open)(struct ls_trainer *t))
{
    if (!t->root)
        ls_log_mute(1);
    enum ls_status st = open(t);
    if (!t->root)
        st = ls_rank_reduce_unmute(st);
    return ls_trainer_all_know(t, ls_rank_reduce_status(t->comm, st));
}

/* Removes a run directory that this run made and did not use. rmdir keeps a directory that is not empty. */
static void remove_failed_run(struct ls_trainer *t)
{
    ls_run_lock_release(t->lock);
    t->lock = NULL;
    if (t->made)
        rmdir(t->run);
}

enum ls_status ls_trainer_open(struct ls_trainer *t, const struct ls_options *o, struct ls_comm *comm)
{
    enum ls_status st;
    *t = (struct ls_trainer){.o = o, .comm = comm, .root = !comm || ls_comm_rank(comm) == 0, .opened = ls_now()};
    LS_TRY_GOTO(failed, ls_trainer_all_know(t, ls_rank_check_options(comm, o)));
    LS_TRY_GOTO(failed, together(t, open_task));
    LS_TRY_GOTO(failed, ls_trainer_share_found(t));
    if (t->finished)
        return LS_OK;
    LS_TRY_GOTO(failed, ls_trainer_all_know(t, ls_rank_check_data(comm, t->data)));
    describe_model(t);
    LS_TRY_GOTO(failed, together(t, ls_trainer_find_plan));
    LS_TRY_GOTO(failed, settle_layout(t));
    LS_TRY_GOTO(failed, open_engine(t));
    LS_TRY_GOTO(failed, together(t, check_bn));
    LS_TRY_GOTO(failed, ls_stepper_init(&t->stepper, &t->engine, (struct ls_feed){0}, t->o));
    LS_TRY_GOTO(failed, ls_trainer_all_know(t, ls_rank_check_schedule(&t->engine)));
    LS_TRY_GOTO(failed, together(t, ls_trainer_open_state));
    LS_TRY_GOTO(failed, together(t, open_averages));
    LS_TRY_GOTO(failed, ls_engine_share(&t->engine));
    LS_TRY_GOTO(failed, together(t, open_run));
    return LS_OK;
failed:
    remove_failed_run(t);
    ls_trainer_close(t);
    return st;
}

enum ls_status ls_trainer_all_know(struct ls_trainer *t, enum ls_status status)
{
    t->all_know = status != LS_OK && status != LS_PEER_LOST;
    return status;
}

void ls_trainer_close(struct ls_trainer *t)
{
    bool all_know = t->all_know;
    ls_metrics_close(&t->metrics);
    ls_observers_close(&t->observers, LS_FAILED);
    ls_ranks_close(&t->ranks);
    ls_step_drop(&t->stepper); /* after a failure the last step may still read its input */
    ls_feed_unpin(&t->engine, t->loader);
    ls_loader_free(t->loader);
    ls_stepper_release(&t->stepper);
    if (t->writing)
        ls_checkpoint_finish(&t->writer);
    ls_engine_close(&t->engine);
    ls_layout_release(&t->layout);
    ls_task_close(&t->task);
    ls_tracing_close(&t->tracing);
    ls_run_lock_release(t->lock);
    ls_free(t->run);
    ls_free(t->checkpoint);
    ls_free(t->caution);
    ls_free(t->other_classes);
    ls_free(t->plan);
    ls_free(t->data);
    *t = (struct ls_trainer){.all_know = all_know};
}
