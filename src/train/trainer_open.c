/* Setup of a trainer: everything that is decided before the first step. */
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "exec/rank_reduce.h"
#include "train/evaluation/bn_estimate.h"
#include "train/ranks/fingerprint.h"
#include "exec/averages.h"
#include "exec/identity.h"
#include "checkpoint/locate_model.h"
#include "checkpoint/model_snapshot.h"
#include "train/logbook.h"
#include "checkpoint/rundir.h"
#include "train/trainer.h"
#include "train/ranks/rank_check.h"
#include "train/whiten.h"
#include "checkpoint/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

/* --- resuming ----------------------------------------------------------------------------------------- */

static enum ls_status check_same(const char *option, int64_t given, int64_t recorded)
{
    if (given == recorded)
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "--%s %" PRId64 ": the run was started with %" PRId64
                   ", which is part of what it computes; leave it out, or "
                   "start a new run with --init CHECKPOINT/model.safetensors",
                   option, given, recorded);
}

/* Checks that the options that define the run have not changed. */
static enum ls_status check_resumed(const struct ls_trainer *t)
{
    const struct ls_state *s = &t->state;
    LS_TRY(check_same("batch", t->o->batch, s->batch));
    LS_TRY(check_same("replicas", t->o->replicas, s->replicas));
    LS_TRY(check_same("accumulate", t->o->accumulate, s->accumulate));
    LS_TRY(check_same("seed", (int64_t)t->o->seed, (int64_t)s->seed));
    if (s->averaged != (t->o->ema > 0))
        return ls_fail(
            LS_USAGE,
            "--ema %g: the run was started with%s averages of its weights; %s, or start a new run with --init "
            "CHECKPOINT/model.safetensors",
            t->o->ema, s->averaged ? "" : "out", s->averaged ? "give its --ema" : "leave it out");
    if (s->position > t->epoch_samples)
        return ls_fail(LS_USAGE, "%s: %" PRId64 " samples into an epoch that now has %" PRId64 "; is it the same data?",
                       t->checkpoint, s->position, t->epoch_samples);
    return LS_OK;
}

/* Locks the run directory. From here on no other run writes there. */
static enum ls_status claim(struct ls_trainer *t)
{
    t->made = !ls_file_exists(t->run);
    LS_TRY(ls_dir_make(t->run));
    LS_TRY(ls_run_lock_take(t->run, t->o->command_line, LS_RUN_LOCK_TIMES, &t->lock));
    ls_rundir_remove_stale(t->run);
    ls_checkpoint_remove_stale(t->run);
    return LS_OK;
}

/* Reads the given checkpoint or the newest one. A run without a checkpoint starts from the beginning. */
static enum ls_status find_state(struct ls_trainer *t, bool given)
{
    t->resumed = given || ls_checkpoint_peek(t->run, &t->state);
    if (!t->resumed)
        return LS_OK;
    if (!given) {
        ls_free(t->checkpoint);
        t->checkpoint = NULL;
    }
    LS_TRY(given ? ls_checkpoint_read(t->checkpoint, &t->state)
                 : ls_checkpoint_find(t->run, &t->checkpoint, &t->state));
    LS_TRY(ls_fingerprint_check(t->checkpoint, t->data));
    return check_resumed(t);
}

/* True when all steps and the evaluation after the last epoch are done. */
static bool is_finished(const struct ls_trainer *t)
{
    bool all = !ls_trainer_steps_left(t) && !ls_trainer_epoch_over(t);
    bool evaluated = !ls_trainer_eval_left(t) && !(t->state.end_due && t->task.test);
    return (all && evaluated) || ls_trainer_stops_early(t);
}

static enum ls_status say_finished(struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    bool in_steps = o->steps > 0 || o->epochs != floor(o->epochs);
    int64_t wanted = in_steps ? t->total_steps : (int64_t)o->epochs;
    uint64_t done = in_steps ? t->state.step : t->state.epoch;
    t->finished = true;
    if (ls_trainer_stops_early(t)) {
        ls_trainer_say(t,
                       "Nothing is left to do: the run stopped early after step %" PRIu64 ", after %" PRId64
                       " evaluations in a row without a higher top-1. A larger --early-stop goes on from %s.",
                       t->state.step, t->state.stale, t->checkpoint);
        return LS_OK;
    }
    ls_trainer_say(t, "Nothing is left to do: %" PRIu64 " of %" PRId64 " %s are done, up to %s.", done, wanted,
                   in_steps ? "steps" : "epochs", t->checkpoint);
    ls_trainer_say(t, "More --%s go on from there.", o->steps > 0 ? "steps" : "epochs");
    return LS_OK;
}

/* The last save of a run that was killed may have come without its mark. A run that cannot be written stays as it is. */
static void mend_best(struct ls_trainer *t)
{
    if (!ls_checkpoint_best_lags(t->run, &t->state))
        return;
    bool muted = ls_log_mute(true);
    if (claim(t) == LS_OK)
        ls_checkpoint_mark_best(t->run, &t->state);
    ls_log_mute(muted);
    ls_run_lock_release(t->lock);
    t->lock = NULL;
}

/* A finished run is only read. No lock is left in it. */
static enum ls_status resume_run(struct ls_trainer *t)
{
    bool given = t->checkpoint != NULL;
    if (given || (ls_checkpoint_peek(t->run, &t->state) && is_finished(t))) {
        LS_TRY(find_state(t, given));
        if (is_finished(t) && !given)
            mend_best(t);
        if (is_finished(t))
            return say_finished(t);
    }
    LS_TRY(claim(t));
    return given ? LS_OK : find_state(t, false); /* another process may have continued the run */
}

static enum ls_status new_run(struct ls_trainer *t)
{
    if (!t->o->run)
        return LS_OK; /* the directory is made when everything else is valid */
    t->run = ls_strdup(t->o->run);
    if (!t->run)
        return LS_FAILED;
    LS_TRY(ls_rundir_check(t->o));
    LS_TRY(claim(t));
    return ls_rundir_check(t->o); /* another run may have written there before the lock */
}

/* Finds the run to resume or the directory of a new run. This includes every check that is possible before kernels
 * are measured. */
static enum ls_status find_run(struct ls_trainer *t)
{
    if (!t->root)
        return LS_OK;
    LS_TRY(ls_rundir_resumed(t->o, &t->run, &t->checkpoint));
    return t->run ? resume_run(t) : new_run(t);
}

/* Broadcasts what rank 0 found. */
static enum ls_status share_found(struct ls_trainer *t)
{
    struct {
        bool resumed, finished, per_rank;
        struct ls_state state;
        uint64_t trace_first, trace_last;
    } found;
    memset(&found, 0, sizeof found);
    found.resumed = t->resumed;
    found.finished = t->finished;
    found.per_rank = t->o->per_rank;
    found.state = t->state;
    found.trace_first = t->tracing.first;
    found.trace_last = t->tracing.last;
    t->ranks.every_step = t->o->per_rank;
    if (!t->comm)
        return LS_OK;
    LS_TRY(ls_comm_broadcast(t->comm, 0, &found, sizeof found));
    t->ranks.every_step = found.per_rank;
    t->resumed = found.resumed;
    t->finished = found.finished;
    t->state = found.state;
    t->tracing.first = found.trace_first;
    t->tracing.last = found.trace_last;
    return LS_OK;
}

/* Lists the options that changed since the checkpoint was saved. Returns false when the old options are not known. */
static bool find_changes(const struct ls_trainer *t, char *text, size_t room)
{
    struct ls_options was;
    bool own = ls_rundir_has_config(t->checkpoint), any = own || ls_rundir_has_config(t->run);
    if (!any || ls_options_default(&was) != LS_OK)
        return false;
    bool muted = ls_log_mute(true); /* a configuration of another version may not be readable */
    bool known = ls_rundir_load_config(own ? t->checkpoint : t->run, &was) == LS_OK;
    ls_log_mute(muted);
    if (known)
        ls_rundir_changes(&was, t->o, text, room);
    ls_options_release(&was);
    return known;
}

/* Describes the changes that are allowed but change the result. Returns NULL when there are none. Freed by ls_free. */
static char *describe_changes(const struct ls_trainer *t, uint64_t config, const char *identity)
{
    char text[768] = "", moved[512];
    bool known = find_changes(t, text, sizeof text), changed = known ? *text : t->state.config != config;
    ls_identity_difference(t->state.identity, identity, moved, sizeof moved);
    if (!*t->state.identity && t->state.threads != t->engine.threads)
        snprintf(moved, sizeof moved, "threads %" PRId64 ", now %d", t->state.threads, t->engine.threads);
    if (changed)
        return ls_format(
            "the configuration is not the one of %s%s%s%s%s: the result will differ from the uninterrupted run's",
            t->checkpoint, known ? ": " : "", text, *moved ? "; " : "", moved);
    return *moved ? ls_format("not computed as before (%s): results agree with the uninterrupted run's only up to "
                              "rounding",
                              moved)
                  : NULL;
}

static enum ls_status resume_state(struct ls_trainer *t, uint64_t config)
{
    char identity[LS_IDENTITY_ROOM];
    if (t->root)
        LS_TRY(ls_model_snapshot_check(t->checkpoint, t->run, t->o));
    ls_identity_make(t->o, &t->engine, identity);
    if (t->root)
        t->caution = describe_changes(t, config, identity);
    t->state.config = config;
    t->state.threads = t->engine.threads;
    t->state.jobs = (t->state.jobs > 0 ? t->state.jobs : 1) + 1;
    t->seconds_before = t->state.seconds;
    t->schedule.memory = t->state.schedule;
    snprintf(t->state.identity, sizeof t->state.identity, "%s", identity);
    if (t->state.scale.scale > 0)
        LS_TRY(t->engine.backend->queue->set_scale(t->engine.train.program, &t->state.scale));
    return t->root ? ls_checkpoint_load(t->checkpoint, &t->engine) : LS_OK;
}

/* Describes why a configuration that is run again does not give the same bits. Returns NULL when it does. Freed by
 * ls_free. */
static char *describe_machine(const struct ls_trainer *t)
{
    char moved[512];
    ls_identity_machine_difference(t->planned, t->state.identity, moved, sizeof moved);
    return *moved
               ? ls_format("not computed as in %s (%s): results agree with that run's only up to rounding; --plan %s "
                           "computes with its kernels and threads",
                           t->o->config_run, moved, t->o->config_run)
               : NULL;
}

/* Loads the weights of --init. */
static enum ls_status start_weights(struct ls_trainer *t)
{
    char *file;
    LS_TRY(ls_locate_weights(t->o->init, &file));
    enum ls_status st = ls_weights_start(&t->engine, file, &t->new_head, &t->init_classes);
    ls_free(file);
    return st;
}

static enum ls_status start_state(struct ls_trainer *t, uint64_t config)
{
    t->state = (struct ls_state){.seed = t->o->seed,
                                 .batch = t->o->batch,
                                 .replicas = t->o->replicas,
                                 .accumulate = t->o->accumulate,
                                 .threads = t->engine.threads,
                                 .config = config,
                                 .best_top1 = -1,
                                 .followed_top1 = -1,
                                 .goes_on = true,
                                 .averaged = t->o->ema > 0,
                                 .jobs = 1};
    ls_identity_make(t->o, &t->engine, t->state.identity);
    if (t->root)
        t->caution = describe_machine(t);
    if (!t->root)
        return LS_OK;
    return t->o->init ? start_weights(t) : ls_whiten(&t->engine, &t->task);
}

/* A resumed run needs its plan to compute the same bits. Without the plan the bits would change silently. */
static enum ls_status read_plan(struct ls_trainer *t, const char *path)
{
    char why[1024];
    enum ls_status st = ls_identity_try_plan(path, &t->plan, why, sizeof why);
    if (st == LS_OK)
        return LS_OK;
    if (t->resumed)
        return ls_fail(
            st, "%s; restore that file, or remove it to choose kernels anew, which may change results in rounding",
            why);
    ls_warn("%s; kernels are chosen anew", why);
    return LS_OK;
}

/* Reads the kernels of a resumed run, or of a run whose config.yaml is run again, into t->plan. */
static enum ls_status recorded_plan(struct ls_trainer *t)
{
    char *own = t->resumed && t->run ? ls_format("%s/plan.txt", t->run) : NULL;
    char *other = t->root && t->o->config_run ? ls_format("%s/plan.txt", t->o->config_run) : NULL;
    bool mine = own && (ls_file_exists(own) || (errno != ENOENT && errno != ENOTDIR));
    const char *path = mine ? own : other && ls_file_exists(other) ? other : NULL;
    enum ls_status st = path ? read_plan(t, path) : LS_OK;
    ls_free(own);
    ls_free(other);
    return st;
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

static enum ls_status find_state_of_rank(struct ls_trainer *t)
{
    uint64_t config;
    LS_TRY(ls_rundir_digest(t->o, &config));
    return t->resumed ? resume_state(t, config) : start_state(t, config);
}

/* Sets the state on every rank. Rank 0 also loads the weights, for all that hold a part of them. */
static enum ls_status open_state(struct ls_trainer *t)
{
    enum ls_status st = find_state_of_rank(t);
    if (t->root)
        return ls_engine_served(&t->engine, st);
    enum ls_status served = ls_engine_serve(&t->engine);
    return st != LS_OK ? st : served;
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
        LS_TRY(claim(t));
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
    return find_run(t);
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
    LS_TRY_GOTO(failed, share_found(t));
    if (t->finished)
        return LS_OK;
    LS_TRY_GOTO(failed, ls_trainer_all_know(t, ls_rank_check_data(comm, t->data)));
    describe_model(t);
    LS_TRY_GOTO(failed, together(t, recorded_plan));
    LS_TRY_GOTO(failed, settle_layout(t));
    LS_TRY_GOTO(failed, open_engine(t));
    LS_TRY_GOTO(failed, together(t, check_bn));
    LS_TRY_GOTO(failed, ls_stepper_init(&t->stepper, &t->engine, (struct ls_feed){0}, t->o));
    LS_TRY_GOTO(failed, ls_trainer_all_know(t, ls_rank_check_schedule(&t->engine)));
    LS_TRY_GOTO(failed, together(t, open_state));
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
    ls_free(t->plan);
    ls_free(t->data);
    *t = (struct ls_trainer){.all_know = all_know};
}
