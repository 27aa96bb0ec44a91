#include "train/whiten.h"
#include "base/log.h"
#include "graph/ops.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    CHUNKS = 64,      /* partial sums, added in order: bits do not depend on the number of threads */
    MOST_VALUES = 768 /* of a patch: the eigenvectors of larger ones would take minutes */
};

/* One convolution that is to be filled. */
struct job {
    struct ls_engine *e;
    const struct ls_task *task;
    const struct ls_node *node;
    struct ls_shape w;
    int values;     /* of a patch */
    int64_t images; /* that are read */
    double *sums;   /* CHUNKS x values x values */
};

/* A backend may have put a node in between that stores them in its own way. A module has a copy of each op, so that only
 * names can be compared. */
static bool reads_images(const struct ls_graph *g, int tensor)
{
    int from = tensor == g->input ? LS_NONE : ls_graph_producer(g, tensor);
    if (from == LS_NONE)
        return tensor == g->input;
    const char *op = g->nodes[from].op->name;
    return (strcmp(op, "mix") == 0 || strcmp(op, "reorder") == 0) && reads_images(g, g->nodes[from].in[0]);
}

static enum ls_status check(const struct ls_graph *g, const struct ls_node *n)
{
    const struct ls_shape *w = &g->tensors[n->in[1]].shape;
    int64_t values = w->dim[1] * w->dim[2] * w->dim[3];
    if (!reads_images(g, n->in[0]) || n->attr.groups != 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: init: whiten is for a convolution that reads the images, in one group",
                       n->name);
    if (w->dim[0] > 2 * values || w->dim[0] % 2 || values > MOST_VALUES)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: init: whiten makes an even number of filters, at most twice the %lld values of a "
                       "patch, which may be %d; out is %lld",
                       n->name, (long long)values, MOST_VALUES, (long long)w->dim[0]);
    return LS_OK;
}

/* Adds the products of all values of the patches of an image to sum, above and on the diagonal. */
static void add_image(const struct job *j, const float *planes, double *patch, double *sum)
{
    const struct ls_augment *a = &j->task->test_augment;
    const struct ls_attr *at = &j->node->attr;
    int64_t height = a->height, width = a->width, v = j->values;
    for (int64_t top = 0; top + j->w.dim[2] <= height; top += at->stride_h)
        for (int64_t left = 0; left + j->w.dim[3] <= width; left += at->stride_w) {
            int64_t n = 0;
            for (int64_t c = 0; c < j->w.dim[1]; c++)
                for (int64_t y = 0; y < j->w.dim[2]; y++)
                    for (int64_t x = 0; x < j->w.dim[3]; x++)
                        patch[n++] = (double)planes[(c * height + top + y) * width + left + x];
            for (int64_t r = 0; r < v; r++)
                for (int64_t c = r; c < v; c++)
                    sum[r * v + c] += patch[r] * patch[c];
        }
}

static enum ls_status add_chunk(const struct job *j, int chunk)
{
    const struct ls_augment *a = &j->task->test_augment;
    struct ls_image image = {0}, scratch = {0};
    int32_t label;
    double *patch = ls_alloc((size_t)j->values, sizeof *patch);
    float *planes = ls_alloc((size_t)(a->channels * a->height * a->width), sizeof *planes);
    enum ls_status st = patch && planes ? LS_OK : LS_FAILED;
    for (int64_t i = j->images * chunk / CHUNKS; i < j->images * (chunk + 1) / CHUNKS && st == LS_OK; i++) {
        struct ls_view view = ls_augment_view(a, 0, 0, (uint64_t)i);
        if (ls_dataset_try(j->task->train, i, &view, &image, &label) != LS_OK)
            continue; /* training reports it, or replaces it */
        st = ls_augment_apply(a, &image, 0, 0, (uint64_t)i, &scratch, planes);
        if (st == LS_OK)
            add_image(j, planes, patch, j->sums + (size_t)chunk * (size_t)j->values * (size_t)j->values);
    }
    ls_image_release(&image);
    ls_image_release(&scratch);
    ls_free(patch);
    ls_free(planes);
    return st;
}

/* The covariance of patches around 0, in the first of the sums. */
static enum ls_status add_patches(const struct job *j)
{
    int64_t v = j->values, n = v * v;
    int failed = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(| : failed)
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        failed |= add_chunk(j, chunk) != LS_OK;
    if (failed)
        return LS_FAILED;
    for (int chunk = 1; chunk < CHUNKS; chunk++)
        for (int64_t i = 0; i < n; i++)
            j->sums[i] += j->sums[chunk * n + i];
    int64_t rows = (j->task->test_augment.height - j->w.dim[2]) / j->node->attr.stride_h + 1;
    int64_t columns = (j->task->test_augment.width - j->w.dim[3]) / j->node->attr.stride_w + 1;
    double patches = (double)j->images * (double)rows * (double)columns;
    for (int64_t r = 0; r < v; r++)
        for (int64_t c = r; c < v; c++)
            j->sums[r * v + c] = j->sums[c * v + r] = j->sums[r * v + c] / patches;
    return LS_OK;
}

static enum ls_status fill(const struct job *j, float eps)
{
    int64_t v = j->values, filters = j->w.dim[0] / 2;
    double *values = ls_alloc((size_t)v, sizeof *values), *vectors = ls_alloc((size_t)(v * v), sizeof *vectors);
    float *w = ls_alloc((size_t)ls_shape_count(&j->w), sizeof *w);
    enum ls_status st = values && vectors && w ? add_patches(j) : LS_FAILED;
    if (st == LS_OK) {
        ls_eigen_symmetric((int)v, j->sums, values, vectors);
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < v; i++) {
                double x = vectors[f * v + i] / sqrt(fmax(values[f], 0) + (double)eps);
                w[f * v + i] = (float)x;
                w[(filters + f) * v + i] = (float)-x;
            }
        st = ls_engine_write(j->e, j->node->in[1], w);
    }
    ls_free(values);
    ls_free(vectors);
    ls_free(w);
    return st;
}

enum ls_status ls_whiten(struct ls_engine *e, const struct ls_task *task)
{
    const struct ls_graph *g = ls_engine_whole(e);
    int64_t count = ls_dataset_info(task->train)->count;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        if (node->op != &ls_op_conv || g->tensors[node->in[1]].init.kind != LS_INIT_WHITEN)
            continue;
        LS_TRY(check(g, node));
        struct job j = {.e = e, .task = task, .node = node, .w = g->tensors[node->in[1]].shape};
        j.values = (int)(j.w.dim[1] * j.w.dim[2] * j.w.dim[3]);
        j.images = count < LS_WHITEN_IMAGES ? count : LS_WHITEN_IMAGES;
        j.sums = ls_alloc((size_t)CHUNKS * (size_t)j.values, (size_t)j.values * sizeof *j.sums);
        enum ls_status st = j.sums ? fill(&j, g->tensors[node->in[1]].init.value) : LS_FAILED;
        ls_free(j.sums);
        LS_TRY(st);
    }
    return LS_OK;
}
