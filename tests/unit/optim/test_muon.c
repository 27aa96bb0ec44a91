/* Muon: steps by PyTorch's operations, every backend against ref, and which parameters take which step. */
#include "ops_session.h"

#include "config/options.h"
#include "model/model.h"
#include "optim/optim.h"

#include "../../golden/muon.h"

struct golden {
    const char *name;
    int64_t channels, out, kernel;
    int count;
    const float *start, *grads, *params;
};

static const struct golden wide = {
    "muon", 3, 10, 3, MUON_WIDE, muon_wide_start, &muon_wide_grad[0][0], &muon_wide_param[0][0]};
static const struct golden high = {"muon of more filters than values",
                                   3,
                                   20,
                                   1,
                                   MUON_HIGH,
                                   muon_high_start,
                                   &muon_high_grad[0][0],
                                   &muon_high_param[0][0]};

static void write(struct ls_session *s, int tensor, const float *values)
{
    assert_int_equal(s->backend->write(s->program, tensor, values), LS_OK);
}

static void expect_near(const struct ls_session *s, int tensor, const float *expected, int count, int step)
{
    float *found = session_read(s, tensor);
    for (int i = 0; i < count; i++)
        if (!(fabs((double)found[i] - expected[i]) <= 2e-5))
            fail_msg("step %d: %s[%d] is %.9g, expected is %.9g", step + 1, s->g.tensors[tensor].name, i,
                     (double)found[i], (double)expected[i]);
    ls_free(found);
}

/* The filters of a convolution take PyTorch's steps, with the gradients that PyTorch was given. */
static void follow_pytorch(const struct ls_backend *backend, const struct golden *g)
{
    struct ls_case c = *find_case(g->name);
    struct ls_session s = {0};
    int first = 0;
    c.c = g->channels;
    c.attr.out = g->out;
    c.attr.kernel_h = c.attr.kernel_w = g->kernel;
    c.attr.nesterov = true;
    c.attr.hyper = (struct ls_hyper)MUON_HYPER;
    build(&s.g, &c, LS_F32);
    session_open(&s, backend, c.n, &apart);
    int param = ls_graph_find(&s.g, "op.weight"), momentum = ls_graph_find(&s.g, "op.weight.momentum");
    assert_int_equal(ls_shape_count(&s.g.tensors[param].shape), g->count);
    assert_int_equal(s.g.tensors[momentum].role, LS_ROLE_OPTIMIZER);
    while (s.g.nodes[first].phase != LS_UPDATE)
        first++;
    session_run(&s); /* makes all memory hold numbers */
    float *zeros = ls_alloc((size_t)g->count, sizeof *zeros);
    write(&s, param, g->start);
    write(&s, momentum, zeros);
    ls_free(zeros);
    s.run.lr = MUON_LR;
    for (int step = 0; step < MUON_STEPS; step++) {
        s.run.step = (uint64_t)step;
        write(&s, s.g.tensors[param].grad, g->grads + step * g->count);
        assert_int_equal(backend->run(s.program, first, s.g.n_nodes, &s.run), LS_OK);
        expect_near(&s, param, g->params + step * g->count, g->count, step);
    }
    session_close(&s);
}

static void ref_follows_pytorch(void **state)
{
    (void)state;
    follow_pytorch(ls_backend_find("ref"), &wide);
    follow_pytorch(ls_backend_find("ref"), &high);
}

static void tested_follows_pytorch(void **state)
{
    (void)state;
    follow_pytorch(tested_backend(), &wide);
    follow_pytorch(tested_backend(), &high);
}

static void tested_as_ref(void **state)
{
    (void)state;
    expect_as_ref("muon", 1e-4);
    expect_as_ref("muon of more filters than values", 1e-4);
}

static void make_updates(struct ls_options *o, struct ls_graph *g)
{
    struct ls_model_request request = {.model = "mobilenet_v2",
                                       .size = {.batch = 2, .height = 32, .width = 32},
                                       .training = true,
                                       .loss = "xent",
                                       .dropout = -1,
                                       .drop_path = -1};
    assert_int_equal(ls_model_build(&request, g), LS_OK);
    assert_int_equal(ls_graph_backward(g), LS_OK);
    assert_int_equal(ls_optim_update(g, o, false), LS_OK);
}

static void set(char **option, const char *value)
{
    ls_free(*option);
    *option = ls_strdup(value);
}

/* Dense filters take muon's step; depthwise ones, biases, BN and the classifier sgd's. Groups set momentum and decay. */
static void parameters_by_kind(void **state)
{
    struct ls_options o;
    struct ls_graph g;
    int muon = 0, sgd = 0;
    (void)state;
    assert_int_equal(ls_options_default(&o), LS_OK);
    set(&o.optimizer, "muon");
    set(&o.momentum_groups, "^classifier=0.5,weight$=0.25");
    set(&o.decay_groups, "bias$=0");
    make_updates(&o, &g);
    for (int n = 0; n < g.n_nodes; n++) {
        const struct ls_node *node = &g.nodes[n];
        if (!node->op->update)
            continue;
        const struct ls_tensor *t = &g.tensors[node->in[0]];
        bool filters = t->shape.rank == 4 && t->shape.dim[1] > 1, bias = strstr(t->name, ".bias") != NULL;
        bool classifier = strncmp(t->name, "classifier", 10) == 0;
        assert_ptr_equal(node->op, filters ? &ls_op_muon : &ls_op_sgd);
        assert_true(node->attr.hyper.momentum == (classifier ? 0.5 : bias ? 0.9 : 0.25));
        assert_true(node->attr.hyper.weight_decay == (bias ? 0 : 0.0005));
        muon += filters;
        sgd += !filters;
    }
    assert_true(muon > 30 && sgd > 100);
    ls_graph_release(&g);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_follows_pytorch),
        cmocka_unit_test(tested_follows_pytorch),
        cmocka_unit_test(tested_as_ref),
        cmocka_unit_test(parameters_by_kind),
    };
    return cmocka_run_group_tests_name("muon", tests, NULL, NULL);
}
