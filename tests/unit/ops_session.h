/* Sessions (backend/selftest) whose failures fail the test.
 * Shared by several tests. */
#ifndef LS_TESTS_OPS_SESSION_H
#define LS_TESTS_OPS_SESSION_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "backend/selftest/selftest.h"
#include "base/log.h"
#include "base/memory.h"
#include "tested.h"

static const struct ls_backend_options apart = {.threads = 2, .keep_grads = true, .loss_scale = 1};
static const struct ls_backend_options reused = {.threads = 2, .keep_grads = true, .loss_scale = 1, .reuse = true};
static const struct ls_backend_options tuned = {.threads = 2, .keep_grads = true, .loss_scale = 1, .tune = true};

static inline int64_t tensor_count(const struct ls_session *s, int tensor)
{
    return ls_session_count(s, tensor);
}

static inline void session_open(struct ls_session *s, const struct ls_backend *backend, int64_t valid,
                                const struct ls_backend_options *options)
{
    assert_int_equal(ls_session_open(s, backend, valid, options), LS_OK);
}

static inline void session_close(struct ls_session *s)
{
    ls_session_close(s);
}

static inline void session_run(struct ls_session *s)
{
    assert_int_equal(ls_session_run(s), LS_OK);
}

static inline float *session_read(const struct ls_session *s, int tensor)
{
    float *values = NULL;
    assert_int_equal(ls_session_read(s, tensor, &values), LS_OK);
    return values;
}

/* The case's graph in a session that is still to be opened. */
static inline void build(struct ls_graph *g, const struct ls_case *c, enum ls_dtype dtype)
{
    assert_int_equal(ls_case_build(c, dtype, g), LS_OK);
}

static inline const struct ls_case *find_case(const char *name)
{
    const struct ls_case *c = ls_case_find(name);
    if (!c)
        fail_msg("no case %s", name);
    return c;
}

/* The same tensor in two sessions; false, with a line that names it, when they differ by too much. */
static inline bool same_values(const struct ls_session *a, int in_a, const struct ls_session *b, int in_b,
                               double tolerance, const char *what)
{
    const char *name = a->g.tensors[in_a].name;
    if (tensor_count(a, in_a) != tensor_count(b, in_b)) {
        print_error("%s: tensor %s (%d): sizes differ\n", what, name, in_a);
        return false;
    }
    float *x = session_read(a, in_a), *y = session_read(b, in_b);
    double error = ls_relative_error(x, y, tensor_count(a, in_a));
    if (error > tolerance)
        print_error("%s: tensor %s (%d): relative error %.3g, at most %.3g allowed\n", what, name, in_a, error,
                    tolerance);
    ls_free(x);
    ls_free(y);
    return error <= tolerance;
}

/* A case on the tested backend, as far from ref as that at most. */
static inline void expect_as_ref(const char *name, double most)
{
    struct ls_selftest t;
    struct ls_selftest_result r;
    assert_int_equal(ls_selftest_open(&t, find_case(name)), LS_OK);
    assert_int_equal(ls_selftest_compare(&t, tested_backend(), ls_precision_find("f32"), &apart, &r), LS_OK);
    ls_selftest_close(&t);
    if (!(r.error <= most))
        fail_msg("%s: tensor %s: relative error %.3g", name, r.tensor, r.error);
}

#endif
