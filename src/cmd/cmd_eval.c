/* lockstep eval: computes exact loss, top-1 and top-5 of a trained model. */
#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "report/formats/table.h"
#include "launch/children/workers.h"
#include "cmd/world.h"
#include "exec/dtype.h"
#include "exec/rank_reduce.h"
#include "train/ranks/rank_check.h"
#include "train/evaluation/evaluate.h"
#include "train/ranks/fingerprint.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/locate_model.h"
#include "checkpoint/weights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 256, NAME_ROOM = 4096 };

static json_t *transform_json(const struct ls_augment *a)
{
    char resize[16], crop[32];
    json_t *mean = json_array(), *deviation = json_array();
    ls_augment_frame_text(a, resize, crop);
    for (int c = 0; c < a->channels; c++) {
        json_array_append_new(mean, json_real((double)a->mean[c]));
        json_array_append_new(deviation, json_real((double)a->deviation[c]));
    }
    return json_pack("{s:s, s:s, s:[I, I, I], s:o, s:o}", "resize", resize, "crop", crop, "input",
                     (json_int_t)a->channels, (json_int_t)a->height, (json_int_t)a->width, "mean", mean, "deviation",
                     deviation);
}

static json_t *classes_json(const struct ls_confusion *c, const struct ls_class_names *names)
{
    json_t *all = json_array();
    char name[NAME], other[NAME];
    for (int64_t i = 0; i < c->classes; i++) {
        struct ls_class_result r = ls_confusion_class(c, i);
        json_t *one =
            json_pack("{s:s, s:I, s:I, s:I}", "name", ls_class_name(names, i, name, sizeof name), "samples",
                      (json_int_t)r.samples, "predicted", (json_int_t)r.predicted, "correct", (json_int_t)r.correct);
        json_object_set_new(one, "precision", isnan(r.precision) ? json_null() : json_real(r.precision));
        json_object_set_new(one, "recall", isnan(r.recall) ? json_null() : json_real(r.recall));
        if (r.taken_for >= 0)
            json_object_set_new(one, "taken_for", json_string(ls_class_name(names, r.taken_for, other, sizeof other)));
        json_array_append_new(all, one);
    }
    return all;
}

static enum ls_status print_json(const struct ls_options *o, const struct ls_augment *a, const char *file,
                                 const struct ls_report *r, const struct ls_confusion *c,
                                 const struct ls_class_names *names)
{
    json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "kind", "eval", "model",
                            o->model, "data", o->eval_data ? o->eval_data : o->data, "weights", file, "samples",
                            (json_int_t)r->samples, "loss", r->loss, "top1", r->top1, "top5", r->top5, "samples_per_s",
                            ls_report_speed(r), "seconds", r->seconds, "transform", transform_json(a));
    if (out && r->counts_broken)
        json_object_set_new(out, "broken", json_integer((json_int_t)r->broken));
    if (o->per_class)
        json_object_set_new(out, "classes", classes_json(c, names));
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

/* --- classes ------------------------------------------------------------------------------------------------------ */

static void share_cell(struct ls_table *t, double share)
{
    if (isnan(share))
        ls_table_cell(t, "-");
    else
        ls_table_cell(t, "%.2f%%", 100 * share);
}

static enum ls_status print_classes(const struct ls_confusion *c, const struct ls_class_names *names)
{
    static const char *const headings[] = {"class", "samples", "precision", "recall", "taken for", "share"};
    struct ls_table table;
    char name[NAME];
    ls_table_init(&table, "lrrrlr", headings);
    for (int64_t i = 0; i < c->classes; i++) {
        struct ls_class_result r = ls_confusion_class(c, i);
        ls_table_row(&table);
        ls_table_cell(&table, "%s", ls_class_name(names, i, name, sizeof name));
        ls_table_cell(&table, "%lld", (long long)r.samples);
        share_cell(&table, r.precision);
        share_cell(&table, r.recall);
        if (r.taken_for < 0)
            continue;
        ls_table_cell(&table, "%s", ls_class_name(names, r.taken_for, name, sizeof name));
        share_cell(&table, (double)c->counts[i * c->classes + r.taken_for] / (double)r.samples);
    }
    enum ls_status st = ls_table_print(&table, stdout);
    ls_table_release(&table);
    return st;
}

static bool is_output(const char *path)
{
    return strcmp(path, "-") == 0;
}

static enum ls_status check_confusion(const struct ls_options *o)
{
    struct ls_file_writer trial;
    if (!o->confusion)
        return LS_OK;
    if (is_output(o->confusion))
        return o->json ? ls_fail(LS_USAGE, "--confusion -: --json already writes to standard output; name a file")
                       : LS_OK;
    if (!ls_ends_in(o->confusion, ".csv") && !ls_ends_in(o->confusion, ".json") && !ls_ends_in(o->confusion, ".txt"))
        return ls_fail(LS_USAGE, "--confusion %s: name a file that ends in .txt, .csv or .json, or - to print it",
                       o->confusion);
    LS_TRY(ls_file_writer_open(&trial, o->confusion)); /* reports a folder that is missing or cannot be written */
    ls_file_writer_cancel(&trial);
    return LS_OK;
}

/* Before an evaluation that may take long: can its result be computed? */
static enum ls_status check_classes(const struct ls_options *o, const struct ls_task *task)
{
    if ((!o->per_class && !o->confusion) || task->size.classes <= LS_CONFUSION_CLASSES)
        return LS_OK;
    return ls_fail(LS_USAGE, "--per-class and --confusion are for at most %d classes; this model has %lld",
                   LS_CONFUSION_CLASSES, (long long)task->size.classes);
}

static enum ls_status put_out(const struct ls_options *o, const struct ls_task *task, const struct ls_confusion *c,
                              const struct ls_class_names *names)
{
    if (o->per_class && !o->json)
        LS_TRY(print_classes(c, names));
    if (!o->confusion)
        return LS_OK;
    if (is_output(o->confusion)) {
        ls_confusion_print(c, names, stdout);
        return LS_OK;
    }
    if (ls_ends_in(o->confusion, ".txt"))
        return ls_confusion_write_text(c, names, o->confusion);
    return ls_ends_in(o->confusion, ".csv") ? ls_confusion_write_csv(c, names, o->confusion)
                                            : ls_confusion_write_json(c, names, task, 0, o->confusion);
}

/* --- the command ---------------------------------------------------------------------------------------------------- */

static enum ls_status evaluate(const struct ls_options *o, struct ls_comm *comm, const struct ls_task *task,
                               const char *file, struct ls_report *r, struct ls_confusion *confusion)
{
    struct ls_engine engine;
    struct ls_stepper stepper = {0};
    struct ls_console console;
    LS_TRY(ls_engine_open(&engine, o, comm, &task->size, NULL, LS_ENGINE_EVAL));
    ls_console_begin(&console, o, 0);
    enum ls_status st = ls_weights_load(&engine, LS_WEIGHTS_MODEL, file);
    if (st == LS_OK)
        st = ls_stepper_init(&stepper, &engine, (struct ls_feed){0}, o);
    if (st == LS_OK)
        st = ls_evaluate(&stepper, task, o, &console, r, o->per_class || o->confusion ? confusion : NULL);
    ls_console_end(&console);
    if (st == LS_OK && !o->json && (!comm || ls_comm_rank(comm) == 0))
        ls_console_eval(&console, r);
    ls_stepper_release(&stepper);
    ls_engine_close(&engine);
    return st;
}

/* Tells all ranks which checkpoint rank 0 found: a run that goes on saves newer ones. *name: "" if rank 0 failed. */
static enum ls_status share_name(struct ls_comm *comm, const struct ls_located_model *found, char name[NAME_ROOM])
{
    bool fits = !found->name || strlen(found->name) < NAME_ROOM;
    snprintf(name, NAME_ROOM, "%s", found->name && fits ? found->name : "");
    LS_TRY(ls_comm_broadcast(comm, 0, name, NAME_ROOM));
    return fits ? LS_OK : ls_fail(LS_USAGE, "%s: the path is too long", found->name);
}

/* Finds the model: rank 0 first, then the others the same one. */
static enum ls_status find_model(struct ls_options *o, struct ls_comm *comm, struct ls_located_model *trained)
{
    const char *given = o->n_args > 0 ? o->args[0] : NULL;
    char name[NAME_ROOM] = "";
    bool root = !comm || ls_comm_rank(comm) == 0;
    enum ls_status st = root ? ls_located_model_find(trained, given, o) : LS_OK;
    if (!comm || ls_comm_size(comm) == 1)
        return st;
    LS_TRY(share_name(comm, trained, name));
    return root ? st : ls_located_model_find(trained, *name ? name : given, o);
}

/* Opens the model and the data. Every process opens them itself. */
static enum ls_status open_parts(struct ls_options *o, struct ls_comm *comm, struct ls_located_model *trained,
                                 struct ls_task *task)
{
    LS_TRY(find_model(o, comm, trained));
    enum ls_status st = ls_task_open(task, o, false, true, &trained->card);
    if (st == LS_OK)
        st = ls_engine_pass_batch(o, &task->size.batch);
    return st;
}

/* Opens the model and the data on all ranks. A failure on one rank ends all of them and is printed once. */
static enum ls_status open_together(struct ls_options *o, struct ls_comm *comm, struct ls_located_model *trained,
                                    struct ls_task *task)
{
    bool root = !comm || ls_comm_rank(comm) == 0;
    if (!root)
        ls_log_mute(1);
    enum ls_status st = open_parts(o, comm, trained, task);
    if (!root)
        st = ls_rank_reduce_unmute(st);
    return ls_rank_reduce_status(comm, st);
}

/* All ranks must have the same test set, because their results are added. */
static enum ls_status same_data(const struct ls_options *o, struct ls_comm *comm, const struct ls_task *task)
{
    char *text;
    if (!comm || ls_comm_size(comm) == 1)
        return LS_OK;
    LS_TRY(ls_rank_reduce_status(comm, ls_fingerprint_take(task, o, &text)));
    enum ls_status st = ls_rank_check_data(comm, text);
    ls_free(text);
    return st;
}

enum ls_status ls_cmd_eval(struct ls_options *o)
{
    struct ls_located_model trained = {0};
    struct ls_task task = {0};
    struct ls_report r = {0};
    struct ls_confusion confusion = {0};
    struct ls_world world;
    enum ls_status st;
    bool all_know = true;
    LS_TRY(check_confusion(o));
    if (ls_workers_took_over(o, &st))
        return st;
    LS_TRY(ls_world_open(&world, o));
    LS_TRY_GOTO(out, open_together(o, world.comm, &trained, &task));
    LS_TRY_GOTO(out, ls_dtype_settle(o, world.comm, NULL));
    LS_TRY_GOTO(out, check_classes(o, &task));
    LS_TRY_GOTO(out, same_data(o, world.comm, &task));
    all_know = false;
    if (!world.comm || ls_comm_rank(world.comm) == 0)
        ls_model_snapshot_warn(o);
    if (!o->json && !o->quiet) {
        char transform[256];
        ls_augment_describe(&task.test_augment, transform);
        ls_print("Evaluating %s (%s) on %s.", trained.file, o->model, o->eval_data ? o->eval_data : o->data);
        ls_print("Each image: %s.", transform);
    }
    LS_TRY_GOTO(out, evaluate(o, world.comm, &task, trained.file, &r, &confusion));
    if (!world.comm || ls_comm_rank(world.comm) == 0) {
        struct ls_class_names names = {.names = trained.card.class_names, .named = trained.card.named};
        LS_TRY_GOTO(out, put_out(o, &task, &confusion, &names));
        if (o->json)
            st = print_json(o, &task.test_augment, trained.file, &r, &confusion, &names);
    }
out:
    ls_confusion_release(&confusion);
    ls_task_close(&task);
    ls_located_model_release(&trained);
    ls_world_close(&world, all_know && st != LS_PEER_LOST ? LS_OK : st);
    return st;
}
