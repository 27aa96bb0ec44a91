#include "graph/build.h"
#include "base/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A larger tensor is a mistake in a model file. The bound keeps every size far from overflow. */
#define MOST_ELEMENTS ((int64_t)1 << 40)

static bool shape_is_sane(const struct ls_shape *s)
{
    int64_t count = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] < 1 || __builtin_mul_overflow(count, s->dim[i], &count) || count > MOST_ELEMENTS)
            return false;
    return true;
}

enum ls_status ls_build_begin(struct ls_build *b, struct ls_graph *g, const struct ls_model_size *size, bool training,
                              enum ls_dtype act_dtype)
{
    struct ls_shape image = ls_shape_make(4, size->batch, size->channels, size->height, size->width);
    char text[64];
    ls_graph_init(g);
    *b = (struct ls_build){.g = g, .dropout = -1, .drop_path = -1, .classes = size->classes};
    g->training = training;
    g->act_dtype = act_dtype;
    if (!shape_is_sane(&image))
        return b->status = ls_fail(LS_USAGE, "a batch of %s images (samples x channels x height x width) is impossible",
                                   ls_shape_text(&image, text));
    if (size->classes < 1)
        return b->status = ls_fail(LS_USAGE, "%lld classes: a classifier needs at least one", (long long)size->classes);
    g->input = ls_graph_tensor(g, "images", LS_ROLE_INPUT, LS_F32, image);
    g->label = ls_graph_tensor(g, "labels", LS_ROLE_INPUT, LS_I32, ls_shape_make(1, size->batch, 0, 0, 0));
    b->images = g->input;
    return b->status = g->input == LS_NONE || g->label == LS_NONE ? LS_FAILED : LS_OK;
}

enum ls_status ls_build_views(struct ls_build *b, const struct ls_views *views)
{
    struct ls_attr attr = {.views = *views};
    int node;
    if (b->status != LS_OK || ls_views_count(views) == 1)
        return b->status;
    LS_TRY(b->status = ls_graph_node(b->g, &ls_op_views, "views", &attr, &b->g->input, 1, &node));
    b->images = b->g->nodes[node].out[0];
    b->views = *views;
    return LS_OK;
}

/* Replaces the logits of all views by their mean. */
static enum ls_status mean_of_views(struct ls_build *b, int *logits)
{
    struct ls_attr attr = {.views = b->views};
    int node;
    if (b->images == b->g->input)
        return LS_OK;
    LS_TRY(ls_graph_node(b->g, &ls_op_views_mean, "views_mean", &attr, logits, 1, &node));
    *logits = b->g->nodes[node].out[0];
    return LS_OK;
}

/* Puts a node in front that mixes the images of a batch; all others then read its result. */
static enum ls_status mix_images(struct ls_graph *g, const struct ls_mix_rule *rule)
{
    struct ls_attr attr = {.mix = *rule};
    int node;
    LS_TRY(ls_graph_node(g, &ls_op_mix, "mixed", &attr, &g->input, 1, &node));
    struct ls_node mix = g->nodes[node];
    for (int n = 0; n < node; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (g->nodes[n].in[i] == g->input)
                g->nodes[n].in[i] = mix.out[0];
    memmove(g->nodes + 1, g->nodes, (size_t)node * sizeof *g->nodes);
    g->nodes[0] = mix;
    return LS_OK;
}

enum ls_status ls_build_finish(struct ls_build *b, int logits, const struct ls_op *loss, float smoothing)
{
    struct ls_graph *g = b->g;
    if (b->status != LS_OK)
        return b->status;
    const struct ls_shape *shape = &g->tensors[logits].shape;
    char text[64];
    if (shape->rank != 2 || shape->dim[1] != b->classes)
        return b->status =
                   ls_fail(LS_BAD_INPUT, "the last layer gives %s where %lldx%lld (samples x classes) is needed",
                           ls_shape_text(shape, text), (long long)shape->dim[0], (long long)b->classes);
    LS_TRY(b->status = mean_of_views(b, &logits));
    g->logits = logits;
    if (!loss)
        return LS_OK;
    struct ls_attr attr = ls_attr_default(loss);
    attr.training = g->training;
    attr.smoothing = smoothing;
    if (g->training && (b->mixup > 0 || b->cutmix > 0)) {
        const struct ls_shape *image = &g->tensors[g->input].shape;
        attr.mix = (struct ls_mix_rule){b->mixup, b->cutmix, (int32_t)image->dim[2], (int32_t)image->dim[3]};
        if (loss != &ls_op_softmax_xent)
            return b->status = ls_fail(LS_USAGE, "--mixup and --cutmix need --loss xent");
        LS_TRY(b->status = mix_images(g, &attr.mix));
    }
    int node, in[] = {logits, g->label};
    LS_TRY(b->status = ls_graph_node(g, loss, "loss", &attr, in, 2, &node));
    g->loss = g->nodes[node].out[0];
    g->label_rank = g->nodes[node].out[1];
    return LS_OK;
}

/* --- parameters ---------------------------------------------------------------------------------------------- */

void ls_scheme_init(enum ls_scheme scheme, const struct ls_shape *weight_shape, struct ls_init *weight,
                    struct ls_init *bias)
{
    double window = 1;
    for (int i = 2; i < weight_shape->rank; i++)
        window *= (double)weight_shape->dim[i];
    /* Fan-in and fan-out as in PyTorch: the fan-out of a grouped convolution counts all output channels. */
    double fan_in = window * (double)weight_shape->dim[1], fan_out = window * (double)weight_shape->dim[0];
    *bias = (struct ls_init){LS_INIT_CONST, 0};
    switch (scheme) {
    case LS_SCHEME_TORCH:
        *weight = *bias = (struct ls_init){LS_INIT_UNIFORM, (float)(1 / sqrt(fan_in))};
        break;
    case LS_SCHEME_KAIMING_OUT:
        *weight = (struct ls_init){LS_INIT_NORMAL, (float)sqrt(2 / fan_out)};
        break;
    case LS_SCHEME_NORMAL_001:
        *weight = (struct ls_init){LS_INIT_NORMAL, 0.01f};
        break;
    case LS_SCHEME_KAIMING_IN:
        *weight = (struct ls_init){LS_INIT_NORMAL, (float)sqrt(2 / fan_in)};
        break;
    case LS_SCHEME_KAIMING_UNIFORM:
        *weight = (struct ls_init){LS_INIT_UNIFORM, (float)sqrt(6 / fan_in)};
        break;
    case LS_SCHEME_XAVIER:
        *weight = (struct ls_init){LS_INIT_UNIFORM, (float)sqrt(6 / (fan_in + fan_out))};
        break;
    }
}

/* Adds the tensor "<layer>.<part>" as input number *n of the node under construction. */
static enum ls_status add_param(struct ls_graph *g, const char *layer, const char *part, enum ls_role role,
                                struct ls_shape shape, struct ls_init init, int *in, int *n)
{
    char name[LS_LAYER_NAME + 32], text[64];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    if (!shape_is_sane(&shape))
        return ls_fail(LS_BAD_INPUT, "layer %s: a %s of %s is impossible", layer, part, ls_shape_text(&shape, text));
    if (ls_graph_find(g, name) != LS_NONE)
        return ls_fail(LS_BAD_INPUT, "layer %s: something else is named %s already", layer, name);
    int t = ls_graph_tensor(g, name, role, LS_F32, shape);
    if (t == LS_NONE)
        return LS_FAILED;
    g->tensors[t].init = init;
    g->tensors[t].no_decay = role == LS_ROLE_PARAM && shape.rank == 1;
    in[(*n)++] = t;
    return LS_OK;
}

static enum ls_status add_weight(struct ls_graph *g, const char *layer, enum ls_scheme scheme, struct ls_shape shape,
                                 bool with_bias, int *in, int *n)
{
    struct ls_init weight, bias;
    ls_scheme_init(scheme, &shape, &weight, &bias);
    LS_TRY(add_param(g, layer, "weight", LS_ROLE_PARAM, shape, weight, in, n));
    if (with_bias)
        LS_TRY(add_param(g, layer, "bias", LS_ROLE_PARAM, ls_shape_make(1, shape.dim[0], 0, 0, 0), bias, in, n));
    return LS_OK;
}

static enum ls_status conv_params(struct ls_build *b, const char *layer, const struct ls_attr *attr, int *in, int *n)
{
    struct ls_shape x = b->g->tensors[in[0]].shape;
    char text[64];
    if (x.rank != 4)
        return ls_fail(LS_BAD_INPUT, "layer %s: conv reads images (samples x channels x height x width), not %s", layer,
                       ls_shape_text(&x, text));
    if (attr->groups < 1 || x.dim[1] % attr->groups || attr->out % attr->groups)
        return ls_fail(LS_BAD_INPUT, "layer %s: %lld groups do not divide %lld input and %lld output channels", layer,
                       (long long)attr->groups, (long long)x.dim[1], (long long)attr->out);
    struct ls_shape w = ls_shape_make(4, attr->out, x.dim[1] / attr->groups, attr->kernel_h, attr->kernel_w);
    return add_weight(b->g, layer, b->conv_scheme, w, attr->bias, in, n);
}

static enum ls_status dense_params(struct ls_build *b, const char *layer, const struct ls_attr *attr, int *in, int *n)
{
    struct ls_shape x = b->g->tensors[in[0]].shape;
    struct ls_shape w = ls_shape_make(2, attr->out, ls_shape_count(&x) / x.dim[0], 0, 0);
    return add_weight(b->g, layer, b->dense_scheme, w, attr->bias, in, n);
}

static enum ls_status bn_params(struct ls_build *b, const char *layer, const struct ls_attr *attr, int *in, int *n)
{
    static const struct {
        const char *part;
        enum ls_role role;
        float start;
    } parts[] = {{"weight", LS_ROLE_PARAM, 1},
                 {"bias", LS_ROLE_PARAM, 0},
                 {"running_mean", LS_ROLE_STATE, 0},
                 {"running_var", LS_ROLE_STATE, 1}};
    struct ls_shape c = ls_shape_make(1, b->g->tensors[in[0]].shape.dim[1], 0, 0, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        LS_TRY(add_param(b->g, layer, parts[i].part, parts[i].role, c, (struct ls_init){LS_INIT_CONST, parts[i].start},
                         in, n));
    b->g->tensors[in[*n - 4]].frozen = !attr->scale;
    return LS_OK;
}

void ls_build_init(struct ls_build *b, const char *param, enum ls_init_kind kind, float value)
{
    if (b->status != LS_OK)
        return;
    int t = ls_graph_find(b->g, param);
    if (t == LS_NONE)
        b->status = ls_fail(LS_BAD_INPUT, "there is no parameter %s to start at %g", param, (double)value);
    else
        ls_graph_set_init(b->g, t, (struct ls_init){kind, value});
}

/* --- layers -------------------------------------------------------------------------------------------------- */

static enum ls_status check_layer(const struct ls_build *b, const char *name, const int *in, int n_in)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";
    size_t length = strlen(name);
    if (length < 1 || length > LS_LAYER_NAME || strspn(name, letters) != length)
        return ls_fail(LS_BAD_INPUT, "layer '%.40s': a name has 1 to %d letters, digits and . _ - /", name,
                       LS_LAYER_NAME);
    if (ls_graph_find(b->g, name) != LS_NONE || strcmp(name, "loss") == 0)
        return ls_fail(LS_BAD_INPUT, "layer %s: something else has this name already", name);
    if (n_in < 1 || n_in > LS_MAX_IN)
        return ls_fail(LS_BAD_INPUT, "layer %s: %d inputs; 1 to %d are possible", name, n_in, LS_MAX_IN);
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0 || in[i] >= b->g->n_tensors)
            return ls_fail(LS_BAD_INPUT, "layer %s: input %d is no tensor", name, i + 1);
    return LS_OK;
}

static enum ls_status append_layer(struct ls_build *b, const struct ls_op *op, const char *name, struct ls_attr attr,
                                   const int *in, int n_in, int *y)
{
    struct ls_graph *g = b->g;
    int full[LS_MAX_IN], n = n_in, node;
    char text[64];

    LS_TRY(check_layer(b, name, in, n_in));
    if (op->weights && n_in != 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: %s takes one input, %d are given", name, op->name, n_in);
    memcpy(full, in, (size_t)n_in * sizeof *in);
    if (op == &ls_op_conv)
        LS_TRY(conv_params(b, name, &attr, full, &n));
    else if (op == &ls_op_dense)
        LS_TRY(dense_params(b, name, &attr, full, &n));
    else if (op == &ls_op_bn)
        LS_TRY(bn_params(b, name, &attr, full, &n));
    attr.training = g->training;
    attr.layer = b->layers;
    b->layers += op == &ls_op_dropout || op == &ls_op_drop_path;
    LS_TRY(ls_graph_node(g, op, name, &attr, full, n, &node));
    *y = g->nodes[node].out[0];
    if (!shape_is_sane(&g->tensors[*y].shape))
        return ls_fail(LS_BAD_INPUT, "layer %s: an output of %s is impossible", name,
                       ls_shape_text(&g->tensors[*y].shape, text));
    return LS_OK;
}

int ls_build_layer(struct ls_build *b, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                   const int *in, int n_in)
{
    struct ls_attr own = *attr;
    int y = LS_NONE;
    if (b->status != LS_OK)
        return LS_NONE;
    if (op == &ls_op_dropout || op == &ls_op_drop_path) {
        float asked = op == &ls_op_dropout ? b->dropout : b->drop_path;
        if (asked >= 0)
            own.p = asked;
        if (!b->g->training || own.p == 0)
            return in[0];
    }
    b->status = append_layer(b, op, name, own, in, n_in, &y);
    return b->status == LS_OK ? y : LS_NONE;
}

const char *ls_build_name(struct ls_build *b, const char *format, ...)
{
    char text[LS_LAYER_NAME + 32];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *name = ls_arena_strdup(&b->g->strings, text);
    if (name)
        return name;
    if (b->status == LS_OK)
        b->status = LS_FAILED;
    return "";
}

/* --- attributes ---------------------------------------------------------------------------------------------- */

double ls_attr_get(const struct ls_attr *attr, const struct ls_attr_key *key, int field)
{
    const char *at = (const char *)attr + key->offset;
    switch (key->type) {
    case LS_ATTR_INT:
        return (double)((const int64_t *)(const void *)at)[field];
    case LS_ATTR_FLOAT:
        return (double)((const float *)(const void *)at)[field];
    case LS_ATTR_BOOL:
        return ((const bool *)(const void *)at)[field];
    case LS_ATTR_ACT:
        return (double)((const enum ls_act *)(const void *)at)[field];
    }
    return 0;
}

void ls_attr_set(struct ls_attr *attr, const struct ls_attr_key *key, int field, double value)
{
    char *at = (char *)attr + key->offset;
    switch (key->type) {
    case LS_ATTR_INT:
        ((int64_t *)(void *)at)[field] = (int64_t)value;
        break;
    case LS_ATTR_FLOAT:
        ((float *)(void *)at)[field] = (float)value;
        break;
    case LS_ATTR_BOOL:
        ((bool *)(void *)at)[field] = value != 0;
        break;
    case LS_ATTR_ACT:
        ((enum ls_act *)(void *)at)[field] = (enum ls_act)value;
        break;
    }
}

struct ls_attr ls_attr_default(const struct ls_op *op)
{
    struct ls_attr attr = {0};
    for (const struct ls_attr_key *key = op->attrs; key && key->key; key++)
        for (int f = 0; f < key->fields; f++)
            ls_attr_set(&attr, key, f, key->missing);
    return attr;
}

static int64_t same_total(int64_t input, int64_t kernel, int64_t stride)
{
    int64_t total = ((input + stride - 1) / stride - 1) * stride + kernel - input;
    return total > 0 ? total : 0;
}

void ls_attr_same_padding(struct ls_attr *attr, int64_t height, int64_t width)
{
    int64_t reach_h = attr->dilation_h > 1 ? (attr->kernel_h - 1) * attr->dilation_h + 1 : attr->kernel_h;
    int64_t reach_w = attr->dilation_w > 1 ? (attr->kernel_w - 1) * attr->dilation_w + 1 : attr->kernel_w;
    int64_t total_h = same_total(height, reach_h, attr->stride_h), total_w = same_total(width, reach_w, attr->stride_w);
    attr->pad_t = total_h / 2, attr->pad_b = total_h - attr->pad_t;
    attr->pad_l = total_w / 2, attr->pad_r = total_w - attr->pad_l;
}
