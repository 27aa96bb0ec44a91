/* The op table: what shapes come out, which mistakes are named how, and what backward appends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "graph/ops.h"

/* A graph with one image input, and a list of tensors to hand to nodes. */
static void begin(struct ls_graph *g, int64_t n, int64_t c, int64_t h, int64_t w)
{
    ls_graph_init(g);
    g->training = true;
    g->input = ls_graph_tensor(g, "images", LS_ROLE_INPUT, LS_F32, ls_shape_make(4, n, c, h, w));
    g->label = ls_graph_tensor(g, "labels", LS_ROLE_INPUT, LS_I32, ls_shape_make(1, n, 0, 0, 0));
}

static int param(struct ls_graph *g, const char *name, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return ls_graph_tensor(g, name, LS_ROLE_PARAM, LS_F32, ls_shape_make(rank, a, b, c, d));
}

static int node(struct ls_graph *g, const struct ls_op *op, const char *name, struct ls_attr attr, const int *in,
                int n_in)
{
    int made = LS_NONE;
    assert_int_equal(ls_graph_node(g, op, name, &attr, in, n_in, &made), LS_OK);
    return made;
}

static int layer(struct ls_graph *g, const struct ls_op *op, const char *name, struct ls_attr attr, const int *in,
                 int n_in)
{
    int made = node(g, op, name, attr, in, n_in);
    return g->nodes[made].out[0];
}

static struct ls_attr window(int64_t kernel, int64_t stride, int64_t pad)
{
    return (struct ls_attr){.kernel_h = kernel,
                            .kernel_w = kernel,
                            .stride_h = stride,
                            .stride_w = stride,
                            .pad_t = pad,
                            .pad_l = pad,
                            .pad_b = pad,
                            .pad_r = pad,
                            .dilation_h = 1,
                            .dilation_w = 1,
                            .groups = 1,
                            .training = true};
}

static struct ls_attr conv_attr(int64_t out, int64_t kernel, int64_t stride, int64_t pad)
{
    struct ls_attr attr = window(kernel, stride, pad);
    attr.out = out;
    return attr;
}

static int conv(struct ls_graph *g, const char *name, int x, int64_t out, enum ls_act act)
{
    struct ls_attr attr = conv_attr(out, 3, 1, 1);
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    attr.act = act;
    int in[] = {x, param(g, weight, 4, out, g->tensors[x].shape.dim[1], 3, 3)};
    return layer(g, &ls_op_conv, name, attr, in, 2);
}

static int bn(struct ls_graph *g, const char *name, int x, struct ls_attr attr, int residual)
{
    int64_t c = g->tensors[x].shape.dim[1];
    int in[] = {x, 0, 0, 0, 0, residual};
    for (int i = 1; i < 5; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s.%d", name, i);
        in[i] = param(g, text, 1, c, 0, 0, 0);
        if (i > 2)
            g->tensors[in[i]].role = LS_ROLE_STATE;
    }
    attr.eps = 1e-5f;
    attr.training = true;
    return layer(g, &ls_op_bn, name, attr, in, residual == LS_NONE ? 5 : 6);
}

/* flatten, l2_loss, backward. */
static void finish(struct ls_graph *g, int x)
{
    g->logits = g->tensors[x].shape.rank == 2 ? x : layer(g, &ls_op_flatten, "flat", (struct ls_attr){0}, &x, 1);
    int loss = node(g, &ls_op_l2_loss, "loss", (struct ls_attr){0}, (int[]){g->logits, g->label}, 2);
    g->loss = g->nodes[loss].out[0];
    g->label_rank = g->nodes[loss].out[1];
    assert_int_equal(ls_graph_backward(g), LS_OK);
}

/* --- shapes ------------------------------------------------------------------------------------------- */

static void assert_shape(const struct ls_graph *g, int tensor, const char *expected)
{
    char text[64];
    assert_string_equal(ls_shape_text(&g->tensors[tensor].shape, text), expected);
}

static void windows_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 224, 224);
    int w = param(&g, "w", 4, 64, 3, 7, 7), x = g.input;
    int y = layer(&g, &ls_op_conv, "conv1", conv_attr(64, 7, 2, 3), (int[]){x, w}, 2);
    assert_shape(&g, y, "2x64x112x112");
    assert_int_equal(ls_graph_macs(&g), 64LL * 3 * 7 * 7 * 112 * 112);
    assert_shape(&g, layer(&g, &ls_op_maxpool, "pool", window(3, 2, 1), &y, 1), "2x64x56x56");
    assert_shape(&g, layer(&g, &ls_op_maxpool, "floor", window(3, 2, 0), &y, 1), "2x64x55x55");
    assert_shape(&g, layer(&g, &ls_op_avgpool, "stride is kernel", window(4, 0, 0), &y, 1), "2x64x28x28");
    struct ls_attr seven = {.out_h = 7, .out_w = 6};
    int z = layer(&g, &ls_op_adaptive_avgpool, "adaptive", seven, &y, 1);
    assert_shape(&g, z, "2x64x7x6");
    int f = layer(&g, &ls_op_flatten, "flatten", (struct ls_attr){0}, &z, 1);
    assert_shape(&g, f, "2x2688");
    int dense[] = {z, param(&g, "dense.w", 2, 10, 2688, 0, 0), param(&g, "dense.b", 1, 10, 0, 0, 0)};
    assert_shape(&g, layer(&g, &ls_op_dense, "dense", (struct ls_attr){.out = 10, .bias = true}, dense, 3), "2x10");
    assert_shape(&g, layer(&g, &ls_op_concat, "concat", (struct ls_attr){0}, (int[]){z, z, z}, 3), "2x192x7x6");
    ls_graph_release(&g);
}

static void outputs_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 4, 3, 8, 8);
    struct ls_attr pooled = window(2, 2, 0);
    pooled.pool = true;
    int y = bn(&g, "bn1", conv(&g, "conv1", g.input, 16, LS_ACT_NONE), pooled, LS_NONE);
    const struct ls_node *n = &g.nodes[g.n_nodes - 1];
    assert_shape(&g, y, "4x16x4x4");
    assert_shape(&g, n->out[1], "16");
    assert_shape(&g, n->out[3], "2x16");
    assert_int_equal(g.tensors[n->out[3]].role, LS_ROLE_GRAD);
    assert_string_equal(g.tensors[n->out[3]].name, "bn1.stat");
    assert_int_equal(g.tensors[n->out[4]].dtype, LS_U8);
    int scores = layer(&g, &ls_op_flatten, "flat", (struct ls_attr){0}, &y, 1);
    n = &g.nodes[node(&g, &ls_op_softmax_xent, "loss", (struct ls_attr){0}, (int[]){scores, g.label}, 2)];
    assert_shape(&g, n->out[0], "4");
    assert_int_equal(g.tensors[n->out[1]].dtype, LS_I32);
    assert_shape(&g, n->out[2], "4x256");
    ls_graph_release(&g);
}

/* --- mistakes ----------------------------------------------------------------------------------------- */

struct mistake {
    const struct ls_op *op;
    struct ls_attr attr;
    int second; /* which second input is given; 0: none */
    const char *message;
};

/* The first input is 2x4x3x3; second inputs are w 8x4x7x7, flat 2x36, map 2x4x5x5. */
enum { WEIGHT = 1, FLAT, MAP, LABEL };

static const struct mistake mistakes[] = {
    {&ls_op_conv,
     {.out = 8,
      .kernel_h = 7,
      .kernel_w = 7,
      .stride_h = 1,
      .stride_w = 1,
      .dilation_h = 1,
      .dilation_w = 1,
      .groups = 1},
     WEIGHT,
     "layer here: a 7x7 window does not fit its 3x3 input (padding 0)"},
    {&ls_op_conv,
     {.out = 8,
      .kernel_h = 3,
      .kernel_w = 3,
      .stride_h = 1,
      .stride_w = 1,
      .dilation_h = 2,
      .dilation_w = 2,
      .groups = 1,
      .pad_b = 1},
     WEIGHT,
     "layer here: a 5x5 window does not fit its 3x3 input (padding 0,0,1,0)"},
    {&ls_op_conv,
     {.out = 8,
      .kernel_h = 3,
      .kernel_w = 3,
      .stride_h = 0,
      .stride_w = 1,
      .dilation_h = 1,
      .dilation_w = 1,
      .groups = 1},
     WEIGHT,
     "layer here: stride 0 is not in 1 to 1048576"},
    {&ls_op_conv,
     {.out = 8,
      .kernel_h = 3,
      .kernel_w = 3,
      .stride_h = 1,
      .stride_w = 1,
      .dilation_h = 1,
      .dilation_w = 1,
      .groups = 3},
     WEIGHT,
     "layer here: groups 3 does not divide both its 4 input and 8 output channels"},
    {&ls_op_conv,
     {.out = 0,
      .kernel_h = 3,
      .kernel_w = 3,
      .stride_h = 1,
      .stride_w = 1,
      .dilation_h = 1,
      .dilation_w = 1,
      .groups = 1},
     WEIGHT,
     "layer here: out 0 is not a number of channels"},
    {&ls_op_conv,
     {.out = 8,
      .kernel_h = 3,
      .kernel_w = 3,
      .stride_h = 1,
      .stride_w = 1,
      .dilation_h = 1,
      .dilation_w = 1,
      .groups = 1},
     WEIGHT,
     "layer here: its weight is 8x4x7x7, expected 8x4x3x3"},
    {&ls_op_dense, {.out = 8}, WEIGHT, "layer here: its weight is 8x4x7x7, expected 8x36"},
    {&ls_op_maxpool,
     {.kernel_h = 4, .kernel_w = 4},
     0,
     "layer here: a 4x4 window does not fit its 3x3 input (padding 0)"},
    {&ls_op_maxpool,
     {.kernel_h = 2, .kernel_w = 2, .pad_t = 2},
     0,
     "layer here: padding 2,0,0,0 must be smaller than its 2x2 window, or a window would hold nothing but padding"},
    {&ls_op_maxpool,
     {.kernel_h = 16, .kernel_w = 16, .pad_t = 15, .pad_l = 15},
     0,
     "layer here: a max pooling window of 16x16 is too large; at most 255 pixels"},
    {&ls_op_adaptive_avgpool, {.out_h = 0, .out_w = 1}, 0, "layer here: out 0x1 is not a size"},
    {&ls_op_adaptive_avgpool,
     {.out_h = 1 << 30, .out_w = 1 << 30},
     0,
     "layer here: its output 2x4x1073741824x1073741824 has no size a machine can hold"},
    {&ls_op_lrn, {.size = 0, .k = 1}, 0, "layer here: size 0 is not a number of channels"},
    {&ls_op_dropout, {.p = 1}, 0, "layer here: p 1 is not a share from 0 to below 1"},
    {&ls_op_add, {.act = LS_ACT_RELU}, MAP, "layer here: its second input is 2x4x5x5, expected 2x4x3x3"},
    {&ls_op_concat,
     {.act = LS_ACT_NONE},
     MAP,
     "layer here: input 2 is 2x4x5x5, which differs from 2x4x3x3 in more than its channels"},
    {&ls_op_concat,
     {.act = LS_ACT_NONE},
     FLAT,
     "layer here: input 2 is 2x36, which differs from 2x4x3x3 in more than its channels"},
    {&ls_op_softmax_xent,
     {.smoothing = 0},
     LABEL,
     "layer here: softmax_xent takes an input of 2 dimensions (batch x features), got 2x4x3x3"},
    {&ls_op_softmax_xent, {.smoothing = 1}, LABEL, "layer here: smoothing 1 is not a share from 0 to below 1"},
};

static void mistake_test(void **state)
{
    const struct mistake *m = *state;
    struct ls_graph g;
    int made;
    begin(&g, 2, 4, 3, 3);
    int second[] = {LS_NONE, param(&g, "w", 4, 8, 4, 7, 7), param(&g, "flat", 2, 2, 36, 0, 0),
                    param(&g, "map", 4, 2, 4, 5, 5), g.label};
    int in[] = {g.input, second[m->second]};
    int tensors = g.n_tensors;
    ls_log_mute(1);
    enum ls_status st = ls_graph_node(&g, m->op, "here", &m->attr, in, m->second ? 2 : 1, &made);
    ls_log_mute(0);
    assert_int_equal(st, LS_BAD_INPUT);
    assert_string_equal(ls_log_last(), m->message);
    assert_int_equal(g.n_nodes, 0);
    assert_int_equal(g.n_tensors, tensors);
    ls_graph_release(&g);
}

static void bn_mistakes_test(void **state)
{
    (void)state;
    struct ls_graph g;
    int made;
    begin(&g, 2, 4, 3, 3);
    int c = param(&g, "c", 1, 5, 0, 0, 0), flat = param(&g, "flat", 2, 2, 4, 0, 0);
    struct ls_attr attr = {.eps = 1e-5f};
    ls_log_mute(1);
    assert_int_equal(ls_graph_node(&g, &ls_op_bn, "bn1", &attr, (int[]){g.input, c, c, c, c}, 5, &made), LS_BAD_INPUT);
    assert_string_equal(ls_log_last(), "layer bn1: its weight is 5, expected 4");
    assert_int_equal(ls_graph_node(&g, &ls_op_bn, "bn1", &attr, (int[]){flat, c, c, c, c}, 5, &made), LS_BAD_INPUT);
    assert_string_equal(ls_log_last(), "layer bn1: bn takes an input of 4 dimensions (batch x channels x height x "
                                       "width), got 2x4");
    ls_log_mute(0);
    ls_graph_release(&g);
}

/* --- backward ----------------------------------------------------------------------------------------- */

/* G1: inputs are made before they are read; G2: one writer a tensor. */
static void assert_invariants(const struct ls_graph *g)
{
    for (int n = 0; n < g->n_nodes; n++) {
        for (int i = 0; i < LS_MAX_IN; i++) {
            int t = g->nodes[n].in[i];
            if (t != LS_NONE && (g->tensors[t].role == LS_ROLE_ACT || g->tensors[t].role == LS_ROLE_GRAD)) {
                assert_true(ls_graph_producer(g, t) != LS_NONE);
                assert_true(ls_graph_producer(g, t) < n);
            }
        }
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (g->nodes[n].out[i] != LS_NONE)
                assert_int_equal(ls_graph_producer(g, g->nodes[n].out[i]), n);
    }
}

static void assert_backward(const struct ls_graph *g, const char *expected)
{
    char ops[1024] = "";
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].phase == LS_BACKWARD) {
            strncat(ops, ops[0] ? " " : "", sizeof ops - strlen(ops) - 1);
            strncat(ops, g->nodes[n].op->name, sizeof ops - strlen(ops) - 1);
        }
    assert_string_equal(ops, expected);
    assert_invariants(g);
}

static const struct ls_node *backward_node(const struct ls_graph *g, const struct ls_op *op)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == op)
            return &g->nodes[n];
    fail_msg("no node of op %s", op->name);
    return NULL;
}

/* The first layer's input needs no gradient; a fused activation is undone before the convolution is. */
static void conv_backward_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 4, 4);
    finish(&g, conv(&g, "conv2", conv(&g, "conv1", g.input, 8, LS_ACT_NONE), 4, LS_ACT_RELU));
    assert_backward(&g, "l2_loss_bwd unflatten act_bwd conv_bwd_weights conv_bwd_data conv_bwd_weights");
    assert_string_equal(g.tensors[g.tensors[ls_graph_find(&g, "conv1.weight")].grad].name, "conv1.weight.grad");
    ls_graph_release(&g);
}

/* Both inputs of an add get the gradient of its output itself: no node, no copy. */
static void residual_backward_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 4, 4);
    int x = conv(&g, "conv1", g.input, 8, LS_ACT_NONE), y = conv(&g, "conv2", x, 8, LS_ACT_NONE);
    finish(&g, layer(&g, &ls_op_add, "add", (struct ls_attr){0}, (int[]){x, y}, 2));
    assert_backward(&g, "l2_loss_bwd unflatten conv_bwd_weights conv_bwd_data sum conv_bwd_weights");
    ls_graph_release(&g);
}

/* bn_bwd reads y only where the mask cannot be made again from x. */
static void bn_backward_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 4, 4);
    int x = conv(&g, "conv1", g.input, 8, LS_ACT_NONE);
    finish(&g, bn(&g, "bn1", x, (struct ls_attr){.act = LS_ACT_RELU}, LS_NONE));
    assert_backward(&g, "l2_loss_bwd unflatten bn_bwd conv_bwd_weights");
    assert_int_equal(backward_node(&g, &ls_op_bn_bwd)->in[7], LS_NONE);
    ls_graph_release(&g);

    begin(&g, 2, 3, 4, 4);
    x = conv(&g, "conv1", g.input, 8, LS_ACT_NONE);
    int y = conv(&g, "conv2", x, 8, LS_ACT_NONE);
    y = bn(&g, "bn1", y, (struct ls_attr){.act = LS_ACT_RELU}, x);
    finish(&g, y);
    assert_backward(&g, "l2_loss_bwd unflatten bn_bwd conv_bwd_weights conv_bwd_data sum conv_bwd_weights");
    assert_int_equal(backward_node(&g, &ls_op_bn_bwd)->in[7], y);
    assert_int_not_equal(backward_node(&g, &ls_op_bn_bwd)->out[3], LS_NONE);
    ls_graph_release(&g);
}

static void concat_backward_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 4, 4);
    int x = conv(&g, "conv1", g.input, 8, LS_ACT_NONE), y = conv(&g, "conv2", g.input, 5, LS_ACT_NONE);
    finish(&g, layer(&g, &ls_op_concat, "concat", (struct ls_attr){0}, (int[]){x, g.input, y}, 3));
    assert_backward(&g, "l2_loss_bwd unflatten slice slice conv_bwd_weights conv_bwd_weights");
    int offsets = 0;
    for (int n = 0; n < g.n_nodes; n++)
        if (g.nodes[n].op == &ls_op_slice)
            offsets = offsets * 100 + (int)g.nodes[n].attr.offset;
    assert_int_equal(offsets, 11); /* 0, then 8 + 3 */
    ls_graph_release(&g);
}

static void pool_backward_test(void **state)
{
    (void)state;
    struct ls_graph g;
    begin(&g, 2, 3, 4, 4);
    struct ls_attr attr = window(2, 2, 0);
    attr.act = LS_ACT_RELU;
    int x = conv(&g, "conv1", g.input, 8, LS_ACT_NONE);
    int y = layer(&g, &ls_op_maxpool, "pool", attr, &x, 1);
    finish(&g, y);
    assert_backward(&g, "l2_loss_bwd unflatten maxpool_bwd conv_bwd_weights");
    assert_int_equal(backward_node(&g, &ls_op_maxpool_bwd)->in[2], y);
    ls_graph_release(&g);
}

/* --- the table ---------------------------------------------------------------------------------------- */

static void table_test(void **state)
{
    (void)state;
    for (const struct ls_op *const *op = ls_ops; *op; op++) {
        assert_ptr_equal(ls_op_find((*op)->name), *op);
        assert_true((*op)->min_in >= (*op != &ls_op_receive) && (*op)->max_in >= (*op)->min_in &&
                    (*op)->max_in <= LS_MAX_IN);
        if ((*op)->layer)
            assert_true((*op)->infer && (*op)->backward);
        for (const struct ls_attr_key *key = (*op)->attrs; key && key->key; key++) {
            assert_true(key->help && *key->help);
            assert_true(key->fields == 1 || key->fields == 2 || key->fields == 4);
            assert_true(key->offset < sizeof(struct ls_attr));
        }
    }
    assert_null(ls_op_find("convolution"));
    assert_null(ls_op_find(""));
}

int main(void)
{
    const struct CMUnitTest single[] = {
        cmocka_unit_test(windows_test),
        cmocka_unit_test(outputs_test),
        cmocka_unit_test(bn_mistakes_test),
        cmocka_unit_test(conv_backward_test),
        cmocka_unit_test(residual_backward_test),
        cmocka_unit_test(bn_backward_test),
        cmocka_unit_test(concat_backward_test),
        cmocka_unit_test(pool_backward_test),
        cmocka_unit_test(table_test),
    };
    enum { N_SINGLE = sizeof single / sizeof *single, N_MISTAKES = sizeof mistakes / sizeof *mistakes };
    struct CMUnitTest tests[N_SINGLE + N_MISTAKES];
    memcpy(tests, single, sizeof single);
    for (int i = 0; i < N_MISTAKES; i++)
        tests[N_SINGLE + i] = (struct CMUnitTest){
            .name = mistakes[i].message, .test_func = mistake_test, .initial_state = (void *)(uintptr_t)&mistakes[i]};
    return cmocka_run_group_tests_name("op table", tests, NULL, NULL);
}
