/* Prints what a run is about to do. */
#include "base/log.h"
#include "base/system/machine.h"
#include "graph/ops.h"
#include "optim/optim.h"
#include "report/gpu.h"
#include "exec/device/peers.h"
#include "exec/identity.h"
#include "exec/shards/shards.h"
#include "checkpoint/model_snapshot.h"
#include "train/evaluation/bn_estimate.h"
#include "exec/pipeline/pipeline.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ls_trainer_say(const struct ls_trainer *t, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!t->root)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (t->o->quiet)
        ls_note("%s", line);
    else
        ls_print("%s", line);
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void say_frozen(const struct ls_trainer *t)
{
    const struct ls_graph *g = ls_engine_whole(&t->engine);
    int frozen = 0, tensors = 0, fixed = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        frozen += g->tensors[i].frozen;
        tensors += g->tensors[i].role == LS_ROLE_PARAM;
    }
    for (int n = 0; n < g->n_nodes; n++)
        fixed += g->nodes[n].op == &ls_op_bn && !g->nodes[n].attr.training;
    if (frozen > 0)
        ls_trainer_say(t, "  frozen     %d of %d parameter tensors; %d BN layer%s their running statistics", frozen,
                       tensors, fixed, fixed == 1 ? " keeps" : "s keep");
}

static bool has_node(const struct ls_trainer *t, const struct ls_op *op)
{
    const struct ls_graph *g = ls_engine_whole(&t->engine);
    int n = 0;
    while (n < g->n_nodes && g->nodes[n].op != op)
        n++;
    return n < g->n_nodes;
}

/* Options that this model or batch leaves without effect. */
static void warn_of_nothing(const struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    bool mixes = o->mixup > 0 || o->cutmix > 0;
    if (!t->root)
        return;
    if (o->dropout > 0 && !has_node(t, &ls_op_dropout))
        ls_warn("--dropout %g changes nothing: %s has no dropout layer", o->dropout, o->model);
    if (o->drop_path > 0 && !has_node(t, &ls_op_drop_path))
        ls_warn("--drop-path %g changes nothing: %s has no drop_path layer", o->drop_path, o->model);
    if (mixes && t->task.size.batch == 1)
        ls_warn(
            "--%s changes nothing: samples are mixed with others of their pass, and each is alone in its own; give a "
            "larger --batch, or fewer --replicas or --accumulate",
            o->mixup > 0 ? "mixup" : "cutmix");
}

/* The samples of the smallest pass of a step. */
static int64_t smallest_pass(const struct ls_trainer *t, int64_t samples)
{
    int64_t passes = (int64_t)t->engine.tree->replicas * t->engine.passes;
    return samples < passes ? 1 : samples / passes;
}

/* A mean over one value is that value: BN then gives the same for each image, and what is below it learns nothing. */
static void warn_of_single_values(const struct ls_trainer *t)
{
    const struct ls_graph *g = ls_engine_whole(&t->engine);
    int64_t last = t->epoch_samples % t->o->batch;
    bool always = smallest_pass(t, t->o->batch) == 1, at_end = last > 0 && smallest_pass(t, last) == 1;
    if (!t->root || (!always && !at_end))
        return;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        if (node->op != &ls_op_bn || !node->attr.training)
            continue;
        const struct ls_shape *in = &g->tensors[node->in[0]].shape;
        if (in->dim[2] * in->dim[3] != 1)
            continue;
        ls_warn("BN layer %s sees one value of a channel in %s, which has one sample; give another --batch, or fewer "
                "--replicas or --accumulate",
                node->name, always ? "a pass" : "the last step of an epoch");
        return;
    }
}

static void say_model(const struct ls_trainer *t)
{
    const struct ls_model_size *size = &t->task.size;
    int tensors;
    int64_t parameters = ls_graph_parameters(ls_engine_whole(&t->engine), &tensors);
    ls_trainer_say(t, "Training %" PRId64 " parameters in %d parameter tensors.", parameters, tensors);
    ls_trainer_say(t,
                   "  model      %s, input %" PRId64 "x%" PRId64 "x%" PRId64 ", %" PRId64
                   " classes, %.1f million multiply-adds a sample",
                   t->o->model, size->channels, size->height, size->width, size->classes,
                   (double)ls_graph_macs(ls_engine_whole(&t->engine)) / 1e6);
    if (t->o->init && !t->resumed)
        ls_trainer_say(t, "  weights    from %s", t->o->init);
    if (t->new_head)
        ls_trainer_say(t, "  head       %s starts anew: it is for %" PRId64 " classes there, %" PRId64 " here",
                       t->new_head, t->init_classes, size->classes);
    if (t->other_classes)
        ls_warn("--init %s: %s", t->o->init, t->other_classes);
    say_frozen(t);
    warn_of_nothing(t);
    warn_of_single_values(t);
}

enum { AUGMENT_TEXT = LS_AUGMENT_TEXT + 256 };

static void describe_augment(const struct ls_augment *a, const struct ls_options *o, char text[AUGMENT_TEXT])
{
    char scale[48] = "", cut[80] = "", mixup[48] = "", cutmix[48] = "", effects[LS_AUGMENT_TEXT];
    if (a->random_resized)
        snprintf(scale, sizeof scale, "random resized crops");
    else if (a->resize > 0)
        snprintf(scale, sizeof scale, "shorter side to %d", a->resize);
    if (a->crop_pad >= 0)
        snprintf(cut, sizeof cut, "random crops after padding by %d%s", a->crop_pad, a->reflect ? ", reflected" : "");
    else if (a->center)
        snprintf(cut, sizeof cut, "the centre");
    if (o->mixup > 0)
        snprintf(mixup, sizeof mixup, "mixup %g", o->mixup);
    if (o->cutmix > 0)
        snprintf(cutmix, sizeof cutmix, "cutmix %g", o->cutmix);
    ls_effects_text(a, effects);
    const char *flips = a->alternate ? "flips in turns" : a->flip ? "flips" : "";
    const char *words[] = {scale, cut, flips, *effects ? effects + 1 : "", mixup, cutmix};
    int at = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (*words[i])
            at += snprintf(text + at, AUGMENT_TEXT - (size_t)at, "%s%s", at > 0 ? ", " : "", words[i]);
    if (at == 0)
        snprintf(text, AUGMENT_TEXT, "none");
}

/* In log.txt only. */
static void note_ignored(const struct ls_dataset *set)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    if (info->ignored > 0)
        ls_note("  ignored    %" PRId64 " file%s without the extension of an image (the first: %s)", info->ignored,
                plural(info->ignored), info->ignored_name ? info->ignored_name : "");
}

static void say_data(const struct ls_trainer *t)
{
    const struct ls_dataset_info *info = ls_dataset_info(t->task.train);
    char test[96] = "", augment[AUGMENT_TEXT], evaluated[256];
    if (t->task.test)
        snprintf(test, sizeof test, ", evaluated on %" PRId64, ls_dataset_info(t->task.test)->count);
    ls_trainer_say(t, "  data       %s (%s): %" PRId64 " samples, %" PRId64 " classes%s", t->o->data, info->format,
                   info->count, info->classes, test);
    if (t->o->val_split > 0)
        ls_trainer_say(t, "  split      %g of the samples, chosen by a hash of their names, are not trained on",
                       t->o->val_split);
    if (info->folder && t->task.test && ls_dataset_info(t->task.test)->folder)
        ls_trainer_say(t, "  folders    training on %s, evaluation on %s", info->folder,
                       ls_dataset_info(t->task.test)->folder);
    else if (info->folder)
        ls_trainer_say(t, "  folders    training on %s", info->folder);
    note_ignored(t->task.train);
    if (t->task.test)
        note_ignored(t->task.test);
    describe_augment(&t->task.augment, t->o, augment);
    ls_trainer_say(t, "  augment    %s; order %s, seed %" PRIu64, augment,
                   t->o->shuffle ? "new each epoch" : "as stored", t->o->seed);
    ls_augment_describe(&t->task.test_augment, evaluated);
    ls_trainer_say(t, "  evaluated  %s%s%s", evaluated, t->o->tta ? "; the mean of several views: " : "",
                   t->o->tta ? t->o->tta : "");
}

static void say_batch(const struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    char parts[128] = "";
    int replicas = t->engine.tree->replicas, passes = t->engine.passes;
    if (replicas * passes > 1)
        snprintf(parts, sizeof parts, " = %d replica%s x %d pass%s x %" PRId64, replicas, plural(replicas), passes,
                 passes == 1 ? "" : "es", t->task.size.batch);
    ls_trainer_say(t, "  batch      %" PRId64 "%s; the gradient is the mean over all its samples", o->batch, parts);
    ls_trainer_say(t, "  length     %" PRId64 " step%s, %" PRId64 " an epoch", t->total_steps, plural(t->total_steps),
                   t->steps_per_epoch);
    if (o->epoch_size > 0 && !t->state.goes_on)
        ls_trainer_say(
            t,
            "  epochs     as this run was begun by an older version: each uses the first samples of an order of its own");
}

static void say_rate(const struct ls_trainer *t)
{
    const struct ls_options *o = t->o;
    char rule[96] = "", optimizer[256];
    if (o->lr_per_256)
        snprintf(rule, sizeof rule, " = %g x %" PRId64 "/256 (linear scaling)", o->lr, o->batch);
    ls_trainer_say(t, "  rate       %g%s, schedule %s, warm-up %s", t->schedule.global, rule, o->schedule, o->warmup);
    if (ls_schedule_is_flat(&t->schedule) && t->root)
        ls_warn(
            "--warmup %s changes nothing: %s; give a lower rate to begin at, such as --warmup gradual:%" PRId64 ":%g",
            o->warmup,
            t->schedule.warmup_base > 0 ? "it begins at the full rate" : "with one replica it begins at the full rate",
            t->schedule.warmup_length, t->schedule.global / 10);
    if (ls_schedule_only_warms(&t->schedule) && t->root)
        ls_warn("--warmup %s: the run ends before the warm-up does, after %" PRId64 " of its %" PRId64
                " steps; it never has the full rate",
                o->warmup, t->total_steps, ls_schedule_warmup_steps(&t->schedule));
    ls_optim_describe(o, optimizer, sizeof optimizer);
    ls_trainer_say(t, "  optimizer  %s%s", optimizer, o->label_smoothing > 0 ? ", labels smoothed" : "");
    if (o->bn_samples > 0)
        ls_trainer_say(t,
                       "  BN         statistics taken anew before each evaluation, from %" PRId64
                       " training samples in batches of %" PRId64,
                       ls_bn_estimate_samples(&t->task, o), t->task.size.batch);
}

/* Prints the GPU or the processor, and the versions of the libraries that compute and communicate. */
static void say_hardware(const struct ls_trainer *t)
{
    const struct ls_engine *e = &t->engine;
    struct ls_backend_about about;
    char computes[96], driver[96] = "", mpi[64] = "", nccl[96] = "";
    e->backend->about(&about);
    if (*about.bus) {
        snprintf(computes, sizeof computes, "%s", about.isa);
        if (!ls_gpu_driver(driver, sizeof driver))
            driver[0] = 0;
    } else
        ls_machine_processor(computes, sizeof computes);
    if (e->comm)
        ls_comm_library(e->comm, mpi);
    ls_peers_library(e, nccl, sizeof nccl);
    ls_trainer_say(t, "  hardware   %s; %s%s%s%s%s%s%s", computes, about.library, *driver ? ", driver " : "", driver,
                   *nccl ? ", " : "", nccl, *mpi ? ", " : "", mpi);
}

/* Prints how much of the optimizer's state is here, if it is sharded. */
static void say_shards(const struct ls_trainer *t)
{
    const struct ls_engine *e = &t->engine;
    struct ls_shards_bytes bytes;
    if (!e->shards || ls_shards_predict(e, t->o, ls_comm_size(e->comm), &bytes) != LS_OK)
        return;
    ls_trainer_say(t, "  shards     %.1f MiB of optimizer state, of which a worker holds at most %.1f MiB",
                   (double)bytes.all / 1048576, (double)bytes.most / 1048576);
    if (e->params)
        ls_trainer_say(
            t, "             %.1f MiB of parameters, of which a worker holds at most %.1f MiB, and %.1f MiB gathered",
            (double)bytes.all_parameters / 1048576, (double)bytes.most_parameters / 1048576,
            (double)bytes.ring / 1048576);
}

static void say_machine(const struct ls_trainer *t)
{
    const struct ls_engine *e = &t->engine;
    int most, loaders = ls_task_loader_threads(t->o, e, &most);
    ls_trainer_say(t, "  machine    backend %s, %s, %d thread%s, %d loader thread%s%s", e->backend->name, t->o->dtype,
                   e->threads, plural(e->threads), loaders, plural(loaders), most > 0 ? " to begin with" : "");
    char words[512];
    ls_identity_words(t->state.identity, words, sizeof words);
    ls_trainer_say(t, "  identity   %08" PRIx32 ": %s", ls_identity_number(t->state.identity), words);
    if (!e->pipeline) /* each stage has its own */
        ls_trainer_say(t, "  memory     %.1f MiB parameters and state, %.1f MiB activations, %.1f MiB gradients",
                       (double)(e->store_bytes + ls_shards_held(e)) / 1048576, (double)e->arena_bytes / 1048576,
                       (double)e->n_grads * sizeof(float) / 1048576);
    say_shards(t);
}

/* Prints which part of the input the device prepares, if any. */
static void say_input(const struct ls_trainer *t)
{
    const struct ls_device_dataset *s = &t->stepper.train;
    if (s->form == LS_FORM_CROPS)
        ls_trainer_say(t, "  input      cut by the device out of %.1f MiB of images that it holds",
                       (double)s->held_bytes / 1048576);
    else if (s->form == LS_FORM_PIXELS)
        ls_trainer_say(t, "  input      bytes, normalised by the device");
}

/* Prints what each process of a pipeline has. Groups of processes have the same. */
static void say_stages(const struct ls_trainer *t)
{
    const struct ls_engine *e = &t->engine;
    const struct ls_pipeline *p = e->pipeline;
    int groups = e->mesh.axes[LS_PARALLEL_DATA].size, passes = t->stepper.replicas.n_slices;
    char all[48] = "";
    if (groups > 1)
        snprintf(all, sizeof all, "%d groups of ", groups);
    ls_trainer_say(t, "  pipeline   %s%d stages, %d pass%s a step: at least %.1f%% of the time is idle", all, p->stages,
                   passes, passes == 1 ? "" : "es", 100.0 * (p->stages - 1) / (passes + p->stages - 1));
    for (int i = 0; i < p->stages; i++) {
        const struct ls_stage_about *a = &p->about[i];
        char work[48];
        if (t->layout.stages > 0)
            snprintf(work, sizeof work, "measured %.1f ms a pass", t->layout.ms[i]);
        else
            snprintf(work, sizeof work, "%.0f%% of the work", 100 * a->share);
        ls_trainer_say(t,
                       "  stage %-4d from %s: %s; %.1f MiB: parameters and state %.1f, "
                       "activations %lld x %.1f, gradients %.1f, buffers %.1f; sends %.1f MiB a pass",
                       i, a->first, work, (double)ls_stage_bytes(a) / 1048576, (double)a->store / 1048576,
                       (long long)a->lanes, (double)a->arena / 1048576, (double)a->grads / 1048576,
                       (double)a->buffers / 1048576, (double)a->travel / 1048576);
    }
}

/* Prints how the layout was chosen. */
static void say_layout(const struct ls_trainer *t)
{
    bool first = true;
    for (const char *at = t->layout.report; at && *at; first = false) {
        size_t length = strcspn(at, "\n");
        ls_trainer_say(t, "  %-11s%.*s", first ? "layout" : "", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

/* Prints the other processes and how gradients are combined. */
static void say_workers(const struct ls_trainer *t)
{
    const struct ls_engine *e = &t->engine;
    if (!e->comm)
        return;
    int size = ls_comm_size(e->comm), nodes = 0;
    for (int rank = 0; rank < size; rank++)
        nodes = ls_comm_node(e->comm, rank) >= nodes ? ls_comm_node(e->comm, rank) + 1 : nodes;
    struct ls_cost cost = ls_comm_cost(e->comm, ls_comm_choice(e->comm, e->n_grads * sizeof(float)));
    ls_trainer_say(t, "  workers    %d on %d host%s over %s, %d replicas; a sum takes %.0f us and %.2f ms a MiB", size,
                   nodes, plural(nodes), ls_comm_transport(e->comm), e->tree->replicas, 1e6 * cost.alpha,
                   1e3 * 1048576 * cost.beta);
    if (e->pipeline)
        say_stages(t);
    else if (e->strategy->local_mean && e->strategy->no_reduce)
        ls_trainer_say(t, "  sync       %s, each worker by itself; all take the mean every %lld steps", t->o->sync,
                       (long long)t->o->local_steps);
    else
        ls_trainer_say(t, "  sync       %s, compression %s, %d bucket%s, summed by %s", t->o->sync, t->o->compress,
                       e->n_buckets, plural(e->n_buckets),
                       e->strategy->summed_by ? e->strategy->summed_by : "the host");
    int servers = ls_sync_servers(t->o, size);
    if (servers > 0)
        ls_trainer_say(t,
                       "  servers    the last %d of these processes; they hold the parameters and compute no gradients",
                       servers);
}

void ls_trainer_announce(const struct ls_trainer *t)
{
    if (t->root)
        ls_model_snapshot_warn(t->o);
    say_model(t);
    say_data(t);
    say_batch(t);
    say_rate(t);
    say_hardware(t);
    say_machine(t);
    say_input(t);
    say_workers(t);
    say_layout(t);
    ls_trainer_say(t, "  run        %s", t->run);
    if (t->resumed)
        ls_trainer_say(t, "Going on after step %" PRIu64 " from %s.", t->state.step, t->checkpoint);
    else if (t->o->resume)
        ls_trainer_say(t, "%s has no checkpoint yet: the run starts from the beginning.", t->run);
}
