/* The list of built-in models, and the function that builds any model, built-in or from a file. */
#include "base/log.h"
#include "base/memory.h"
#include "base/text/nearest.h"
#include "model/families.h"

#include <string.h>

const struct ls_model *const ls_models[] = {
#define X(name) &ls_model_##name,
#include "config/lists/models.def"
    NULL,
};

const struct ls_model *ls_model_find(const char *name)
{
    for (const struct ls_model *const *m = ls_models; *m; m++)
        if (strcmp((*m)->name, name) == 0)
            return *m;
    return NULL;
}

bool ls_model_is_file(const char *model)
{
    size_t length = strlen(model);
    return strchr(model, '/') || (length > 5 && strcmp(model + length - 5, ".yaml") == 0) ||
           (length > 4 && strcmp(model + length - 4, ".yml") == 0);
}

static enum ls_status unknown_model(const char *name)
{
    const char *names[sizeof ls_models / sizeof *ls_models];
    int n = 0;
    while (ls_models[n]) {
        names[n] = ls_models[n]->name;
        n++;
    }
    const char *near = ls_nearest_word(name, names, n);
    if (near)
        return ls_fail(LS_USAGE, "unknown model '%s'; did you mean '%s'? `lockstep models` lists them", name, near);
    return ls_fail(LS_USAGE, "unknown model '%s'; `lockstep models` lists them, a model file ends in .yaml", name);
}

static enum ls_status size_in_file(const char *path, const char *yaml, struct ls_model_size *size)
{
    char *text = NULL;
    if (!yaml)
        LS_TRY(ls_model_read_text(path, &text));
    enum ls_status st = ls_model_parse_size(path, yaml ? yaml : text, size);
    ls_free(text);
    return st;
}

enum ls_status ls_model_default_size(const char *model, const char *yaml, struct ls_model_size *size)
{
    if (yaml || ls_model_is_file(model)) {
        struct ls_model_size named = {0};
        LS_TRY(size_in_file(model, yaml, &named));
        *size = named;
    } else {
        const struct ls_model *m = ls_model_find(model);
        if (!m)
            return unknown_model(model);
        *size = m->size;
    }
    size->batch = 1;
    return LS_OK;
}

/* Takes the values that the request leaves 0 from the default size of the model. */
static enum ls_status settle_size(const struct ls_model_request *r, struct ls_model_size *size)
{
    struct ls_model_size own;
    LS_TRY(ls_model_default_size(r->model, r->yaml, &own));
    *size = r->size;
    size->batch = size->batch ? size->batch : own.batch;
    size->channels = size->channels ? size->channels : own.channels;
    size->height = size->height ? size->height : own.height;
    size->width = size->width ? size->width : own.width;
    size->classes = size->classes ? size->classes : own.classes;
    if (!size->channels || !size->height || !size->width || !size->classes)
        return ls_fail(LS_BAD_INPUT, "%s: names no input or classes; give --input CxHxW and --classes N", r->model);
    return LS_OK;
}

static enum ls_status find_loss(const char *name, const struct ls_op **loss)
{
    *loss = NULL;
    if (!name)
        return LS_OK;
#define X(word, op)               \
    if (strcmp(name, #word) == 0) \
        *loss = &ls_op_##op;
#include "config/lists/losses.def"
    return *loss ? LS_OK : ls_fail(LS_USAGE, "unknown loss '%s'; xent and l2 are known", name);
}

enum ls_status ls_model_build(const struct ls_model_request *r, struct ls_graph *g)
{
    struct ls_model_size size;
    const struct ls_op *loss;
    struct ls_build b;
    int logits = LS_NONE;
    ls_graph_init(g);
    LS_TRY(find_loss(r->loss, &loss));
    LS_TRY(settle_size(r, &size));
    LS_TRY(ls_build_begin(&b, g, &size, r->training, r->dtype));
    b.dropout = r->dropout;
    b.drop_path = r->drop_path;
    b.mixup = r->mixup;
    b.cutmix = r->cutmix;
    if (!r->training)
        LS_TRY(ls_build_views(&b, &r->views));
    if (r->yaml || ls_model_is_file(r->model)) {
        LS_TRY(r->yaml ? ls_model_parse_yaml(r->model, r->yaml, strlen(r->yaml), &b, &logits)
                       : ls_model_read_yaml(r->model, &b, &logits));
        return ls_build_finish(&b, logits, loss, r->smoothing);
    }
    logits = ls_model_find(r->model)->build(&b, b.images, size.classes);
    enum ls_status st = ls_build_finish(&b, logits, loss, r->smoothing);
    /* A built-in model is valid at its default size, so an error comes from the requested size. */
    return st == LS_BAD_INPUT ? LS_USAGE : st;
}
