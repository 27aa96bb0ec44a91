/* Fusion keeps a model's meaning: fused and unfused graphs give the same logits, loss and gradients on `ref`,
 * and each rule applies where it should. */
#include "ops_session.h"
#include "graph/build.h"

/* --- small models that mix what the rules look for ---------------------------------------------------- */

static int bn_pool(struct ls_build *b, int x)
{
    x = ls_conv(b, "conv1", x, 6, 3, 1, 1, 1, false);
    x = ls_maxpool(b, "pool1", ls_relu(b, "relu1", ls_bn(b, "bn1", x)), 3, 2, 1);
    x = ls_conv(b, "conv2", x, 8, 3, 1, 1, 1, false);
    x = ls_maxpool(b, "pool2", ls_relu6(b, "relu2", ls_bn(b, "bn2", x)), 2, 2, 0);
    return ls_dense(b, "fc", ls_flatten(b, "flatten", x), 5);
}

static int residual_block(struct ls_build *b, const char *name, int x, int64_t out, int64_t stride)
{
    int shortcut = x;
    int y = ls_conv(b, ls_build_name(b, "%s.conv1", name), x, out, 3, stride, 1, 1, false);
    y = ls_relu(b, ls_build_name(b, "%s.relu1", name), ls_bn(b, ls_build_name(b, "%s.bn1", name), y));
    y = ls_conv(b, ls_build_name(b, "%s.conv2", name), y, out, 3, 1, 1, 1, false);
    y = ls_bn(b, ls_build_name(b, "%s.bn2", name), y);
    if (stride > 1) {
        shortcut = ls_conv(b, ls_build_name(b, "%s.down", name), x, out, 1, stride, 0, 1, false);
        shortcut = ls_bn(b, ls_build_name(b, "%s.down_bn", name), shortcut);
    }
    y = ls_add(b, ls_build_name(b, "%s.add", name), y, shortcut);
    return ls_relu(b, ls_build_name(b, "%s.relu2", name), y);
}

static int residual(struct ls_build *b, int x)
{
    x = ls_relu(b, "relu", ls_bn(b, "bn", ls_conv(b, "conv", x, 6, 3, 1, 1, 1, false)));
    x = residual_block(b, "a", x, 6, 1);
    x = residual_block(b, "b", x, 10, 2);
    return ls_dense(b, "fc", ls_flatten(b, "flatten", ls_adaptive_avgpool(b, "pool", x, 1, 1)), 5);
}

static int plain(struct ls_build *b, int x)
{
    x = ls_maxpool(b, "pool1", ls_relu(b, "relu1", ls_conv(b, "conv1", x, 6, 3, 1, 1, 1, true)), 2, 2, 0);
    x = ls_relu(b, "relu2", ls_conv(b, "conv2", x, 7, 3, 1, 1, 1, true));
    x = ls_dropout(b, "drop1", ls_flatten(b, "flatten", x), 0.5f);
    x = ls_dropout(b, "drop2", ls_relu(b, "relu3", ls_dense(b, "fc1", x, 12)), 0.3f);
    return ls_dense(b, "fc2", x, 5);
}

/* Linear bottleneck: a bn without activation that is added, and one whose output two layers read. */
static int inverted(struct ls_build *b, int x)
{
    x = ls_bn(b, "bn1", ls_conv(b, "conv1", x, 4, 1, 1, 0, 1, false));
    int y = ls_relu6(b, "relu1", ls_bn(b, "bn2", ls_conv(b, "conv2", x, 12, 1, 1, 0, 1, false)));
    y = ls_relu6(b, "relu2", ls_bn(b, "bn3", ls_conv(b, "conv3", y, 12, 3, 1, 1, 12, false)));
    y = ls_bn(b, "bn4", ls_conv(b, "conv4", y, 4, 1, 1, 0, 1, false));
    return ls_dense(b, "fc", ls_flatten(b, "flatten", ls_add(b, "add", x, y)), 5);
}

/* Nothing may be joined over a tensor that somebody else reads too. */
static int shared(struct ls_build *b, int x)
{
    int c = ls_conv(b, "conv1", x, 6, 3, 1, 1, 1, true);
    int r = ls_relu(b, "relu1", c);
    int y = ls_relu(b, "relu2", ls_add(b, "add1", c, r));
    y = ls_add(b, "add2", ls_maxpool(b, "pool1", y, 3, 1, 1), y);
    return ls_dense(b, "fc", ls_flatten(b, "flatten", y), 5);
}

/* Activations that do not clip: a bn takes them; poolings and residuals behind them stay apart, and so does what maps 0 to
 * another value. */
static int smooth(struct ls_build *b, int x)
{
    x = ls_act(b, "act1", ls_bn(b, "bn1", ls_conv(b, "conv1", x, 6, 3, 1, 1, 1, false)), LS_ACT_GELU);
    x = ls_maxpool(b, "pool1", x, 2, 2, 0);
    int y = ls_act(b, "act2", ls_bn(b, "bn2", ls_conv(b, "conv2", x, 6, 3, 1, 1, 1, false)), LS_ACT_SILU);
    x = ls_add(b, "add", x, y);
    y = ls_act(b, "act3", ls_bn(b, "bn3", ls_conv(b, "conv3", x, 5, 1, 1, 0, 1, false)), LS_ACT_HARDSWISH);
    y = ls_act(b, "act4", ls_bn(b, "bn4", ls_conv(b, "conv4", y, 5, 1, 1, 0, 1, false)), LS_ACT_SIGMOID);
    y = ls_act(b, "act5", ls_conv(b, "conv5", y, 5, 1, 1, 0, 1, true), LS_ACT_GELU);
    return ls_dense(b, "fc", ls_flatten(b, "flatten", y), 5);
}

struct fuse_case {
    const char *name;
    int (*model)(struct ls_build *, int x);
    const char *fused; /* the forward nodes in short: op+residual+act+pool */
    int64_t side;      /* of the images, which are one less wide */
};

static const struct fuse_case fuse_cases[] = {
    {"conv bn relu maxpool", bn_pool, "conv bn+relu+pool conv bn+relu6+pool dense softmax_xent", 9},
    {"residual blocks", residual,
     "conv bn+relu conv bn+relu conv bn+residual+relu conv bn+relu conv avgpool conv bn bn+residual+relu "
     "adaptive_avgpool dense softmax_xent",
     9},
    /* Backends take maps of many pixels another way. */
    {"larger residual blocks", residual,
     "conv bn+relu conv bn+relu conv bn+residual+relu conv bn+relu conv avgpool conv bn bn+residual+relu "
     "adaptive_avgpool dense softmax_xent",
     48},
    {"conv relu maxpool, dropout", plain, "conv maxpool+relu conv+relu dropout dense+relu dropout dense softmax_xent",
     9},
    {"inverted residual", inverted, "conv bn conv bn+relu6 conv bn+relu6 conv bn+residual dense softmax_xent", 9},
    {"smooth activations", smooth,
     "conv bn+gelu maxpool conv bn+silu add conv bn+hardswish conv bn act+sigmoid conv act+gelu dense softmax_xent", 9},
    {"shared tensors", shared, "conv act+relu add+relu maxpool add dense softmax_xent", 9},
};

/* --- the tests ---------------------------------------------------------------------------------------- */

static void open_model(struct ls_session *s, const struct fuse_case *c, bool fuse, bool dense_1x1)
{
    struct ls_model_size size = {.batch = 4, .channels = 3, .height = c->side, .width = c->side - 1, .classes = 5};
    struct ls_build b;
    memset(s, 0, sizeof *s);
    assert_int_equal(ls_build_begin(&b, &s->g, &size, true, LS_F32), LS_OK);
    int logits = c->model(&b, s->g.input);
    assert_int_equal(ls_build_finish(&b, logits, &ls_op_softmax_xent, 0.1f), LS_OK);
    if (fuse)
        assert_int_equal(ls_graph_fuse(&s->g, dense_1x1), LS_OK);
    assert_int_equal(ls_graph_backward(&s->g), LS_OK);
}

static void describe_forward(const struct ls_graph *g, char *text, size_t room)
{
    size_t used = 0;
    for (int n = 0; n < g->n_nodes && g->nodes[n].phase == LS_FORWARD; n++) {
        const struct ls_node *node = &g->nodes[n];
        bool with_residual = node->op == &ls_op_bn && node->in[5] != LS_NONE;
        int wrote = snprintf(text + used, room - used, "%s%s%s%s%s%s", n ? " " : "", node->op->name,
                             with_residual ? "+residual" : "", node->attr.act ? "+" : "",
                             node->attr.act ? ls_act_name(node->attr.act) : "", node->attr.pool ? "+pool" : "");
        assert_true(wrote > 0 && (size_t)wrote < room - used);
        used += (size_t)wrote;
    }
}

/* The unfused graph on ref, one fused as `backend` likes it on that. */
static void same_results(const struct fuse_case *c, const struct ls_backend *backend, int64_t valid, double tolerance,
                         const struct ls_backend_options *options)
{
    struct ls_session a, b;
    bool same = true;
    open_model(&a, c, false, false);
    open_model(&b, c, true, backend->dense_1x1);
    session_open(&a, ls_backend_find("ref"), valid, &apart);
    session_open(&b, backend, valid, options);
    session_run(&a);
    session_run(&b);
    same = same_values(&a, a.g.logits, &b, b.g.logits, tolerance, c->name) && same;
    same = same_values(&a, a.g.loss, &b, b.g.loss, tolerance, c->name) && same;
    same = same_values(&a, a.g.label_rank, &b, b.g.label_rank, 0, c->name) && same;
    for (int t = 0; t < a.g.n_tensors; t++) {
        if (a.g.tensors[t].role != LS_ROLE_GRAD)
            continue;
        int other = ls_graph_find(&b.g, a.g.tensors[t].name);
        assert_int_not_equal(other, LS_NONE);
        same = same_values(&a, t, &b, other, tolerance, c->name) && same;
    }
    session_close(&a);
    session_close(&b);
    assert_true(same);
}

static void values_test(void **state)
{
    same_results(*state, ls_backend_find("ref"), 4, 1e-5, &apart);
}

static void short_batch_test(void **state)
{
    same_results(*state, ls_backend_find("ref"), 3, 1e-5, &apart);
}

static void tested_test(void **state)
{
    const struct fuse_case *c = *state;
    double tolerance = c->side > 9 ? 1e-3 : 1e-4; /* what is summed before a bn cancels, and more so over many pixels */
    same_results(c, tested_backend(), 3, tolerance, &apart);
    same_results(c, tested_backend(), 3, tolerance, &reused);
}

static void rules_test(void **state)
{
    const struct fuse_case *c = *state;
    struct ls_session s;
    char text[1024] = "";
    open_model(&s, c, true, true);
    describe_forward(&s.g, text, sizeof text);
    assert_string_equal(text, c->fused);
    ls_graph_release(&s.g);
}

int main(void)
{
    const struct {
        const char *name;
        CMUnitTestFunction test;
    } kinds[] = {
        {"rules", rules_test},
        {"values", values_test},
        {"short batch", short_batch_test},
        {tested_name(), tested_test},
    };
    enum { KINDS = sizeof kinds / sizeof *kinds, CASES = sizeof fuse_cases / sizeof *fuse_cases };
    struct CMUnitTest tests[KINDS * CASES];
    struct ls_arena names = {0};
    for (int i = 0; i < KINDS * CASES; i++) {
        const struct fuse_case *c = &fuse_cases[i / KINDS];
        tests[i] = (struct CMUnitTest){.name = ls_arena_format(&names, "%s: %s", c->name, kinds[i % KINDS].name),
                                       .test_func = kinds[i % KINDS].test,
                                       .initial_state = (void *)(uintptr_t)c};
    }
    int failed = cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
    ls_arena_release(&names);
    return failed;
}
