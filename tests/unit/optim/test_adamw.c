/* AdamW: PyTorch's steps, and every backend against ref. */
#include "ops_session.h"

#include "../../golden/adamw.h"

static struct ls_case golden_case(void)
{
    struct ls_case c = *find_case("adamw of a dense layer");
    assert_int_equal(c.attr.out, ADAMW_VALUES);
    c.attr.hyper = (struct ls_hyper)ADAMW_HYPER;
    return c;
}

static void write(struct ls_session *s, int tensor, const float *values)
{
    assert_int_equal(s->backend->write(s->program, tensor, values), LS_OK);
}

/* Within 1e-6 of the value and of `size`, that of the terms it is the sum of. */
static void expect_near(const struct ls_session *s, int tensor, const float *expected, const float *size, int step)
{
    float *found = session_read(s, tensor);
    for (int i = 0; i < ADAMW_VALUES; i++)
        if (!(fabs((double)found[i] - expected[i]) <= 1e-6 * (fabs((double)expected[i]) + size[i])))
            fail_msg("step %d: %s[%d] is %.9g, PyTorch has %.9g", step + 1, s->g.tensors[tensor].name, i,
                     (double)found[i], (double)expected[i]);
    ls_free(found);
}

/* The bias of a dense layer takes PyTorch's steps, with the gradients that PyTorch was given. */
static void follow_pytorch(const struct ls_backend *backend)
{
    struct ls_case c = golden_case();
    struct ls_session s = {0};
    const float zeros[ADAMW_VALUES] = {0};
    float steps[ADAMW_VALUES], slopes[ADAMW_VALUES] = {0};
    build(&s.g, &c, LS_F32);
    session_open(&s, backend, c.n, &apart);
    int param = ls_graph_find(&s.g, "op.bias"), first = 0;
    int mean = ls_graph_find(&s.g, "op.bias.exp_avg"), square = ls_graph_find(&s.g, "op.bias.exp_avg_sq");
    assert_int_equal(s.g.tensors[mean].role, LS_ROLE_OPTIMIZER);
    assert_int_equal(s.g.tensors[square].role, LS_ROLE_OPTIMIZER);
    while (s.g.nodes[first].phase != LS_UPDATE)
        first++;
    session_run(&s); /* makes all memory hold numbers */
    write(&s, param, adamw_start);
    write(&s, mean, zeros);
    write(&s, square, zeros);
    s.run.lr = ADAMW_LR;
    for (int i = 0; i < ADAMW_VALUES; i++)
        steps[i] = ADAMW_LR;
    for (int step = 0; step < ADAMW_STEPS; step++) {
        s.run.step = (uint64_t)step;
        write(&s, s.g.tensors[param].grad, adamw_grad[step]);
        assert_int_equal(backend->run(s.program, first, s.g.n_nodes, &s.run), LS_OK);
        for (int i = 0; i < ADAMW_VALUES; i++)
            slopes[i] = fmaxf(slopes[i], fabsf(adamw_grad[step][i]));
        expect_near(&s, mean, adamw_exp_avg[step], slopes, step);
        expect_near(&s, square, adamw_exp_avg_sq[step], zeros, step);
        expect_near(&s, param, adamw_param[step], steps, step);
    }
    session_close(&s);
}

static void ref_follows_pytorch(void **state)
{
    (void)state;
    follow_pytorch(ls_backend_find("ref"));
}

static void tested_follows_pytorch(void **state)
{
    (void)state;
    follow_pytorch(tested_backend());
}

static void tested_as_ref(void **state)
{
    (void)state;
    expect_as_ref("adamw", 1e-5);
    expect_as_ref("adamw of a dense layer", 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_follows_pytorch),
        cmocka_unit_test(tested_follows_pytorch),
        cmocka_unit_test(tested_as_ref),
    };
    return cmocka_run_group_tests_name("adamw", tests, NULL, NULL);
}
