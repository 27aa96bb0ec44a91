/* A graph on a backend, ready to run: what test_ops.c and test_fuse.c share. */
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

#include "backend/backend.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "graph/ops.h"

struct session {
    const struct ls_backend *backend;
    struct ls_graph g; /* owned */
    struct ls_store *store;
    bool own_store;
    struct ls_program *program;
    void *arena, *grads;
    size_t arena_bytes, grad_bytes;
    float *images;
    int32_t *labels;
    struct ls_run run;
};

static inline int64_t tensor_count(const struct session *s, int tensor)
{
    return ls_shape_count(&s->g.tensors[tensor].shape);
}

/* Values that depend on the tensor's name alone, so that two graphs with the same layers start alike. */
static inline void fill_by_name(const char *name, float low, float high, int64_t n, float *values)
{
    uint64_t seed = 5381;
    for (const char *c = name; *c; c++)
        seed = seed * 33 + (unsigned char)*c;
    ls_random_fill_uniform(seed, 0, low, high, n, values);
}

static inline bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Scales and variances around 1, everything else around 0 with the size a fan-in asks for. */
static inline void fill_parameters(struct session *s)
{
    for (int t = 0; t < s->g.n_tensors; t++) {
        const struct ls_tensor *tensor = &s->g.tensors[t];
        if (tensor->role != LS_ROLE_PARAM && tensor->role != LS_ROLE_STATE)
            continue;
        int64_t n = tensor_count(s, t);
        float *values = ls_alloc((size_t)n, sizeof *values);
        assert_non_null(values);
        bool scale = tensor->shape.rank == 1 && (ends_with(tensor->name, ".weight") || ends_with(tensor->name, "_var"));
        float bound = tensor->shape.rank < 2 ? 0.5f : 1.7f / sqrtf((float)(n / tensor->shape.dim[0]));
        if (strncmp(tensor->name, "pre", 3) == 0) /* a plain copy of the image */
            fill_by_name(tensor->name, 1, 1, n, values);
        else
            fill_by_name(tensor->name, scale ? 0.5f : -bound, scale ? 1.5f : bound, n, values);
        assert_int_equal(s->backend->write(s->program, t, values), LS_OK);
        ls_free(values);
    }
}

/* Images in steps of 1/32 (exact in bf16 too), labels in turn; samples beyond valid are marked as none. */
static inline void fill_inputs(struct session *s)
{
    int64_t n = tensor_count(s, s->g.input), samples = tensor_count(s, s->g.label);
    int64_t classes = s->g.logits == LS_NONE ? 2 : s->g.tensors[s->g.logits].shape.dim[1];
    s->images = ls_alloc((size_t)n, sizeof *s->images);
    s->labels = ls_alloc((size_t)samples, sizeof *s->labels);
    assert_true(s->images && s->labels);
    for (int64_t i = 0; i < n; i++)
        s->images[i] = (float)((int64_t)ls_random_below(7, 1, (uint64_t)i, 128) - 64) / 32;
    for (int64_t i = 0; i < samples; i++)
        s->labels[i] = i < s->run.valid ? (int32_t)((i * 5 + 1) % classes) : -1;
    assert_int_equal(s->backend->input(s->program, s->g.input, s->images), LS_OK);
    assert_int_equal(s->backend->input(s->program, s->g.label, s->labels), LS_OK);
}

static const struct ls_backend_options apart = {.threads = 2, .keep_grads = true};
static const struct ls_backend_options reused = {.threads = 2, .keep_grads = true, .reuse = true};
static const struct ls_backend_options tuned = {.threads = 2, .keep_grads = true, .tune = true};

/* s->g is made; prepare, bind and fill. With s->store set the parameters are those of another session. */
static inline void session_open(struct session *s, const struct ls_backend *backend, int64_t valid,
                                const struct ls_backend_options *options)
{
    s->backend = backend;
    s->run = (struct ls_run){
        .seed = 3, .step = 11, .replica = 1, .valid = valid, .grad_scale = 0.25f, .stat_weight = 0.5f, .lr = 0.1f};
    s->own_store = !s->store;
    s->store = s->store ? s->store : ls_store_new();
    assert_non_null(s->store);
    assert_int_equal(backend->prepare(options, &s->g, s->store, &s->program), LS_OK);
    s->arena_bytes = backend->arena_bytes(s->program);
    assert_int_equal(ls_region_map(s->arena_bytes, &s->arena), LS_OK);
    s->grad_bytes = backend->grad_bytes(s->program);
    assert_int_equal(ls_region_map(s->grad_bytes, &s->grads), LS_OK);
    assert_int_equal(backend->bind(s->program, s->arena, s->grads), LS_OK);
    if (s->own_store)
        fill_parameters(s);
    fill_inputs(s);
}

static inline void session_close(struct session *s)
{
    s->backend->release(s->program);
    if (s->own_store)
        ls_store_free(s->store);
    ls_region_unmap(s->arena, s->arena_bytes);
    ls_region_unmap(s->grads, s->grad_bytes);
    ls_graph_release(&s->g);
    ls_free(s->images);
    ls_free(s->labels);
}

static inline void session_run(struct session *s)
{
    assert_int_equal(s->backend->run(s->program, 0, s->g.n_nodes, &s->run), LS_OK);
}

/* New memory with the tensor's values, always as f32. */
static inline float *session_read(const struct session *s, int tensor)
{
    int64_t n = tensor_count(s, tensor);
    float *values = ls_alloc((size_t)n, sizeof *values);
    assert_non_null(values);
    assert_int_equal(s->backend->read(s->program, tensor, values), LS_OK);
    for (int64_t i = 0; s->g.tensors[tensor].dtype == LS_I32 && i < n; i++) {
        int32_t integer;
        memcpy(&integer, values + i, sizeof integer);
        values[i] = (float)integer;
    }
    return values;
}

/* |a - b| / |a|, or |a - b| when a is all zero. Not a number counts as infinitely wrong. */
static inline double relative_error(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    double error = sqrt(difference) / (size > 0 ? sqrt(size) : 1);
    return isfinite(error) ? error : INFINITY;
}

/* The same tensor in two sessions; false, with a line that names it, when they differ by too much. */
static inline bool same_values(const struct session *a, int in_a, const struct session *b, int in_b, double tolerance,
                               const char *what)
{
    const char *name = a->g.tensors[in_a].name;
    if (tensor_count(a, in_a) != tensor_count(b, in_b)) {
        print_error("%s: tensor %s (%d): sizes differ\n", what, name, in_a);
        return false;
    }
    float *x = session_read(a, in_a), *y = session_read(b, in_b);
    double error = relative_error(x, y, tensor_count(a, in_a));
    if (error > tolerance)
        print_error("%s: tensor %s (%d): relative error %.3g, at most %.3g allowed\n", what, name, in_a, error,
                    tolerance);
    ls_free(x);
    ls_free(y);
    return error <= tolerance;
}

#endif
