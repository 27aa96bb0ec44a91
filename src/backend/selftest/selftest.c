#include "backend/selftest/selftest.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct ls_precision ls_precisions[] = {
    {"f32", LS_F32, false, 1e-5},  {"tf32", LS_F32, true, 5e-3}, {"bf16", LS_BF16, false, 2e-2},
    {"fp16", LS_F16, false, 5e-3}, {NULL, LS_F32, false, 0},
};

const struct ls_precision *ls_precision_find(const char *name)
{
    for (const struct ls_precision *p = ls_precisions; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

/* Updates go on from their own results: two steps, so small that what was rounded in the first is not made much of. */
static enum ls_status run_case(struct ls_session *s, const struct ls_case *c)
{
    if (ls_case_updates(c)) {
        s->run.grad_scale = 1.0f / 64;
        LS_TRY(ls_session_run(s));
    }
    return ls_session_run(s);
}

enum ls_status ls_selftest_open(struct ls_selftest *t, const struct ls_case *c)
{
    static const struct ls_backend_options apart = {.threads = 1, .keep_grads = true};
    *t = (struct ls_selftest){.c = c};
    LS_TRY(ls_case_build(c, LS_F32, &t->ref.g));
    LS_TRY(ls_session_open(&t->ref, ls_backend_find("ref"), c->valid ? c->valid : c->n, &apart));
    return run_case(&t->ref, c);
}

void ls_selftest_close(struct ls_selftest *t)
{
    ls_session_close(&t->ref);
    *t = (struct ls_selftest){0};
}

/* Everything a node writes and everything kept, except: indices, which are each backend's own affair; ranks among computed
 * scores, where rounding breaks ties; and what "pre" learns: bn does not care for the scale of its input, so behind bn
 * that gradient is 0 but for rounding. After updates, what they are for. The loss of a large map is one long sum. The gradient
 * between a convolution and a bn is never stored where both are computed together. */
static bool is_comparable(const struct ls_case *c, const struct ls_graph *g, int tensor)
{
    const struct ls_tensor *t = &g->tensors[tensor];
    const struct ls_case_family *family = ls_case_family(c);
    bool loss = family->loss;
    bool kept = ls_role_kept(t->role);
    bool behind_bn = family->scale_free || (ls_case_updates(c) && c->attr.out == 0);
    if (t->dtype == LS_U8 || t->role == LS_ROLE_INPUT || (t->dtype == LS_I32 && !loss))
        return false;
    if (c->large && !loss && tensor == g->loss)
        return false;
    if (behind_bn && strncmp(t->name, "pre.weight", 10) == 0)
        return false;
    if (c->between && strcmp(t->name, "d op") == 0)
        return false;
    return ls_case_updates(c) ? kept : kept || ls_graph_producer(g, tensor) != LS_NONE;
}

/* Behind a convolution, rounding decides which of many values an activation passes. */
static double tolerance_of(const struct ls_case *c, const struct ls_precision *p)
{
    bool rounded = p->tolerance > 1e-4;
    if (c->coarse || (rounded && c->large && c->between && c->attr.act != LS_ACT_NONE))
        return 5e-2;
    return p->tolerance < 1e-4 && (c->winograd || c->large) ? 1e-4 : p->tolerance;
}

static enum ls_status compare_tensor(const struct ls_session *ref, const struct ls_session *tested, int tensor,
                                     struct ls_selftest_result *r)
{
    enum ls_status st;
    float *a = NULL, *b = NULL;
    LS_TRY_GOTO(free_values, ls_session_read(ref, tensor, &a));
    LS_TRY_GOTO(free_values, ls_session_read(tested, tensor, &b));
    double error = ls_relative_error(a, b, ls_session_count(ref, tensor));
    if (error >= r->error) {
        r->error = error;
        snprintf(r->tensor, sizeof r->tensor, "%.95s", ref->g.tensors[tensor].name);
    }
free_values:
    ls_free(a);
    ls_free(b);
    return st;
}

enum ls_status ls_selftest_compare(const struct ls_selftest *t, const struct ls_backend *backend,
                                   const struct ls_precision *precision, const struct ls_backend_options *options,
                                   struct ls_selftest_result *result)
{
    const struct ls_case *c = t->c;
    struct ls_backend_options own = options ? *options : (struct ls_backend_options){.threads = 1, .keep_grads = true};
    struct ls_session s = {0};
    enum ls_status st;
    own.tf32 = precision->tf32;
    own.loss_scale = 1; /* so that gradients can be compared as they lie there */
    *result = (struct ls_selftest_result){.tolerance = tolerance_of(c, precision)};
    LS_TRY_GOTO(close_session, ls_case_build(c, precision->dtype, &s.g));
    LS_TRY_GOTO(close_session, ls_session_open(&s, backend, c->valid ? c->valid : c->n, &own));
    LS_TRY_GOTO(close_session, run_case(&s, c));
    for (int i = 0; i < t->ref.g.n_tensors && st == LS_OK; i++)
        if (is_comparable(c, &t->ref.g, i))
            st = compare_tensor(&t->ref, &s, i, result);
close_session:
    ls_session_close(&s);
    return st;
}
