/* The built-in models (counts, names, initialisation) and model files (round trips, every mistake with its line). */
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct ls_model_size own_size = {.batch = 2};

static enum ls_status build(const char *model, const struct ls_model_size *size, bool training, float dropout,
                            struct ls_graph *g)
{
    struct ls_model_request r = {.model = model,
                                 .size = *size,
                                 .training = training,
                                 .dtype = LS_F32,
                                 .loss = "xent",
                                 .dropout = dropout,
                                 .drop_path = dropout};
    return ls_model_build(&r, g);
}

/* --- built-ins ----------------------------------------------------------------------------------------------- */

static void counts_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int64_t side, classes, parameters;
        int tensors;
    } cases[] = {
        {"alexnet-cntk", 64, 200, 25171464, 16},
        {"alexnet-cntk", 224, 200, 72357384, 16},
        {"vgg16-cntk", 64, 200, 40708104, 32},
        {"alexnet", 224, 1000, 61100840, 16},
        {"vgg11", 224, 1000, 132863336, 22},
        {"vgg11_bn", 224, 1000, 132868840, 38},
        {"vgg13", 224, 1000, 133047848, 26},
        {"vgg13_bn", 224, 1000, 133053736, 46},
        {"vgg16", 224, 1000, 138357544, 32},
        {"vgg16_bn", 224, 1000, 138365992, 58},
        {"vgg19", 224, 1000, 143667240, 38},
        {"vgg19_bn", 224, 1000, 143678248, 70},
        {"resnet18", 224, 1000, 11689512, 62},
        {"resnet34", 224, 1000, 21797672, 110},
        {"resnet50", 224, 1000, 25557032, 161},
        {"resnet101", 224, 1000, 44549160, 314},
        {"mobilenet_v2", 224, 1000, 3504872, 158},
        {"vgg11-cifar", 32, 10, 9231114, 34},
        {"resnet152", 224, 1000, 60192808, 467},
        {"resnext50_32x4d", 224, 1000, 25028904, 161},
        {"wide_resnet50_2", 224, 1000, 68883240, 161},
        {"densenet121", 224, 1000, 7978856, 364},
        {"squeezenet1_1", 224, 1000, 1235496, 52},
        {"efficientnet_b0", 224, 1000, 5288548, 213},
        {"mobilenet_v3_small", 224, 1000, 2542856, 142},
        {"mobilenet_v3_large", 224, 1000, 5483032, 174},
        {"convnet", 32, 10, 1195594, 14},
        {"resnet18", 64, 10, 11181642, 62},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_model_size size = {1, 3, cases[i].side, cases[i].side, cases[i].classes};
        struct ls_graph g;
        int tensors;
        assert_int_equal(build(cases[i].model, &size, true, -1, &g), LS_OK);
        assert_int_equal(ls_graph_parameters(&g, &tensors), cases[i].parameters);
        assert_int_equal(tensors, cases[i].tensors);
        ls_graph_release(&g);
    }
}

static const struct ls_tensor *find(const struct ls_graph *g, const char *name)
{
    int t = ls_graph_find(g, name);
    if (t == LS_NONE)
        fail_msg("no tensor %s", name);
    return &g->tensors[t];
}

static void expect_init(const struct ls_graph *g, const char *name, enum ls_init_kind kind, double value)
{
    const struct ls_tensor *t = find(g, name);
    assert_int_equal(t->init.kind, kind);
    assert_true(fabs((double)t->init.value - value) <= 1e-6 * fabs(value));
}

static void parameters_start_as_in_torchvision(void **state)
{
    (void)state;
    struct ls_graph g;
    assert_int_equal(build("resnet50", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "layer2.0.conv2.weight", LS_INIT_NORMAL, sqrt(2.0 / (128 * 9)));
    expect_init(&g, "layer1.0.bn3.weight", LS_INIT_CONST, 1);
    expect_init(&g, "layer1.0.bn3.running_var", LS_INIT_CONST, 1);
    expect_init(&g, "fc.weight", LS_INIT_UNIFORM, 1 / sqrt(2048));
    expect_init(&g, "fc.bias", LS_INIT_UNIFORM, 1 / sqrt(2048));
    assert_int_equal(find(&g, "layer1.0.bn3.running_mean")->role, LS_ROLE_STATE);
    assert_true(find(&g, "bn1.weight")->no_decay && find(&g, "bn1.bias")->no_decay && find(&g, "fc.bias")->no_decay);
    assert_false(find(&g, "fc.weight")->no_decay);
    ls_graph_release(&g);

    assert_int_equal(build("mobilenet_v2", &own_size, true, -1, &g), LS_OK);
    /* Depthwise: PyTorch's fan_out counts all 96 output channels. */
    expect_init(&g, "features.2.conv.1.0.weight", LS_INIT_NORMAL, sqrt(2.0 / (96 * 9)));
    expect_init(&g, "classifier.1.weight", LS_INIT_NORMAL, 0.01);
    expect_init(&g, "classifier.1.bias", LS_INIT_CONST, 0);
    ls_graph_release(&g);

    assert_int_equal(build("densenet121", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "features.denseblock1.denselayer2.conv2.weight", LS_INIT_NORMAL, sqrt(2.0 / (128 * 9)));
    expect_init(&g, "features.transition1.conv.weight", LS_INIT_NORMAL, sqrt(2.0 / 256));
    expect_init(&g, "classifier.weight", LS_INIT_UNIFORM, 1 / sqrt(1024));
    expect_init(&g, "classifier.bias", LS_INIT_CONST, 0);
    ls_graph_release(&g);

    assert_int_equal(build("squeezenet1_1", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "features.3.expand3x3.weight", LS_INIT_UNIFORM, sqrt(6.0 / (16 * 9)));
    expect_init(&g, "features.3.expand3x3.bias", LS_INIT_CONST, 0);
    expect_init(&g, "classifier.1.weight", LS_INIT_NORMAL, 0.01);
    ls_graph_release(&g);

    assert_int_equal(build("efficientnet_b0", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "features.2.0.block.2.fc1.bias", LS_INIT_CONST, 0);
    expect_init(&g, "classifier.1.weight", LS_INIT_UNIFORM, 1 / sqrt(1000));
    expect_init(&g, "classifier.1.bias", LS_INIT_CONST, 0);
    ls_graph_release(&g);

    assert_int_equal(build("mobilenet_v3_small", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "features.1.block.1.fc1.weight", LS_INIT_NORMAL, sqrt(2.0 / 8));
    expect_init(&g, "classifier.0.weight", LS_INIT_NORMAL, 0.01);
    expect_init(&g, "classifier.0.bias", LS_INIT_CONST, 0);
    for (int n = 0; n < g.n_nodes; n++)
        if (g.nodes[n].op == &ls_op_bn)
            assert_true(g.nodes[n].attr.eps == 1e-3f && g.nodes[n].attr.momentum == 0.01f);
    ls_graph_release(&g);

    assert_int_equal(build("alexnet", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "features.0.weight", LS_INIT_UNIFORM, 1 / sqrt(3 * 121));
    expect_init(&g, "features.0.bias", LS_INIT_UNIFORM, 1 / sqrt(3 * 121));
    ls_graph_release(&g);

    assert_int_equal(build("alexnet-cntk", &own_size, true, -1, &g), LS_OK);
    expect_init(&g, "conv1.bias", LS_INIT_CONST, 0);
    expect_init(&g, "conv2.bias", LS_INIT_CONST, 0.1);
    expect_init(&g, "fc6.weight", LS_INIT_NORMAL, 0.005);
    ls_graph_release(&g);
}

static void cntk_models_pad_to_same(void **state)
{
    (void)state;
    struct ls_graph g;
    assert_int_equal(build("alexnet-cntk", &own_size, true, -1, &g), LS_OK);
    static const struct {
        const char *name;
        int64_t side;
    } expected[] = {{"conv1", 16}, {"pool1", 8}, {"pool2", 4}, {"pool5", 2}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(find(&g, expected[i].name)->shape.dim[2], expected[i].side);
        assert_int_equal(find(&g, expected[i].name)->shape.dim[3], expected[i].side);
    }
    ls_graph_release(&g);
}

static void too_small_an_input_names_the_layer(void **state)
{
    (void)state;
    struct ls_graph g;
    struct ls_model_size size = {1, 3, 32, 32, 10};
    assert_int_equal(build("alexnet", &size, true, -1, &g), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "features.12"));
    ls_graph_release(&g);
    size.height = size.width = 16;
    assert_int_equal(build("vgg16", &size, true, -1, &g), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "features.30"));
    ls_graph_release(&g);
}

static void an_unknown_model_names_the_nearest(void **state)
{
    (void)state;
    struct ls_graph g;
    assert_int_equal(build("mobilenet-v1", &own_size, true, -1, &g), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "'mobilenet_v2'"));
    ls_graph_release(&g);
    static const char *const words[] = {"kernel", "stride", "pad"};
    assert_string_equal(ls_nearest_word("kernl", words, 3), "kernel");
    assert_string_equal(ls_nearest_word("Strdie", words, 3), "stride");
    assert_null(ls_nearest_word("banana", words, 3));
    assert_null(ls_nearest_word("", words, 3));
}

static int count_op(const struct ls_graph *g, const struct ls_op *op)
{
    int count = 0;
    for (int n = 0; n < g->n_nodes; n++)
        count += g->nodes[n].op == op;
    return count;
}

static void dropout_is_the_models_unless_asked_for(void **state)
{
    (void)state;
    struct ls_graph g;
    assert_int_equal(build("alexnet", &own_size, true, -1, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_dropout), 2);
    ls_graph_release(&g);
    assert_int_equal(build("alexnet", &own_size, true, 0.25f, &g), LS_OK);
    uint32_t layer = 0;
    for (int n = 0; n < g.n_nodes; n++)
        if (g.nodes[n].op == &ls_op_dropout) {
            assert_true(g.nodes[n].attr.p == 0.25f);
            assert_int_equal(g.nodes[n].attr.layer, layer++);
        }
    assert_int_equal(layer, 2);
    ls_graph_release(&g);
    assert_int_equal(build("alexnet", &own_size, true, 0, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_dropout), 0);
    ls_graph_release(&g);
    assert_int_equal(build("alexnet", &own_size, false, -1, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_dropout), 0);
    ls_graph_release(&g);

    /* Stochastic depth: 9 of 16 blocks have a shortcut, and p grows with depth; it is off in evaluation. */
    assert_int_equal(build("efficientnet_b0", &own_size, true, -1, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_drop_path), 9);
    float last = 0;
    for (int n = 0; n < g.n_nodes; n++)
        if (g.nodes[n].op == &ls_op_drop_path) {
            assert_true(g.nodes[n].attr.p > last);
            last = g.nodes[n].attr.p;
        }
    assert_true(fabsf(last - 0.2f * 14 / 16) < 1e-6f);
    ls_graph_release(&g);
    assert_int_equal(build("efficientnet_b0", &own_size, true, 0, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_drop_path), 0);
    ls_graph_release(&g);
    assert_int_equal(build("efficientnet_b0", &own_size, false, -1, &g), LS_OK);
    assert_int_equal(count_op(&g, &ls_op_drop_path), 0);
    ls_graph_release(&g);
}

/* --- round trips --------------------------------------------------------------------------------------------- */

static void same_tensor(const struct ls_tensor *a, const struct ls_tensor *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->dtype, b->dtype);
    assert_true(ls_shape_equal(&a->shape, &b->shape));
    assert_int_equal(a->init.kind, b->init.kind);
    assert_true(a->init.value == b->init.value);
    assert_int_equal(a->no_decay, b->no_decay);
}

static void same_node(const struct ls_node *a, const struct ls_node *b)
{
    assert_string_equal(a->name, b->name);
    assert_ptr_equal(a->op, b->op);
    assert_memory_equal(a->in, b->in, sizeof a->in);
    assert_memory_equal(a->out, b->out, sizeof a->out);
    for (const struct ls_attr_key *key = a->op->attrs; key && key->key; key++)
        for (int f = 0; f < key->fields; f++)
            assert_true(ls_attr_get(&a->attr, key, f) == ls_attr_get(&b->attr, key, f));
    assert_int_equal(a->attr.layer, b->attr.layer);
    assert_int_equal(a->attr.training, b->attr.training);
}

static void same_graph(const struct ls_graph *a, const struct ls_graph *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_int_equal(a->n_nodes, b->n_nodes);
    for (int t = 0; t < a->n_tensors; t++)
        same_tensor(&a->tensors[t], &b->tensors[t]);
    for (int n = 0; n < a->n_nodes; n++)
        same_node(&a->nodes[n], &b->nodes[n]);
    assert_int_equal(a->logits, b->logits);
    assert_int_equal(a->loss, b->loss);
    assert_int_equal(a->label_rank, b->label_rank);
}

static enum ls_status parse(const char *text, const struct ls_model_size *size, struct ls_graph *g)
{
    struct ls_build b;
    int logits = LS_NONE;
    LS_TRY(ls_build_begin(&b, g, size, true, LS_F32));
    LS_TRY(ls_model_parse_yaml("net.yaml", text, strlen(text), &b, &logits));
    return ls_build_finish(&b, logits, &ls_op_softmax_xent, 0);
}

static char *print(const struct ls_graph *g)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    assert_int_equal(ls_model_write_yaml(g, "net", out), LS_OK);
    fclose(out);
    return text;
}

static void every_model_reads_back_as_it_was_printed(void **state)
{
    (void)state;
    for (const struct ls_model *const *m = ls_models; *m; m++) {
        struct ls_graph g, again;
        struct ls_model_size size = (*m)->size;
        size.batch = 2;
        assert_int_equal(build((*m)->name, &size, true, -1, &g), LS_OK);
        char *text = print(&g);
        assert_int_equal(parse(text, &size, &again), LS_OK);
        same_graph(&g, &again);
        free(text);
        ls_graph_release(&again);
        ls_graph_release(&g);
    }
}

/* A file that was printed at one size builds, at another size and class count, what the built-in does. */
static void a_printed_model_fits_other_sizes(void **state)
{
    (void)state;
    static const char *const models[] = {"alexnet-cntk", "resnet18",      "mobilenet_v2",      "vgg11_bn",
                                         "densenet121",  "squeezenet1_1", "mobilenet_v3_large"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct ls_graph g, again, other;
        struct ls_model_size size = {2, 3, 96, 64, 7};
        assert_int_equal(build(models[i], &own_size, true, -1, &g), LS_OK);
        char *text = print(&g);
        assert_int_equal(parse(text, &size, &again), LS_OK);
        assert_int_equal(build(models[i], &size, true, -1, &other), LS_OK);
        same_graph(&other, &again);
        free(text);
        ls_graph_release(&g);
        ls_graph_release(&again);
        ls_graph_release(&other);
    }
}

static const char hand_written[] =
    "input: 3x9x12\n"
    "classes: 4\n"
    "init: {conv: xavier, dense: normal 0.02}\n"
    "layers:\n"
    "  - {name: a, op: conv, out: 6, kernel: [3, 5], stride: [1, 2], pad: same, groups: 3}\n"
    "  - {name: b, op: bn, eps: 0.001, momentum: 0.2, init: constant 0, bias_init: constant 0.5}\n"
    "  - name: c\n"
    "    op: relu6\n"
    "  - {name: d, op: conv, from: a, out: 6, kernel: 3, pad: [1, 2, 1, 0], dilation: 1, bias: no}\n"
    "  - {name: e, op: concat, from: [c, d, b]}\n"
    "  - {name: f, op: avgpool, kernel: 2, pad: [1, 0], include_pad: false}\n"
    "  - {name: g, op: dense, out: 5, init: uniform 0.3, bias_init: normal 0.1}\n"
    "  - {name: h, op: dropout, p: 0.3}\n"
    "  - {name: '-', op: dense, out: classes}\n";

static void a_hand_written_file_survives_printing(void **state)
{
    (void)state;
    struct ls_model_size size = {2, 3, 9, 12, 4};
    struct ls_graph g, again;
    assert_int_equal(parse(hand_written, &size, &g), LS_OK);
    expect_init(&g, "a.weight", LS_INIT_UNIFORM, sqrt(6.0 / (15 + 90)));
    expect_init(&g, "b.weight", LS_INIT_CONST, 0);
    expect_init(&g, "b.bias", LS_INIT_CONST, 0.5);
    expect_init(&g, "g.weight", LS_INIT_UNIFORM, 0.3);
    expect_init(&g, "g.bias", LS_INIT_NORMAL, 0.1);
    expect_init(&g, "-.weight", LS_INIT_NORMAL, 0.02);
    assert_int_equal(ls_graph_find(&g, "d.bias"), LS_NONE);
    struct ls_shape expected = ls_shape_make(4, 2, 18, 9, 6);
    assert_true(ls_shape_equal(&find(&g, "e")->shape, &expected));
    char *text = print(&g);
    assert_int_equal(parse(text, &size, &again), LS_OK);
    same_graph(&g, &again);
    free(text);
    ls_graph_release(&again);
    ls_graph_release(&g);
}

/* --- mistakes in files --------------------------------------------------------------------------------------- */

#define HEAD "input: 3x32x32\nclasses: 10\nlayers:\n"
#define TAIL "  - {name: fc, op: dense, out: classes}\n"

static void a_mistake_names_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* what the message holds; parts are separated by | */
    } cases[] = {
        {"", "net.yaml|empty"},
        {"[1, 2", "net.yaml:|not YAML"},
        {"layers: []\n", "net.yaml:1: |list of 'layers'"},
        {"- 1\n", "net.yaml:1: |is a map"},
        {"layer:\n", "net.yaml:1: |unknown key 'layer'; did you mean 'layers'?"},
        {HEAD TAIL "classes: 9\n", "net.yaml:5: |'classes' stands in line 2 already"},
        {"input: 3x32\n", "net.yaml:1: |CHANNELSxHEIGHTxWIDTH|'3x32'"},
        {"classes: ten\n", "net.yaml:1: |classes is a whole number|'ten'"},
        {"init: {convv: torch}\n", "net.yaml:1: |'convv'; did you mean 'conv'?|conv and dense"},
        {"init: {conv: xaver}\n", "net.yaml:1: |init of conv is torch|'xaver'"},
        {HEAD TAIL "---\nlayers: 1\n", "net.yaml:6: |second document"},
        {HEAD "  - conv\n", "net.yaml:4: |a layer is a map"},
        {HEAD "  - {op: relu}\n", "net.yaml:4: |no name"},
        {HEAD "  - {name: a}\n", "net.yaml:4: layer a: has no op"},
        {HEAD "  - {name: a, op: convv}\n", "net.yaml:4: layer a: unknown op 'convv'; did you mean 'conv'?"},
        {HEAD "  - {name: a, op: sgd}\n",
         "net.yaml:4: layer a: unknown op 'sgd'|there are conv, dense, bn,|add, mul, scale, concat, flatten, relu, relu6, silu, hardswish, sigmoid, hardsigmoid and gelu;"},
        {HEAD "  - {name: conv3, op: conv, out: 8, kernl: 3}\n" TAIL,
         "net.yaml:4: layer conv3: unknown attribute 'kernl'; did you mean 'kernel'?|name, op, from, init, bias_init, out, kernel"},
        {HEAD "  - name: a\n    op: conv\n    out: 8\n    kernel: x\n" TAIL,
         "net.yaml:7: layer a: kernel is a whole number|'x'"},
        {HEAD "  - {name: a, op: conv, out: 8}\n" TAIL, "net.yaml:4: layer a: conv needs 'kernel'"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: [1, 2, 3]}\n" TAIL, "net.yaml:4: layer a: kernel is|list of 3"},
        {HEAD "  - {name: a, op: conv, out: 8, out: 9, kernel: 3}\n" TAIL, "net.yaml:4: layer a: 'out' is given twice"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: 3, bias: maybe}\n" TAIL,
         "net.yaml:4: layer a: bias is one of|'maybe'"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: 3, groups: 3}\n" TAIL, "net.yaml:4: layer a: |groups"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: 33}\n" TAIL, "net.yaml:4: layer a: |33x33 window|32x32"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: 3, stride: 0, pad: same}\n" TAIL,
         "net.yaml:4: layer a: stride is a whole number of at least 1, not '0'"},
        {HEAD "  - {name: a, op: conv, out: 8, kernel: 3, bias: false, bias_init: constant 1}\n" TAIL,
         "net.yaml:4: layer a: bias_init|bias is false"},
        {HEAD "  - {name: a, op: bn, init: torch}\n" TAIL, "net.yaml:4: layer a: init is|not torch"},
        {HEAD "  - {name: a, op: relu, init: torch}\n" TAIL,
         "net.yaml:4: layer a: unknown attribute 'init'|act has name, op, from and act;"},
        {HEAD "  - {name: a, op: dropout, p: 1.5}\n" TAIL,
         "net.yaml:4: layer a: p is a number from 0 to below 1, not '1.5'"},
        {HEAD "  - {name: a, op: relu}\n  - {name: a, op: relu}\n" TAIL,
         "net.yaml:5: layer a: this name stands in line 4"},
        {HEAD "  - {name: images, op: relu}\n" TAIL, "net.yaml:4: layer images: |name already"},
        {HEAD "  - {name: 'a b', op: relu}\n" TAIL, "net.yaml:4: layer 'a b': |letters"},
        {HEAD "  - {name: fc.weight, op: relu}\n" TAIL, "net.yaml:5: layer fc: |fc.weight already"},
        {HEAD "  - {name: a, op: relu}\n  - {name: b, op: add, from: [a, aa]}\n" TAIL,
         "net.yaml:5: layer b: reads 'aa', but no layer|did you mean 'a'?"},
        {HEAD "  - {name: b, op: relu, from: fc}\n" TAIL,
         "net.yaml:4: layer b: reads 'fc', which stands below it in line 5"},
        {HEAD "  - {name: b, op: add}\n" TAIL, "net.yaml:4: layer b: |add takes 2"},
        {HEAD "  - {name: b, op: relu, from: []}\n" TAIL, "net.yaml:4: layer b: 'from' names no input"},
        {HEAD "  - {name: a, op: flatten}\n  - {name: b, op: conv, out: 1, kernel: 1}\n", "net.yaml:5: layer b: conv"},
        {HEAD "  - {name: a, op: relu}\n  - {name: b, op: relu, from: images}\n" TAIL,
         "net.yaml:4: layer a: nothing reads"},
        {HEAD "  - {name: a, op: dense, out: 9}\n", "net.yaml:4: layer a: |9 classes where 10 are needed|out: classes"},
        {HEAD "  - {name: a, op: conv, out: 10, kernel: 3}\n", "net.yaml:4: layer a: |end with a dense layer"},
        {HEAD "  - {name: a, op: conv, out: 1000000000, kernel: 1000000}\n", "net.yaml:4: layer a: |impossible"},
    };
    struct ls_model_size size = {1, 3, 32, 32, 10};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_graph g;
        char says[256], *part, *rest = says;
        snprintf(says, sizeof says, "%s", cases[i].says);
        if (parse(cases[i].text, &size, &g) != LS_BAD_INPUT)
            fail_msg("case %zu (%s) is not refused", i, says);
        while ((part = strsep(&rest, "|")))
            if (!strstr(ls_log_last(), part))
                fail_msg("case %zu: \"%s\" is not in \"%s\"", i, part, ls_log_last());
        ls_graph_release(&g);
        /* Later messages are not about the file any more. */
        (void)ls_fail(LS_FAILED, "plain");
        assert_string_equal(ls_log_last(), "plain");
    }
}

static void a_file_is_built_by_its_path(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-models-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/net.yml", folder);
    assert_int_equal(ls_file_write(path, hand_written, sizeof hand_written - 1), LS_OK);
    struct ls_graph g;
    /* The size is the file's own where the caller leaves it open. */
    assert_int_equal(build(path, &own_size, true, -1, &g), LS_OK);
    assert_int_equal(g.tensors[g.logits].shape.dim[1], 4);
    assert_int_equal(g.tensors[g.input].shape.dim[3], 12);
    ls_graph_release(&g);
    struct ls_model_size size = {1, 3, 9, 12, 6};
    assert_int_equal(build(path, &size, false, -1, &g), LS_OK);
    assert_int_equal(g.tensors[g.logits].shape.dim[1], 6);
    ls_graph_release(&g);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    assert_int_equal(build(path, &own_size, true, -1, &g), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), path));
    ls_graph_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(parameters_start_as_in_torchvision),
        cmocka_unit_test(cntk_models_pad_to_same),
        cmocka_unit_test(too_small_an_input_names_the_layer),
        cmocka_unit_test(an_unknown_model_names_the_nearest),
        cmocka_unit_test(dropout_is_the_models_unless_asked_for),
        cmocka_unit_test(every_model_reads_back_as_it_was_printed),
        cmocka_unit_test(a_printed_model_fits_other_sizes),
        cmocka_unit_test(a_hand_written_file_survives_printing),
        cmocka_unit_test(a_mistake_names_its_line),
        cmocka_unit_test(a_file_is_built_by_its_path),
    };
    ls_log_mute(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
