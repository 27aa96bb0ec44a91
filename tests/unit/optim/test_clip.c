/* Clipping by norm: PyTorch's clip_grad_norm_, on ref and on the tested backend. */
#include "ops_session.h"

#include "../../golden/clip.h"

static void write(struct ls_session *s, int tensor, const float *values)
{
    assert_int_equal(s->backend->write(s->program, tensor, values), LS_OK);
}

/* After a step of sgd with rate 1 from 0, a parameter is minus its gradient. */
static void expect_steps(const struct ls_session *s, int param, const float *expected, int count)
{
    float *found = session_read(s, param);
    for (int i = 0; i < count; i++)
        if (!(fabs((double)found[i] + expected[i]) <= 2e-7 * fabs((double)expected[i])))
            fail_msg("%s[%d] is %.9g, PyTorch has %.9g", s->g.tensors[param].name, i, -(double)found[i],
                     (double)expected[i]);
    ls_free(found);
}

static void clip_once(const struct ls_backend *backend, int row)
{
    struct ls_case c = *find_case("sgd nesterov of a dense layer");
    struct ls_session s = {0};
    float weight[CLIP_WEIGHTS], bias[CLIP_OUT];
    const float zeros[CLIP_WEIGHTS] = {0};
    assert_true(c.attr.out == CLIP_OUT && c.c == CLIP_IN);
    c.attr.hyper = (struct ls_hyper){.clip_norm = clip_golden[row].limit};
    c.attr.nesterov = false;
    c.states[0] = NULL;
    build(&s.g, &c, LS_F32);
    session_open(&s, backend, c.n, &apart);
    int w = ls_graph_find(&s.g, "op.weight"), b = ls_graph_find(&s.g, "op.bias"), first = 0;
    while (s.g.nodes[first].phase != LS_UPDATE)
        first++;
    session_run(&s); /* makes all memory hold numbers */
    for (int i = 0; i < CLIP_WEIGHTS; i++)
        weight[i] = (float)((i * 37) % 64 - 32) / 16;
    for (int i = 0; i < CLIP_OUT; i++)
        bias[i] = (float)((i * 5) % 16 - 8) / 4;
    for (int t = 0; t < s.g.n_tensors; t++) { /* the layer before this one has none */
        float *none = s.g.tensors[t].role == LS_ROLE_GRAD
                          ? ls_alloc((size_t)ls_shape_count(&s.g.tensors[t].shape), sizeof *none)
                          : NULL;
        if (none)
            write(&s, t, none);
        ls_free(none);
    }
    write(&s, w, zeros);
    write(&s, b, zeros);
    write(&s, s.g.tensors[w].grad, weight);
    write(&s, s.g.tensors[b].grad, bias);
    s.run.lr = 1;
    assert_int_equal(backend->run(s.program, first, s.g.n_nodes, &s.run), LS_OK);
    expect_steps(&s, w, clip_golden[row].weight, CLIP_WEIGHTS);
    expect_steps(&s, b, clip_golden[row].bias, CLIP_OUT);
    session_close(&s);
}

static void clip_all(const struct ls_backend *backend)
{
    for (int row = 0; row < (int)(sizeof clip_golden / sizeof *clip_golden); row++)
        clip_once(backend, row);
}

static void ref_follows_pytorch(void **state)
{
    (void)state;
    clip_all(ls_backend_find("ref"));
}

static void tested_follows_pytorch(void **state)
{
    (void)state;
    clip_all(tested_backend());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_follows_pytorch),
        cmocka_unit_test(tested_follows_pytorch),
    };
    return cmocka_run_group_tests_name("clip", tests, NULL, NULL);
}
