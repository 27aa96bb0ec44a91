/* lockstep export: writes a trained model as an ONNX file. */
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/locate_model.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/weights.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "export/export.h"
#include "model/model.h"
#include "train/task.h"

#include <string.h>

struct export
{
    const struct ls_options *o;
    struct ls_located_model trained;
    struct ls_task task;
    struct ls_augment augment;
    char transform[256]; /* description of the augmentation */
    struct ls_safetensors weights;
    struct ls_graph graph;
    struct ls_arena strings;
    struct ls_st_pair metadata[LS_MODEL_CARD_PAIRS + 2];
    int n_metadata;
    struct ls_onnx_result result;
};

static enum ls_status check_options(const struct ls_options *o)
{
    if (o->n_args > 1)
        return ls_fail(LS_USAGE, "export: takes one model, '%s'; '%s' is one too many", o->args[0], o->args[1]);
    if (!o->onnx || !*o->onnx)
        return ls_fail(LS_USAGE, "export: which file? Type: lockstep export %s --onnx FILE.onnx",
                       o->n_args > 0 ? o->args[0] : "RUN");
    return LS_OK;
}

/* The card of the weights, completed by what this command uses: the file may have none, and options override it. */
static enum ls_status make_metadata(struct export *x)
{
    struct ls_model_card card = x->trained.card;
    const struct ls_model_size *size = &x->task.size;
    struct ls_st_pair pairs[LS_MODEL_CARD_PAIRS];
    int n;
    card.model = x->o->model;
    card.yaml = x->o->model_yaml;
    card.channels = size->channels;
    card.height = size->height;
    card.width = size->width;
    card.classes = size->classes;
    memcpy(card.mean, x->augment.mean, sizeof card.mean);
    memcpy(card.deviation, x->augment.deviation, sizeof card.deviation);
    ls_augment_frame_text(&x->augment, card.eval_resize, card.eval_crop);
    LS_TRY(ls_model_card_write(&card, &x->strings, pairs, &n));
    x->metadata[x->n_metadata++] = (struct ls_st_pair){
        "lockstep.images",
        "float32 NCHW. RGB, 8 bits; lockstep.eval_resize with BILINEAR of Pillow; lockstep.eval_crop as CenterCrop of "
        "torchvision; one channel: convert('L') of Pillow; then (value / 255 - mean) / deviation"};
    x->metadata[x->n_metadata++] = (struct ls_st_pair){"lockstep.transform", x->transform};
    for (int i = 0; i < n; i++)
        if (strcmp(pairs[i].key, "format") != 0) /* says how safetensors files hold tensors */
            x->metadata[x->n_metadata++] = pairs[i];
    return LS_OK;
}

static enum ls_status open_parts(struct export *x, struct ls_options *o)
{
    LS_TRY(ls_located_model_find(&x->trained, o->n_args > 0 ? o->args[0] : NULL, o));
    ls_model_snapshot_warn(o);
    LS_TRY(ls_task_size(&x->task, o));
    x->task.size.batch = 1;
    LS_TRY(ls_task_transform(o, &x->trained.card, NULL, &x->task.size, &x->augment));
    ls_augment_describe(&x->augment, x->transform);
    struct ls_model_request request = {
        .model = o->model, .yaml = o->model_yaml, .size = x->task.size, .dtype = LS_F32, .dropout = -1};
    LS_TRY(ls_model_build(&request, &x->graph));
    LS_TRY(ls_weights_open(x->trained.file, &x->graph, &x->weights));
    return ls_weights_check(&x->graph, &x->weights, x->trained.file);
}

static enum ls_status write_file(struct export *x)
{
    const struct ls_options *o = x->o;
    struct ls_onnx_request request = {
        .graph = &x->graph,
        .weights = &x->weights,
        .weights_name = x->trained.file,
        .metadata = x->metadata,
        .n_metadata = x->n_metadata,
        .version = LS_VERSION,
        .fold_bn = o->fold_bn,
        .softmax = o->with_softmax,
    };
    return ls_onnx_write(&request, o->onnx, &x->result);
}

static enum ls_status print_json(const struct export *x)
{
    const struct ls_model_size *s = &x->task.size;
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:[I, I, I], s:I, s:s}", "kind", "export", "model",
                  x->o->model, "weights", x->trained.file, "onnx", x->o->onnx, "bytes", (json_int_t)x->result.bytes,
                  "opset", (int)LS_ONNX_OPSET, "nodes", x->result.nodes, "bn", x->result.bn, "folded", x->result.folded,
                  "input", (json_int_t)s->channels, (json_int_t)s->height, (json_int_t)s->width, "classes",
                  (json_int_t)s->classes, "transform", x->transform);
    int bad = !out || ls_json_print(out, 0) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

static enum ls_status say(const struct export *x)
{
    const struct ls_model_size *s = &x->task.size;
    if (x->o->json)
        return print_json(x);
    if (x->o->quiet)
        return LS_OK;
    ls_print("Exported %s (%s) to %s: %d nodes of ONNX opset %d, %.1f MB.", x->trained.file, x->o->model, x->o->onnx,
             x->result.nodes, LS_ONNX_OPSET, (double)x->result.bytes / 1e6);
    if (x->o->fold_bn)
        ls_print("Folded %d of %d batch normalisations into the convolutions before them.", x->result.folded,
                 x->result.bn);
    ls_print("Input images: float32 batch x %lld x %lld x %lld. Output %s: float32 batch x %lld.",
             (long long)s->channels, (long long)s->height, (long long)s->width,
             x->o->with_softmax ? "probabilities" : "logits", (long long)s->classes);
    ls_print("Each image: %s. The file's metadata say so, too.", x->transform);
    return LS_OK;
}

enum ls_status ls_cmd_export(struct ls_options *o)
{
    struct export x = {.o = o};
    enum ls_status st;
    LS_TRY(check_options(o));
    ls_graph_init(&x.graph);
    LS_TRY_GOTO(out, open_parts(&x, o));
    LS_TRY_GOTO(out, make_metadata(&x));
    LS_TRY_GOTO(out, write_file(&x));
    st = say(&x);
out:
    ls_safetensors_release(&x.weights);
    ls_graph_release(&x.graph);
    ls_arena_release(&x.strings);
    ls_task_close(&x.task);
    ls_located_model_release(&x.trained);
    return st;
}
