#include "backend/selftest/session.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

int64_t ls_session_count(const struct ls_session *s, int tensor)
{
    return ls_shape_count(&s->g.tensors[tensor].shape);
}

static void fill_by_name(const char *name, float low, float high, int64_t n, float *values)
{
    uint64_t seed = 5381;
    for (const char *c = name; *c; c++)
        seed = seed * 33 + (unsigned char)*c;
    ls_random_fill_uniform(seed, 0, low, high, n, values);
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Scales and variances around 1, everything else around 0 with the size a fan-in asks for. */
static enum ls_status fill_parameters(struct ls_session *s)
{
    enum ls_status st = LS_OK;
    for (int t = 0; t < s->g.n_tensors && st == LS_OK; t++) {
        const struct ls_tensor *tensor = &s->g.tensors[t];
        if (!ls_role_kept(tensor->role))
            continue;
        int64_t n = ls_session_count(s, t);
        float *values = ls_alloc((size_t)n, sizeof *values);
        if (!values)
            return LS_FAILED;
        bool scale = tensor->shape.rank == 1 && (ends_with(tensor->name, ".weight") || ends_with(tensor->name, "_var"));
        float bound = tensor->shape.rank < 2 ? 0.5f : 1.7f / sqrtf((float)(n / tensor->shape.dim[0]));
        if (strncmp(tensor->name, "pre", 3) == 0) /* a plain copy of the image */
            fill_by_name(tensor->name, 1, 1, n, values);
        else if (ends_with(tensor->name, "_sq")) /* squares are not negative */
            fill_by_name(tensor->name, 0, bound, n, values);
        else
            fill_by_name(tensor->name, scale ? 0.5f : -bound, scale ? 1.5f : bound, n, values);
        st = s->backend->write(s->program, t, values);
        ls_free(values);
    }
    return st;
}

static enum ls_status point_at_inputs(struct ls_session *s)
{
    LS_TRY(s->backend->input(s->program, s->g.input, s->images));
    return s->backend->input(s->program, s->g.label, s->labels);
}

/* Images in steps of 1/32 (exact in bf16 too), labels in turn; samples beyond valid are marked as none. */
static enum ls_status fill_inputs(struct ls_session *s)
{
    int64_t n = ls_session_count(s, s->g.input), samples = ls_session_count(s, s->g.label);
    int64_t classes = s->g.logits == LS_NONE ? 2 : s->g.tensors[s->g.logits].shape.dim[1];
    s->images = ls_alloc((size_t)n, sizeof *s->images);
    s->labels = ls_alloc((size_t)samples, sizeof *s->labels);
    if (!s->images || !s->labels)
        return LS_FAILED;
    for (int64_t i = 0; i < n; i++)
        s->images[i] = (float)((int64_t)ls_random_below(7, 1, (uint64_t)i, 128) - 64) / 32;
    for (int64_t i = 0; i < samples; i++)
        s->labels[i] = i < s->run.valid ? (int32_t)((i * 5 + 1) % classes) : -1;
    return point_at_inputs(s);
}

enum ls_status ls_session_open(struct ls_session *s, const struct ls_backend *backend, int64_t valid,
                               const struct ls_backend_options *options)
{
    s->backend = backend;
    s->run = (struct ls_run){
        .seed = 3, .step = 11, .replica = 1, .valid = valid, .grad_scale = 0.25f, .stat_weight = 0.5f, .lr = 0.1f};
    s->own_store = !s->store;
    s->store = s->store ? s->store : ls_store_new(backend);
    if (!s->store)
        return LS_FAILED;
    LS_TRY(backend->prepare(options, &s->g, s->store, &s->program));
    s->arena_bytes = backend->arena_bytes(s->program);
    LS_TRY(ls_backend_take(backend, s->arena_bytes, &s->arena));
    s->grad_bytes = backend->grad_bytes(s->program);
    LS_TRY(ls_backend_take(backend, s->grad_bytes, &s->grads));
    LS_TRY(backend->bind(s->program, s->arena, s->grads));
    if (s->own_store)
        LS_TRY(fill_parameters(s));
    return fill_inputs(s);
}

void ls_session_close(struct ls_session *s)
{
    if (s->program)
        s->backend->release(s->program);
    if (s->own_store)
        ls_store_free(s->store);
    if (s->arena)
        ls_backend_give(s->backend, s->arena, s->arena_bytes);
    if (s->grads)
        ls_backend_give(s->backend, s->grads, s->grad_bytes);
    ls_graph_release(&s->g);
    ls_free(s->images);
    ls_free(s->labels);
    *s = (struct ls_session){0};
}

enum ls_status ls_session_run(struct ls_session *s)
{
    if (s->backend->queue->delay) /* inputs are copied by the next run alone */
        LS_TRY(point_at_inputs(s));
    return s->backend->run(s->program, 0, s->g.n_nodes, &s->run);
}

enum ls_status ls_session_read(const struct ls_session *s, int tensor, float **values)
{
    int64_t n = ls_session_count(s, tensor);
    float *read = ls_alloc((size_t)n, sizeof *read);
    enum ls_status st = read ? s->backend->read(s->program, tensor, read) : LS_FAILED;
    if (st != LS_OK) {
        ls_free(read);
        return st;
    }
    for (int64_t i = 0; s->g.tensors[tensor].dtype == LS_I32 && i < n; i++) {
        int32_t integer;
        memcpy(&integer, read + i, sizeof integer);
        read[i] = (float)integer;
    }
    *values = read;
    return LS_OK;
}

double ls_relative_error(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    double error = sqrt(difference) / (size > 0 ? sqrt(size) : 1);
    return isfinite(error) ? error : INFINITY;
}
