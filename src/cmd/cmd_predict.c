/* lockstep predict: prints the five most likely classes of image files. */
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "cmd/arguments.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "data/data.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/locate_model.h"
#include "train/task.h"
#include "checkpoint/weights.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#define TOP 5
#define BATCH 32

struct predict {
    const struct ls_options *o;
    const char *const *files;
    int n_files;
    struct ls_located_model trained;
    struct ls_task task;
    struct ls_engine engine;
    struct ls_augment augment;
    char transform[256]; /* description of the augmentation */
    struct ls_image image, scratch;
    float *planes, *logits; /* owned; one batch of images and of logits */
    const char **names;     /* owned; names of the files in the batch */
    int32_t *labels;        /* owned; -1: no label */
    int filled;
    json_t *out;
    enum ls_status worst; /* worst status of the files so far */
};

static enum ls_status setup(struct predict *p)
{
    const struct ls_model_size *size = &p->task.size;
    LS_TRY(ls_task_size(&p->task, p->o));
    p->task.size.batch = p->n_files < BATCH ? p->n_files : BATCH;
    LS_TRY(ls_task_transform(p->o, &p->trained.card, NULL, size, &p->augment));
    ls_augment_describe(&p->augment, p->transform);
    if (!p->o->json && !p->o->quiet)
        ls_print("Each image: %s.", p->transform);
    LS_TRY(ls_engine_open(&p->engine, p->o, NULL, size, NULL, LS_ENGINE_EVAL));
    LS_TRY(ls_weights_load(&p->engine, LS_WEIGHTS_MODEL, p->trained.file));
    p->planes = ls_alloc((size_t)(size->batch * size->channels * size->height * size->width), sizeof *p->planes);
    p->logits = ls_alloc((size_t)(size->batch * size->classes), sizeof *p->logits);
    p->names = ls_alloc((size_t)size->batch, sizeof *p->names);
    p->labels = ls_alloc((size_t)size->batch, sizeof *p->labels);
    if (!p->planes || !p->logits || !p->names || !p->labels)
        return LS_FAILED;
    for (int64_t i = 0; i < size->batch; i++)
        p->labels[i] = -1;
    p->out = json_array();
    return LS_OK;
}

/* --- result of one image ------------------------------------------------------------------------------ */

/* Finds the indices of the highest scores, highest first. */
static int best_classes(const float *scores, int64_t classes, int64_t best[TOP])
{
    int n = 0;
    for (int64_t c = 0; c < classes; c++) {
        int at = n < TOP ? n++ : TOP;
        for (; at > 0 && scores[best[at - 1]] < scores[c]; at--)
            if (at < TOP)
                best[at] = best[at - 1];
        if (at < TOP)
            best[at] = c;
    }
    return n;
}

static double probability(const float *scores, int64_t classes, int64_t which)
{
    double sum = 0;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)scores[c] - (double)scores[which]);
    return 1 / sum;
}

static void class_name(const struct predict *p, int64_t c, char *name, size_t room)
{
    if (p->trained.card.class_names && c < p->trained.card.named)
        ls_utf8_escape(p->trained.card.class_names[c], name, room);
    else
        snprintf(name, room, "class %lld", (long long)c);
}

static void answer(struct predict *p, const char *file, const float *scores)
{
    int64_t best[TOP], classes = p->task.size.classes;
    int n = best_classes(scores, classes, best);
    char spelled[4 * PATH_MAX]; /* JSON accepts UTF-8 only */
    json_t *top = json_array();
    char shown[4 * PATH_MAX];
    if (!p->o->json)
        printf("%s\n", ls_utf8_printable(file, shown, sizeof shown));
    for (int i = 0; i < n; i++) {
        char name[256];
        double share = probability(scores, classes, best[i]);
        class_name(p, best[i], name, sizeof name);
        int pad = 24 - ls_utf8_length(ls_utf8_printable(name, shown, sizeof shown));
        if (!p->o->json)
            printf("  %s%*s %6.2f%%\n", shown, pad > 0 ? pad : 0, "", 100 * share);
        json_array_append_new(
            top, json_pack("{s:s, s:I, s:f}", "class", name, "index", (json_int_t)best[i], "probability", share));
    }
    json_array_append_new(p->out, json_pack("{s:s, s:o, s:s}", "file", ls_utf8_escape(file, spelled, sizeof spelled),
                                            "top", top, "transform", p->transform));
}

static enum ls_status run_batch(struct predict *p)
{
    const struct ls_backend *b = p->engine.backend;
    struct ls_net *net = &p->engine.eval;
    struct ls_run run = {.seed = p->o->seed, .valid = p->filled};
    if (p->filled == 0)
        return LS_OK;
    LS_TRY(b->input(net->program, net->graph.input, p->planes));
    LS_TRY(b->input(net->program, net->graph.label, p->labels));
    LS_TRY(b->run(net->program, 0, net->graph.n_nodes, &run));
    LS_TRY(b->read(net->program, net->graph.logits, p->logits));
    for (int i = 0; i < p->filled; i++)
        answer(p, p->names[i], p->logits + (int64_t)i * p->task.size.classes);
    p->filled = 0;
    return LS_OK;
}

/* --- the command -------------------------------------------------------------------------------------- */

/* A file that cannot be read is reported. The other files are still classified. */
static enum ls_status add_file(struct predict *p, const char *file)
{
    const struct ls_model_size *s = &p->task.size;
    float *planes = p->planes + (int64_t)p->filled * s->channels * s->height * s->width;
    /* Files are read as in a folder data set, so that predict and eval see the same pixels. */
    int side = ls_augment_view(&p->augment, 0, 0, 0).min_side;
    enum ls_status st = ls_image_read_file(file, side, 3, &p->image);
    if (st == LS_OK)
        st = ls_augment_apply(&p->augment, &p->image, 0, 0, 0, &p->scratch, planes);
    if (st == LS_BAD_INPUT) {
        p->worst = st;
        return LS_OK;
    }
    if (st != LS_OK)
        return st;
    p->names[p->filled++] = file;
    return p->filled == s->batch ? run_batch(p) : LS_OK;
}

static enum ls_status predict_all(struct predict *p)
{
    for (int i = 0; i < p->n_files; i++)
        LS_TRY(add_file(p, p->files[i]));
    LS_TRY(run_batch(p));
    if (p->o->json && (ls_json_print(p->out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0))
        return ls_fail(LS_FAILED, "the result cannot be written to standard output");
    return p->worst;
}

enum ls_status ls_cmd_predict(struct ls_options *o)
{
    struct predict p = {.o = o};
    struct ls_pictures pictures;
    enum ls_status st;
    LS_TRY_GOTO(out, ls_pictures_find(&pictures, o));
    p.files = pictures.files;
    p.n_files = pictures.n;
    LS_TRY_GOTO(out, ls_located_model_find(&p.trained, pictures.model, o));
    ls_model_snapshot_warn(o);
    LS_TRY_GOTO(out, setup(&p));
    st = predict_all(&p);
out:
    json_decref(p.out);
    ls_free(p.planes);
    ls_free(p.logits);
    ls_free(p.names);
    ls_free(p.labels);
    ls_image_release(&p.image);
    ls_image_release(&p.scratch);
    ls_engine_close(&p.engine);
    ls_located_model_release(&p.trained);
    ls_pictures_release(&pictures);
    return st;
}
