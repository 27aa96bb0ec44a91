#include "checkpoint/weights.h"
#include "base/log.h"
#include "graph/ops.h"

#include <math.h>
#include <string.h>

static const char tracked[] = "num_batches_tracked";

static bool belongs(const struct ls_graph *g, int t, enum ls_weights which)
{
    enum ls_role role = g->tensors[t].role;
    return which == LS_WEIGHTS_STATE ? role == LS_ROLE_OPTIMIZER : role == LS_ROLE_PARAM || role == LS_ROLE_STATE;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), end = strlen(tail);
    return length >= end && strcmp(text + length - end, tail) == 0;
}

/* --- saving ------------------------------------------------------------------------------------------- */

struct ls_weights_copy {
    const struct ls_engine *e;
    const struct ls_graph *g;     /* of the whole model */
    struct ls_st_tensor *tensors; /* owned */
    int *source;                  /* owned; the graph tensor of each; LS_NONE: data is set */
    int n;
    struct ls_arena names;
    int64_t steps;
    float *values; /* owned; values of all tensors; NULL: they are read from the engine one by one */
};

static bool all_finite(const float *v, int64_t count)
{
    int bad = 0;
#pragma omp parallel for simd reduction(| : bad)
    for (int64_t k = 0; k < count; k++)
        bad |= !isfinite(v[k]);
    return !bad;
}

static enum ls_status fill(void *context, int i, void *values)
{
    const struct ls_weights_copy *s = context;
    const struct ls_tensor *t = &s->g->tensors[s->source[i]];
    LS_TRY(ls_engine_read(s->e, s->source[i], values));
    if (!all_finite(values, ls_shape_count(&t->shape)))
        return ls_fail(LS_DIVERGED, "%s has a value that is not finite; this state is not saved", t->name);
    return LS_OK;
}

/* torchvision has a count beside each running_var of BN. */
static enum ls_status list_tracked(struct ls_weights_copy *s, const char *running_var)
{
    int stem = (int)(strlen(running_var) - strlen("running_var"));
    const char *name = ls_arena_format(&s->names, "%.*s%s", stem, running_var, tracked);
    s->source[s->n] = LS_NONE;
    s->tensors[s->n++] = (struct ls_st_tensor){.name = name, .type = LS_ST_I64, .data = &s->steps};
    return name ? LS_OK : LS_FAILED;
}

static enum ls_status list_tensors(struct ls_weights_copy *s, enum ls_weights which)
{
    const struct ls_graph *g = s->g;
    s->tensors = ls_alloc(2 * (size_t)g->n_tensors, sizeof *s->tensors);
    s->source = ls_alloc(2 * (size_t)g->n_tensors, sizeof *s->source);
    if (!s->tensors || !s->source)
        return LS_FAILED;
    for (int t = 0; t < g->n_tensors; t++) {
        const struct ls_tensor *tensor = &g->tensors[t];
        if (!belongs(g, t, which))
            continue;
        s->source[s->n] = t;
        s->tensors[s->n++] = (struct ls_st_tensor){
            .name = tensor->name, .type = LS_ST_F32, .rank = tensor->shape.rank, .dim = tensor->shape.dim};
        if (ends_with(tensor->name, ".running_var"))
            LS_TRY(list_tracked(s, tensor->name));
    }
    return LS_OK;
}

static void release(struct ls_weights_copy *c)
{
    ls_free(c->tensors);
    ls_free(c->source);
    ls_free(c->values);
    ls_arena_release(&c->names);
}

enum ls_status ls_weights_write(struct ls_weights_copy *c, const char *path, const struct ls_st_pair *metadata,
                                int n_metadata, uint64_t *checksum)
{
    return ls_safetensors_write(path, metadata, n_metadata, c->tensors, c->n, fill, c, checksum);
}

enum ls_status ls_weights_save(const struct ls_engine *e, enum ls_weights which, const char *path,
                               const struct ls_st_pair *metadata, int n_metadata, uint64_t steps, uint64_t *checksum)
{
    struct ls_weights_copy s = {.e = e, .g = ls_engine_whole(e), .steps = (int64_t)steps};
    enum ls_status st = list_tensors(&s, which);
    if (st == LS_OK)
        st = ls_weights_write(&s, path, metadata, n_metadata, checksum);
    release(&s);
    return st;
}

/* The number of values that come from the engine. */
static size_t count_of(const struct ls_weights_copy *c, int i)
{
    return c->source[i] == LS_NONE ? 0 : (size_t)ls_shape_count(&c->g->tensors[c->source[i]].shape);
}

/* Allocates the values of all tensors and sets the pointer of each. */
static enum ls_status copy_values(struct ls_weights_copy *c)
{
    size_t count = 0;
    for (int i = 0; i < c->n; i++)
        count += count_of(c, i);
    float *at = c->values = ls_alloc(count, sizeof *at);
    if (!at)
        return LS_FAILED;
    for (int i = 0; i < c->n; at += count_of(c, i++)) {
        if (c->source[i] == LS_NONE)
            continue;
        LS_TRY(fill(c, i, at));
        c->tensors[i].data = at;
    }
    return LS_OK;
}

enum ls_status ls_weights_copy(const struct ls_engine *e, enum ls_weights which, uint64_t steps,
                               struct ls_weights_copy **copy)
{
    struct ls_weights_copy *c = *copy = ls_alloc(1, sizeof *c);
    if (!c)
        return LS_FAILED;
    *c = (struct ls_weights_copy){.e = e, .g = ls_engine_whole(e), .steps = (int64_t)steps};
    LS_TRY(list_tensors(c, which));
    return copy_values(c);
}

void ls_weights_copy_free(struct ls_weights_copy *c)
{
    if (c)
        release(c);
    ls_free(c);
}

/* --- loading ------------------------------------------------------------------------------------------ */

/* torchvision's files of DenseNets have names of an older version: denselayer1.norm.1.weight for denselayer1.norm1.weight. */
static enum ls_status take_old_name(const struct ls_graph *g, struct ls_arena *strings, struct ls_st_tensor *t)
{
    const char *layer = strstr(t->name, ".denselayer"), *part = layer ? strchr(layer + 1, '.') : NULL;
    const char *dot = part ? strchr(part + 1, '.') : NULL;
    if (!dot || ls_graph_find(g, t->name) != LS_NONE)
        return LS_OK;
    const char *name = ls_arena_format(strings, "%.*s%s", (int)(dot - t->name), t->name, dot + 1);
    if (!name)
        return LS_FAILED;
    t->name = ls_graph_find(g, name) == LS_NONE ? t->name : name;
    return LS_OK;
}

/* PyTorch's wrappers put their own name before that of a tensor: module.conv1.weight, _orig_mod.conv1.weight. */
static const char *without_wrappers(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers;) {
        size_t length = strlen(wrappers[i]);
        bool wrapped = strncmp(name, wrappers[i], length) == 0;
        name += wrapped ? length : 0;
        i = wrapped ? 0 : i + 1;
    }
    return name;
}

enum ls_status ls_weights_open(const char *path, const struct ls_graph *g, struct ls_safetensors *file)
{
    LS_TRY(ls_safetensors_open(path, file));
    enum ls_status st = LS_OK;
    for (int i = 0; i < file->n_tensors && st == LS_OK; i++) {
        struct ls_st_tensor *t = &file->tensors[i];
        t->name = ls_graph_find(g, t->name) == LS_NONE ? without_wrappers(t->name) : t->name;
        st = take_old_name(g, &file->strings, t);
    }
    if (st != LS_OK)
        ls_safetensors_release(file);
    return st;
}

static bool same_shape(const struct ls_shape *shape, const struct ls_st_tensor *t)
{
    if (shape->rank != t->rank)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (shape->dim[i] != t->dim[i])
            return false;
    return true;
}

static const char *file_shape(const struct ls_st_tensor *t, char text[64])
{
    struct ls_shape shape = {.rank = t->rank < LS_MAX_DIMS ? t->rank : LS_MAX_DIMS};
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = t->dim[i];
    return ls_shape_text(&shape, text);
}

/* What an optimizer keeps depends on options that --resume may get in another way than the run. */
static enum ls_status other_state(const char *path, const char *what, const char *name)
{
    return ls_fail(LS_BAD_INPUT,
                   "%s: %s %s: is --optimizer, --momentum or --freeze not that of the run? Leave it out, or start a "
                   "new run with --init",
                   path, what, name);
}

static enum ls_status check_tensor(const char *path, const struct ls_safetensors *file, enum ls_weights which,
                                   const struct ls_tensor *t)
{
    char have[64], want[64];
    const struct ls_st_tensor *found = ls_safetensors_find(file, t->name);
    const char *model = ls_safetensors_metadata(file, "lockstep.model");
    const char *names = model ? " Its metadata name " : "";
    if (!found && which == LS_WEIGHTS_STATE)
        return other_state(path, "the optimizer needs", t->name);
    if (!found)
        return ls_fail(LS_BAD_INPUT, "%s: no tensor %s, which the model needs; is it a file of another model?%s%s",
                       path, t->name, names, model ? model : "");
    if (!same_shape(&t->shape, found))
        return ls_fail(LS_BAD_INPUT,
                       "%s: tensor %s is %s, but the model has %s; is it a file of another model, or of another "
                       "--input or --classes?%s%s",
                       path, t->name, file_shape(found, have), ls_shape_text(&t->shape, want), names,
                       model ? model : "");
    return LS_OK;
}

static bool reads(const struct ls_graph *g, int node, int tensor)
{
    for (int i = 0; node != LS_NONE && i < LS_MAX_IN; i++)
        if (g->nodes[node].in[i] == tensor)
            return true;
    return false;
}

/* Checks that file and graph have the same tensors. The shapes of those that node `except` reads may differ. */
static enum ls_status check_file(const char *path, const struct ls_safetensors *file, const struct ls_graph *g,
                                 enum ls_weights which, int except)
{
    for (int t = 0; t < g->n_tensors; t++)
        if (belongs(g, t, which) && !reads(g, except, t))
            LS_TRY(check_tensor(path, file, which, &g->tensors[t]));
    for (int i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        int t = ls_graph_find(g, name);
        if ((t != LS_NONE && belongs(g, t, which)) || ends_with(name, tracked))
            continue;
        if (which == LS_WEIGHTS_STATE)
            return other_state(path, "the optimizer does not keep", name);
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s is not in the model; is it a file of another model?", path, name);
    }
    return LS_OK;
}

enum ls_status ls_weights_check(const struct ls_graph *g, const struct ls_safetensors *file, const char *path)
{
    return check_file(path, file, g, LS_WEIGHTS_MODEL, LS_NONE);
}

enum ls_status ls_weights_values(const struct ls_st_tensor *t, const char *path, float *values)
{
    LS_TRY(ls_safetensors_f32(t, path, values));
    if (all_finite(values, (int64_t)t->count))
        return LS_OK;
    return ls_fail(LS_BAD_INPUT,
                   "%s: tensor %s has a value that is not finite: its training diverged, or it is damaged", path,
                   t->name);
}

/* Loads all tensors but the weights of node `except` (LS_NONE: none). */
static enum ls_status load_values(struct ls_engine *e, const struct ls_safetensors *file, enum ls_weights which,
                                  int except, const char *path)
{
    const struct ls_graph *g = ls_engine_whole(e);
    for (int t = 0; t < g->n_tensors; t++) {
        if (!belongs(g, t, which) || reads(g, except, t))
            continue;
        const struct ls_st_tensor *found = ls_safetensors_find(file, g->tensors[t].name);
        float *values = ls_alloc((size_t)found->count, sizeof *values);
        if (!values)
            return LS_FAILED;
        enum ls_status st = ls_weights_values(found, path, values);
        if (st == LS_OK)
            st = ls_engine_write(e, t, values);
        ls_free(values);
        if (st != LS_OK)
            return st;
    }
    return LS_OK;
}

enum ls_status ls_weights_load(struct ls_engine *e, enum ls_weights which, const char *path)
{
    struct ls_safetensors file;
    LS_TRY(ls_weights_open(path, ls_engine_whole(e), &file));
    enum ls_status st = check_file(path, &file, ls_engine_whole(e), which, LS_NONE);
    if (st == LS_OK)
        st = load_values(e, &file, which, LS_NONE, path);
    ls_safetensors_release(&file);
    return st;
}

/* --- starting from other weights ------------------------------------------------------------------------ */

/* The layer with weights that is nearest to the logits. */
static int find_head(const struct ls_graph *g)
{
    int n = ls_graph_producer(g, g->logits);
    while (n != LS_NONE && !g->nodes[n].op->weights)
        n = ls_graph_producer(g, g->nodes[n].in[0]);
    return n;
}

/* The head, if the file has it for another number of classes; LS_NONE: it has the same or something else. */
static int foreign_head(const struct ls_graph *g, const struct ls_safetensors *file, int64_t *classes)
{
    int head = find_head(g), weight = head == LS_NONE ? LS_NONE : g->nodes[head].in[1];
    const struct ls_st_tensor *found = weight == LS_NONE ? NULL : ls_safetensors_find(file, g->tensors[weight].name);
    if (!found || found->rank != g->tensors[weight].shape.rank || found->dim[0] == g->tensors[weight].shape.dim[0])
        return LS_NONE;
    for (int i = 1; i < found->rank; i++)
        if (found->dim[i] != g->tensors[weight].shape.dim[i])
            return LS_NONE;
    *classes = found->dim[0];
    return head;
}

enum ls_status ls_weights_start(struct ls_engine *e, const char *path, const char **head, int64_t *classes)
{
    const struct ls_graph *g = ls_engine_whole(e);
    struct ls_safetensors file;
    LS_TRY(ls_weights_open(path, g, &file));
    int except = foreign_head(g, &file, classes);
    enum ls_status st = check_file(path, &file, g, LS_WEIGHTS_MODEL, except);
    if (st == LS_OK)
        st = load_values(e, &file, LS_WEIGHTS_MODEL, except, path);
    if (st == LS_OK)
        *head = except == LS_NONE ? NULL : g->nodes[except].name;
    ls_safetensors_release(&file);
    return st;
}
