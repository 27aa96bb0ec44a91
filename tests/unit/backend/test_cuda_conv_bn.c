/* Which convolutions of the backend cuda compute the sums of a normalisation (ops/conv_bn.c), and how kernels for that read
 * weights. Needs no card: here are stand-ins for the kernels and for the tuner. Built where that backend is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cuda/conv/tune.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/conv_fold.h"
#include "base/memory.h"
#include "graph/ops.h"
#include "model/model.h"

/* --- stand-ins ------------------------------------------------------------------------------------------------------ */

static struct {
    bool taps, product;         /* there is such a kernel */
    bool apart;                 /* the tuner prefers two kernels */
    int asked, forward, turned; /* questions; those that were answered "together taps", by their pass */
    int together, separate;     /* runs of the rivals */
    struct ls_cuda_taps last;
} world;

bool ls_cuda_taps_can(const struct ls_cuda_taps *c, const struct ls_cuda_bn *b, bool residual)
{
    (void)residual;
    assert_int_equal(c->out, b->x.c);
    assert_int_equal(c->x.h, b->x.h);
    world.last = *c;
    return world.taps;
}

void ls_cuda_taps_stats(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                        const struct ls_cuda_run *run, const void *x, const void *w, const float *bias, void *y,
                        float *mean, float *rstd, float *stat)
{
    (void)s, (void)b, (void)run, (void)bias;
    assert_false(c->turned);
    assert_true(x && w && y && mean && rstd && stat);
    world.together++;
}

void ls_cuda_taps_sums(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                       const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
    (void)s, (void)b, (void)run;
    assert_true(c->turned);
    assert_true(x && w && g->x && g->dresidual && g->dgamma && g->dbeta && g->sparse <= 1);
    world.together++;
}

bool ls_cuda_product_can(const struct ls_cuda_product *c, const struct ls_cuda_bn *b, bool residual)
{
    (void)residual;
    assert_int_equal(c->n, b->x.c);
    return world.product && c->way == LS_CUDA_PRODUCT_WGMMA;
}

void ls_cuda_product_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                           const struct ls_cuda_run *run, const void *x, const void *w, void *y, float *mean,
                           float *rstd, float *stat)
{
    (void)s, (void)p, (void)b, (void)run, (void)x, (void)w, (void)y, (void)mean, (void)rstd, (void)stat;
    world.together++;
}

void ls_cuda_product_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
    (void)s, (void)p, (void)b, (void)run, (void)x, (void)w, (void)g;
    world.together++;
}

void ls_cuda_bn_stats(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                      float *mean, float *rstd, float *stat)
{
    (void)s, (void)b, (void)run, (void)x, (void)mean, (void)rstd, (void)stat;
}

void ls_cuda_bn_bwd_sums(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *g)
{
    (void)s, (void)b, (void)run, (void)g;
}

size_t ls_cuda_bn_scratch(const struct ls_cuda_bn *b)
{
    return b->x.c > 0 ? LS_CUDA_BN_ZEROS : 0;
}

enum ls_status tune_begin_run(struct ls_program *p, void *scratch, int64_t samples, struct ls_cuda_run *run)
{
    (void)p, (void)samples;
    assert_true(scratch && run);
    return LS_OK;
}

enum ls_status conv_fold_prepare(struct ls_program *p, int node)
{
    (void)p, (void)node;
    return LS_OK;
}

static enum ls_status run_separately(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                                     const struct operands *o)
{
    (void)d, (void)l, (void)algorithm;
    assert_true(o->x && o->w && o->y);
    world.separate++;
    return LS_OK;
}

/* Runs both rivals once, with operands that nobody touches. */
enum ls_status tune_between(struct ls_program *p, const char *layer, const struct linear *l, const char *with,
                            const struct tune_rivals *rivals, int *best)
{
    static char memory[1];
    bool forward = l->pass == FORWARD, taps = l->conv.kernel_h == 3;
    size_t bytes;
    (void)p, (void)layer;
    assert_int_equal(rivals->n, 2);
    assert_string_equal(rivals->names[taps], taps ? "together taps" : "together wgmma");
    assert_string_equal(rivals->names[!taps], "apart");
    assert_non_null(strstr(with, forward ? " with statistics" : " with sums, act "));
    assert_int_equal(rivals->place(rivals->context, NULL, &bytes), LS_OK);
    assert_true(bytes > 0);
    assert_int_equal(rivals->place(rivals->context, memory, &bytes), LS_OK);
    for (int i = 0; i < 2; i++) {
        world.together = world.separate = 0;
        assert_int_equal(rivals->run(rivals->context, i, memory), LS_OK);
        assert_int_equal(world.together, i == taps);
        assert_int_equal(world.separate, i != taps);
    }
    world.asked++;
    *best = world.apart != taps;
    world.forward += taps && forward && !world.apart;
    world.turned += taps && !forward && !world.apart;
    return LS_OK;
}

struct ls_cuda_map map_of(const struct ls_program *p, int tensor)
{
    const struct ls_shape *s = &p->core.g->tensors[tensor].shape;
    return (struct ls_cuda_map){s->dim[0], s->dim[2], s->dim[3], padded(s->dim[1])};
}

struct ls_cuda_bn bn_of(const struct ls_program *p, int node, int x, int y)
{
    return (struct ls_cuda_bn){
        .t = LS_BF16, .x = map_of(p, x), .y = map_of(p, y), .act = p->core.g->nodes[node].attr.act};
}

struct ls_cuda_bn_grad bn_grad_of(const struct ls_program *p, int node)
{
    (void)p, (void)node;
    return (struct ls_cuda_bn_grad){.sparse = 0};
}

/* --- a program ------------------------------------------------------------------------------------------------------ */

struct prepared {
    struct ls_graph g;
    struct device device;
    struct ls_program p;
};

static void open_program(struct prepared *t, const char *model)
{
    struct ls_model_request request = {.model = model,
                                       .size = {.batch = 4, .channels = 3, .height = 64, .width = 64, .classes = 10},
                                       .training = true,
                                       .dtype = LS_BF16,
                                       .loss = "xent",
                                       .dropout = -1,
                                       .drop_path = -1};
    memset(t, 0, sizeof *t);
    assert_int_equal(ls_model_build(&request, &t->g), LS_OK);
    assert_int_equal(ls_graph_fuse(&t->g, false), LS_OK);
    assert_int_equal(ls_graph_backward(&t->g), LS_OK);
    t->p.core.g = &t->g;
    t->p.device = &t->device;
    t->p.core.places = ls_alloc((size_t)t->g.n_tensors, sizeof *t->p.core.places);
    t->p.layouts = ls_alloc((size_t)t->g.n_tensors, sizeof *t->p.layouts);
    t->p.execs = ls_alloc((size_t)t->g.n_nodes, sizeof *t->p.execs);
    assert_true(t->p.core.places && t->p.layouts && t->p.execs);
    for (int n = 0; n < t->g.n_nodes; n++)
        t->p.execs[n].twin = t->p.execs[n].with = t->p.execs[n].early = t->p.execs[n].join = LS_NONE;
}

static void close_program(struct prepared *t)
{
    ls_free(t->p.core.places);
    ls_free(t->p.layouts);
    ls_free(t->p.execs);
    ls_graph_release(&t->g);
}

/* As linear.c describes a convolution. */
static struct linear describe(const struct prepared *t, int node)
{
    const struct ls_node *n = &t->g.nodes[node];
    const struct ls_attr *a = &n->attr;
    bool back = n->op == &ls_op_conv_bwd_data;
    int x = back ? n->out[0] : n->in[0], y = back ? n->in[0] : n->out[0];
    return (struct linear){.pass = back ? BWD_DATA : FORWARD,
                           .conv = {.t = LS_BF16,
                                    .x = map_of(&t->p, x),
                                    .y = map_of(&t->p, y),
                                    .channels = t->g.tensors[x].shape.dim[1],
                                    .out = t->g.tensors[y].shape.dim[1],
                                    .groups = a->groups,
                                    .kernel_h = (int)a->kernel_h,
                                    .kernel_w = (int)a->kernel_w,
                                    .stride_h = (int)a->stride_h,
                                    .stride_w = (int)a->stride_w,
                                    .dilation_h = (int)a->dilation_h,
                                    .dilation_w = (int)a->dilation_w,
                                    .pad_t = (int)a->pad_t,
                                    .pad_l = (int)a->pad_l,
                                    .act = back ? LS_ACT_NONE : a->act},
                           .pad_b = (int)a->pad_b,
                           .pad_r = (int)a->pad_r,
                           .bias = !back && n->in[2] != LS_NONE};
}

/* Prepares a node; true: together with a normalisation. */
static bool prepare(struct prepared *t, int node, struct conv_bn *bn)
{
    static const struct conv_library library = {.run = run_separately};
    const struct conv_algorithm algorithm = {.library = &library};
    struct linear l = describe(t, node);
    bn->node = LS_NONE;
    assert_int_equal(conv_bn_prepare(&t->p, node, &l, &algorithm, bn), LS_OK);
    return bn->node != LS_NONE;
}

static bool is_convolution(const struct ls_node *n)
{
    return n->op == &ls_op_conv || n->op == &ls_op_conv_bwd_data;
}

static void begin_world(bool taps, bool product, bool apart)
{
    memset(&world, 0, sizeof world);
    world.taps = taps;
    world.product = product;
    world.apart = apart;
}

static void expect_taps(const char *model, int forward, int turned)
{
    struct prepared t;
    begin_world(true, true, false);
    open_program(&t, model);
    for (int n = 0; n < t.g.n_nodes; n++) {
        const struct ls_node *node = &t.g.nodes[n];
        struct conv_bn bn;
        if (!is_convolution(node) || !prepare(&t, n, &bn))
            continue;
        bool back = node->op == &ls_op_conv_bwd_data, three = node->attr.kernel_h == 3;
        assert_int_equal(bn.kernel.is_taps, three);
        assert_int_equal(t.p.execs[bn.node].early, n);
        assert_int_equal(t.p.core.places[node->out[0]].unmade, back && t.g.nodes[bn.node].out[DRESIDUAL] != LS_NONE);
        assert_string_equal(t.p.execs[n].note, back ? "own, with sums" : "own, with statistics");
        if (!three)
            continue;
        assert_int_equal(bn.kernel.taps.turned, back);
        assert_int_equal(bn.kernel.taps.x.c, padded(t.g.tensors[node->in[0]].shape.dim[1]));
        assert_int_equal(bn.kernel.taps.out, padded(t.g.tensors[node->out[0]].shape.dim[1]));
        assert_true(node->attr.stride_h == 1 && node->attr.groups == 1);
    }
    assert_int_equal(world.forward, forward);
    assert_int_equal(world.turned, turned);
    close_program(&t);
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

static void convolutions_of_3x3_compute_sums(void **state)
{
    (void)state;
    expect_taps("resnet18", 13, 8);       /* all but three with a stride; back, those before a bn without a residual */
    expect_taps("resnet50", 13, 13);      /* one a block, but for three with a stride */
    expect_taps("vgg16_bn", 13, 8);       /* five of the bn have a pooling */
    expect_taps("resnext50_32x4d", 0, 0); /* in groups */
    expect_taps("mobilenet_v2", 0, 0);    /* depthwise, and a first one with a stride */
    expect_taps("densenet121", 0, 58);    /* no bn reads their results; one each reads the gradient */
}

static void nothing_changes_where_two_kernels_are_faster(void **state)
{
    (void)state;
    struct prepared t;
    begin_world(true, true, true);
    open_program(&t, "resnet18");
    for (int n = 0; n < t.g.n_nodes; n++) {
        struct conv_bn bn;
        if (is_convolution(&t.g.nodes[n]))
            assert_false(prepare(&t, n, &bn));
        assert_int_equal(t.p.execs[n].early, LS_NONE);
    }
    assert_true(world.asked > 0);
    close_program(&t);
}

static void without_a_kernel_nothing_is_asked(void **state)
{
    (void)state;
    struct prepared t;
    begin_world(false, false, false);
    open_program(&t, "resnet50");
    for (int n = 0; n < t.g.n_nodes; n++) {
        struct conv_bn bn;
        if (is_convolution(&t.g.nodes[n]))
            assert_false(prepare(&t, n, &bn));
    }
    assert_int_equal(world.asked, 0);
    close_program(&t);
}

/* The gradient by data of a layer, and the bn_bwd that reads it. */
static int gradient_of(const struct prepared *t, const char *layer, int *reader)
{
    for (int n = 0; n < t->g.n_nodes; n++)
        if (t->g.nodes[n].op == &ls_op_conv_bwd_data && strcmp(t->g.nodes[n].name, layer) == 0)
            for (*reader = n + 1; *reader < t->g.n_nodes; ++*reader)
                if (t->g.nodes[*reader].op == &ls_op_bn_bwd)
                    return n;
    fail();
    return LS_NONE;
}

/* CONVBN-4, and the conditions that hold for products as well. */
static void other_gradients_and_weights_stay_apart(void **state)
{
    (void)state;
    enum { AS_IT_IS, RESIDUAL, TWINS, BLOCKS, LOGITS, CASES };
    for (int i = 0; i < CASES; i++) {
        struct prepared t;
        struct conv_bn bn;
        int reader = LS_NONE;
        begin_world(true, true, false);
        open_program(&t, "resnet18");
        int node = gradient_of(&t, i == RESIDUAL ? "layer2.1.conv1" : "layer2.1.conv2", &reader);
        const struct ls_node *n = &t.g.nodes[node], *of = &t.g.nodes[reader];
        assert_int_equal(of->out[DRESIDUAL] != LS_NONE && of->in[DY2] != LS_NONE, i == RESIDUAL);
        if (i == TWINS)
            t.p.execs[reader].twin = reader + 1;
        if (i == BLOCKS)
            t.p.layouts[n->in[1]].layout.block = 3;
        if (i == LOGITS)
            t.g.logits = n->out[0];
        assert_int_equal(prepare(&t, node, &bn), i == AS_IT_IS);
        assert_int_equal(world.asked, i == AS_IT_IS);
        close_program(&t);
    }
}

/* --- weights -------------------------------------------------------------------------------------------------------- */

enum { SIDE = 5, IN = 3, OUT = 10 };

/* What kernels.h says of a struct ls_cuda_taps, over one sample. */
static void plain_taps(const struct ls_cuda_taps *c, const float *x, const float *w, float *y)
{
    for (int64_t h = 0; h < SIDE; h++)
        for (int64_t v = 0; v < SIDE; v++)
            for (int64_t o = 0; o < c->out; o++) {
                float sum = 0;
                for (int64_t tap = 0; tap < 9; tap++) {
                    int64_t row = h + tap / 3 - 1, column = v + tap % 3 - 1, at = c->turned ? 8 - tap : tap;
                    for (int64_t i = 0; i < c->x.c && row >= 0 && row < SIDE && column >= 0 && column < SIDE; i++)
                        sum += x[(row * SIDE + column) * c->x.c + i] *
                               (c->turned ? w[(i * 9 + at) * c->out + o] : w[(o * 9 + at) * c->x.c + i]);
                }
                y[(h * SIDE + v) * c->out + o] = sum;
            }
}

/* Small whole numbers, so that all sums are exact; 0 in padding. */
static void fill_map(float *map, int64_t channels, int64_t stored, int64_t factor)
{
    for (int64_t i = 0; i < SIDE * SIDE * stored; i++)
        map[i] = i % stored < channels ? (float)(i * i * factor % 7) - 3 : 0;
}

static void the_gradient_reads_the_same_weights(void **state)
{
    (void)state;
    struct layout l = layout_weights(OUT, IN, 3, 3);
    const int64_t in = padded(IN), out = padded(OUT);
    const struct ls_cuda_taps forward = {{1, SIDE, SIDE, in}, out, false}, turned = {{1, SIDE, SIDE, out}, in, true};
    float plain[OUT * IN * 9], w[16 * 9 * 8], x[SIDE * SIDE * 8], y[SIDE * SIDE * 16], dy[SIDE * SIDE * 16],
        dx[SIDE * SIDE * 8];
    double there = 0, back = 0;
    assert_int_equal(l.count, sizeof w / sizeof *w);
    for (int i = 0; i < OUT * IN * 9; i++)
        plain[i] = (float)(i * 37 % 11) - 5;
    layout_scatter(&l, LS_F32, plain, w);
    fill_map(x, IN, in, 3);
    fill_map(dy, OUT, out, 5);
    plain_taps(&forward, x, w, y);
    plain_taps(&turned, dy, w, dx);
    for (int i = 0; i < SIDE * SIDE * 16; i++)
        there += (double)(y[i] * dy[i]);
    for (int i = 0; i < SIDE * SIDE * 8; i++)
        back += (double)(x[i] * dx[i]);
    assert_true(there == back && there != 0);
    /* Output 4 of the pixel in the middle, from the model's weights (out, in, height, width). */
    float sum = 0;
    for (int i = 0; i < IN; i++)
        for (int tap = 0; tap < 9; tap++)
            sum += plain[(4 * IN + i) * 9 + tap] * x[((tap / 3 + 1) * SIDE + tap % 3 + 1) * 8 + i];
    assert_true(sum == y[(2 * SIDE + 2) * 16 + 4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_3x3_compute_sums),
        cmocka_unit_test(nothing_changes_where_two_kernels_are_faster),
        cmocka_unit_test(without_a_kernel_nothing_is_asked),
        cmocka_unit_test(other_gradients_and_weights_stay_apart),
        cmocka_unit_test(the_gradient_reads_the_same_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
