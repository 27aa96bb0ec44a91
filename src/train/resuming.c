/* Where a run begins: at its first step, or at a checkpoint. */
#include "base/files/file.h"
#include "base/log.h"
#include "checkpoint/locate_model.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/rundir.h"
#include "checkpoint/weights.h"
#include "exec/identity.h"
#include "train/ranks/fingerprint.h"
#include "train/trainer.h"
#include "train/whiten.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

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

enum ls_status ls_trainer_claim(struct ls_trainer *t)
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
                 : ls_checkpoint_find(t->run, &t->checkpoint, &t->state, NULL));
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

/* The last save of a run that was killed may have come without its mark, and left the folder it replaced. A run that cannot
 * be written stays as it is. */
static void mend_last_save(struct ls_trainer *t)
{
    if (!ls_checkpoint_best_lags(t->run, &t->state) && !ls_checkpoint_has_stale(t->run))
        return;
    bool muted = ls_log_mute(true);
    if (ls_trainer_claim(t) == LS_OK && ls_checkpoint_best_lags(t->run, &t->state))
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
            mend_last_save(t);
        if (is_finished(t))
            return say_finished(t);
    }
    LS_TRY(ls_trainer_claim(t));
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
    LS_TRY(ls_trainer_claim(t));
    return ls_rundir_check(t->o); /* another run may have written there before the lock */
}

enum ls_status ls_trainer_find_run(struct ls_trainer *t)
{
    if (!t->root)
        return LS_OK;
    LS_TRY(ls_rundir_resumed(t->o, &t->run, &t->checkpoint));
    return t->run ? resume_run(t) : new_run(t);
}

enum ls_status ls_trainer_share_found(struct ls_trainer *t)
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

/* A head for as many classes stays, even if they are others by name: sets other_classes. */
static enum ls_status compare_classes(struct ls_trainer *t, const char *path)
{
    struct ls_safetensors file;
    struct ls_model_card there;
    struct ls_arena strings = {0};
    LS_TRY(ls_safetensors_open(path, &file));
    enum ls_status st = ls_model_card_read(&file, path, &strings, &there);
    if (st == LS_OK && there.named == t->card.named)
        for (int64_t i = 0; i < there.named && !t->other_classes; i++)
            if (!ls_class_same(there.class_names[i], t->card.class_names[i]))
                t->other_classes = ls_format("its classes have other names, and the head stays as it is: class %" PRId64
                                             " is '%s' there, '%s' here",
                                             i, there.class_names[i], t->card.class_names[i]);
    ls_safetensors_release(&file);
    ls_arena_release(&strings);
    return st;
}

/* Loads the weights of --init. */
static enum ls_status start_weights(struct ls_trainer *t)
{
    char *file;
    FILE *held;
    LS_TRY(ls_locate_weights(t->o->init, &file, &held));
    enum ls_status st = ls_weights_start(&t->engine, file, &t->new_head, &t->init_classes);
    if (st == LS_OK && !t->new_head)
        st = compare_classes(t, file);
    ls_checkpoint_let_go(&held);
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

enum ls_status ls_trainer_find_plan(struct ls_trainer *t)
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

static enum ls_status find_state_of_rank(struct ls_trainer *t)
{
    uint64_t config;
    LS_TRY(ls_rundir_digest(t->o, &config));
    return t->resumed ? resume_state(t, config) : start_state(t, config);
}

enum ls_status ls_trainer_open_state(struct ls_trainer *t)
{
    enum ls_status st = find_state_of_rank(t);
    if (t->root)
        return ls_engine_served(&t->engine, st);
    enum ls_status served = ls_engine_serve(&t->engine);
    return st != LS_OK ? st : served;
}
