/* Products of matrices by cuBLASLt: dense layers, and convolutions of 1x1. Its matrices are by columns, so ours are its
 * transposed ones:
 *     FORWARD      y  (out x rows)     = w (in x out)' * x (in x rows)     + bias, act
 *     BWD_DATA     dx (in x rows)      = w (in x out)  * dy (out x rows)
 *     BWD_WEIGHTS  dw (in x out), f32  = x (in x rows) * dy (out x rows)'
 * The gradient by data of a layer in chunks is a batch of products, one a chunk, into scratch (CHUNK-2). */
#include "backend/cuda/conv/conv_algorithm.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { WORKSPACE = 32 << 20 };

struct product {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    int batch;            /* of products */
    struct product *last; /* BWD_DATA in chunks: the last chunk, where it has fewer rows; owned */
    size_t leaves;        /* then: bytes of the products, at the beginning of the scratch */
    struct ls_cuda_tree tree;
};

static cudaDataType_t blas_type(enum ls_dtype t)
{
    return t == LS_BF16 ? CUDA_R_16BF : t == LS_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* cuBLASLt has no relu6. */
static bool fuses(const struct linear *l)
{
    return l->conv.act != LS_ACT_RELU6;
}

static void product_release(struct product *m)
{
    if (m->a)
        cublasLtMatrixLayoutDestroy(m->a);
    if (m->b)
        cublasLtMatrixLayoutDestroy(m->b);
    if (m->d)
        cublasLtMatrixLayoutDestroy(m->d);
    if (m->what)
        cublasLtMatmulDescDestroy(m->what);
    if (m->last)
        product_release(m->last);
    ls_free(m);
}

static bool in_leaves(const struct linear *l)
{
    return l->pass == BWD_DATA && linear_in_chunks(l);
}

static cublasStatus_t set_batch(cublasLtMatrixLayout_t layout, int32_t count, int64_t stride)
{
    cublasStatus_t st =
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    return st ? st
              : cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                 sizeof stride);
}

/* CHUNK-2: the layouts for so many chunks of `rows` rows, which lie one after the other. */
static cublasStatus_t lay_out_chunks(struct product *m, const struct linear *l, int64_t rows, int count)
{
    const struct ls_cuda_conv *c = &l->conv;
    int64_t samples = c->x.n, in = c->x.c;
    cudaDataType_t t = blas_type(c->t);
    m->batch = count;
    cublasStatus_t st = cublasLtMatrixLayoutCreate(&m->a, t, (uint64_t)in, (uint64_t)rows, in);
    if (!st)
        st = cublasLtMatrixLayoutCreate(&m->b, t, (uint64_t)rows, (uint64_t)samples, c->y.c);
    if (!st)
        st = cublasLtMatrixLayoutCreate(&m->d, CUDA_R_32F, (uint64_t)in, (uint64_t)samples, in);
    if (!st)
        st = set_batch(m->a, count, rows * in);
    if (!st)
        st = set_batch(m->b, count, rows);
    return st ? st : set_batch(m->d, count, samples * in);
}

static struct product *product_of(const struct linear *l, int64_t rows, int count);

/* Of all chunks that are here. */
static struct product *product_of_chunks(const struct linear *l)
{
    const struct ls_split_range *r = &l->range;
    int chunks = r->end - r->first;
    int64_t rest = l->conv.y.c - (chunks - 1) * r->chunk; /* rows of the last chunk */
    bool shorter = rest < r->chunk;
    struct product *m =
        product_of(l, shorter && chunks == 1 ? rest : r->chunk, shorter && chunks > 1 ? chunks - 1 : chunks);
    if (!m)
        return NULL;
    m->leaves = ((size_t)(chunks * l->conv.x.n * l->conv.x.c) * sizeof(float) + 255) / 256 * 256;
    m->tree = linear_tree(l);
    if (!shorter || chunks == 1 || (m->last = product_of(l, rest, 1)))
        return m;
    product_release(m);
    return NULL;
}

/* Everything but the algorithm; NULL: not available. */
static struct product *product_new(const struct linear *l)
{
    return in_leaves(l) ? product_of_chunks(l) : product_of(l, 0, 0);
}

/* rows, count: of chunks. */
static struct product *product_of(const struct linear *l, int64_t chunk, int count)
{
    const struct ls_cuda_conv *c = &l->conv;
    int64_t rows = c->x.n * c->x.h * c->x.w, in = c->x.c, out = c->y.c;
    cudaDataType_t t = blas_type(c->t);
    cublasOperation_t ta = l->pass == FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = l->pass == BWD_WEIGHTS ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t compute = l->tf32 && c->t == LS_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    struct product *m = ls_alloc(1, sizeof *m);
    if (!m)
        return NULL;
    cublasStatus_t st = cublasLtMatmulDescCreate(&m->what, compute, CUDA_R_32F);
    if (!st)
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (!st)
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    bool act = fuses(l) && c->act != LS_ACT_NONE, bias = l->bias && (fuses(l) || linear_in_chunks(l));
    if (!st && l->pass == FORWARD && (bias || act)) {
        cublasLtEpilogue_t e = !act   ? CUBLASLT_EPILOGUE_BIAS
                               : bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                      : CUBLASLT_EPILOGUE_RELU;
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
    }
    if (!st && in_leaves(l)) {
        st = lay_out_chunks(m, l, chunk, count);
    } else if (!st && l->pass == BWD_WEIGHTS) {
        st = cublasLtMatrixLayoutCreate(&m->a, t, (uint64_t)in, (uint64_t)rows, in);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->b, t, (uint64_t)out, (uint64_t)rows, out);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->d, CUDA_R_32F, (uint64_t)in, (uint64_t)out, in);
    } else if (!st) {
        int64_t from = l->pass == FORWARD ? in : out, to = l->pass == FORWARD ? out : in;
        st = cublasLtMatrixLayoutCreate(&m->a, t, (uint64_t)in, (uint64_t)out, in);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->b, t, (uint64_t)from, (uint64_t)rows, from);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->d, t, (uint64_t)to, (uint64_t)rows, to);
    }
    if (st) {
        product_release(m);
        return NULL;
    }
    return m;
}

/* In-place reductions add in whatever order they come. */
static int heuristics(struct device *d, const struct linear *l, const struct product *m,
                      cublasLtMatmulHeuristicResult_t *results, int room)
{
    cublasLtMatmulPreference_t wish;
    size_t workspace = WORKSPACE;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK & ~(l->fast ? 0u : (uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE);
    int n = 0;
    if (cublasLtMatmulPreferenceCreate(&wish))
        return 0;
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    if (cublasLtMatmulAlgoGetHeuristic(d->blas, m->what, m->a, m->b, m->d, m->d, wish, room, results, &n))
        n = 0;
    cublasLtMatmulPreferenceDestroy(wish);
    return n;
}

static int algo_value(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t key, size_t size)
{
    int value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, key, &value, size, &written);
    return value;
}

static void algo_name(const cublasLtMatmulAlgo_t *a, char *name, size_t room)
{
    snprintf(
        name, room, "blas %d.%d.%d.%d.%d.%d.%d.%d.%d", algo_value(a, CUBLASLT_ALGO_CONFIG_ID, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_TILE_ID, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
        algo_value(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), algo_value(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4));
}

/* Lists an algorithm. workspace: what it needs. */
static bool add(const struct linear *l, const cublasLtMatmulAlgo_t *algo, size_t workspace, struct conv_algorithm *to)
{
    struct product *m = product_new(l);
    if (!m)
        return false;
    m->algo = *algo;
    algo_name(algo, to->name, sizeof to->name);
    to->state = m;
    to->workspace = m->leaves + workspace;
    to->after = l->pass == FORWARD && !fuses(l);
    return true;
}

/* An algorithm that divides a sum by the number of tiles computes parts in another way. By a fixed number it does not. */
static int add_splits(struct device *d, const struct linear *l, const struct product *m, cublasLtMatmulAlgo_t algo,
                      struct conv_algorithm *list, int room)
{
    static const int splits[] = {2, 3, 4};
    cublasLtMatmulHeuristicResult_t r;
    int found = 0;
    for (int i = 0; i < 3 && found < room; i++)
        if (!cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits[i],
                                                  sizeof splits[i]) &&
            !cublasLtMatmulAlgoCheck(d->blas, m->what, m->a, m->b, m->d, m->d, &algo, &r) && !r.state &&
            r.workspaceSize <= WORKSPACE)
            found += add(l, &algo, r.workspaceSize, &list[found]);
    return found;
}

static int list(struct device *d, const struct linear *l, struct conv_algorithm *list, int room)
{
    enum { MOST = 6, MOST_IN_CHUNKS = 16 }; /* of those in chunks, some do not compute parts in the same way */
    cublasLtMatmulHeuristicResult_t results[MOST_IN_CHUNKS];
    if (!linear_is_product(l))
        return 0;
    struct product *m = product_new(l);
    int most = linear_in_chunks(l) ? MOST_IN_CHUNKS : MOST, found = 0;
    int n = m ? heuristics(d, l, m, results, most < room ? most : room) : 0;
    for (int i = 0; i < n && found < room; i++) {
        const cublasLtMatmulAlgo_t *algo = &results[i].algo;
        if (results[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        if (linear_in_chunks(l) && algo_value(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4) < 0)
            found += add_splits(d, l, m, *algo, list + found, room - found);
        else
            found += add(l, algo, results[i].workspaceSize, &list[found]);
    }
    if (m)
        product_release(m);
    return found;
}

static bool build(struct device *d, const struct linear *l, struct conv_algorithm *algorithm)
{
    (void)d, (void)l;
    return algorithm->state != NULL;
}

static bool fit(const struct linear *l, const struct conv_algorithm *algorithm, struct conv_algorithm *part)
{
    const struct product *from = algorithm->state;
    struct product *m = product_new(l);
    part->state = m;
    if (!m)
        return false;
    m->algo = from->algo;
    part->workspace = algorithm->workspace - from->leaves + m->leaves;
    part->after = l->pass == FORWARD && !fuses(l);
    return true;
}

static const float one = 1, zero = 0;

/* CHUNK-2 */
static enum ls_status run_chunks(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                                 const struct operands *o)
{
    const struct product *m = algorithm->state, *last = m->last;
    const struct ls_cuda_conv *c = &l->conv;
    int64_t count = c->x.n * c->x.c, done = m->batch * l->range.chunk;
    size_t size = ls_dtype_size(c->t), workspace = algorithm->workspace - m->leaves;
    float *leaves = (float *)(void *)o->workspace;
    char *rest = o->workspace + m->leaves;
    LS_TRY(blas_check(cublasLtMatmul(d->blas, m->what, &one, o->w, m->a, o->y, m->b, &zero, leaves, m->d, leaves, m->d,
                                     &m->algo, rest, workspace, d->compute),
                      "cublasLtMatmul"));
    float *leaf = leaves + m->batch * count;
    if (last)
        LS_TRY(blas_check(cublasLtMatmul(d->blas, last->what, &one, (char *)o->w + (size_t)(done * c->x.c) * size,
                                         last->a, (char *)o->y + (size_t)done * size, last->b, &zero, leaf, last->d,
                                         leaf, last->d, &m->algo, rest, workspace, d->compute),
                          "cublasLtMatmul"));
    ls_cuda_sum_tree(d->compute, &m->tree, l->sums ? LS_F32 : c->t, leaves, count, o->x);
    return LS_OK;
}

/* What the product does not compute. */
static void run_after(struct device *d, const struct linear *l, const struct operands *o)
{
    const struct ls_cuda_conv *c = &l->conv;
    if (linear_in_chunks(l))
        ls_cuda_act(d->compute, c->t, c->act, o->y, o->y, map_count(&c->y));
    else
        ls_cuda_bias(d->compute, c->t, c->act, o->y, o->bias, o->y, c->y.n * c->y.h * c->y.w, c->y.c);
}

static enum ls_status run(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o)
{
    const struct product *m = algorithm->state;
    void *a = l->pass == BWD_WEIGHTS ? o->x : o->w, *b = l->pass == FORWARD ? o->x : o->y;
    void *to = l->pass == FORWARD ? o->y : l->pass == BWD_DATA ? o->x : o->w;
    if (in_leaves(l))
        return run_chunks(d, l, algorithm, o);
    if (l->pass == FORWARD && l->bias && (fuses(l) || linear_in_chunks(l)))
        LS_TRY(blas_check(cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->half_bias,
                                                         sizeof o->half_bias),
                          "bias"));
    LS_TRY(blas_check(cublasLtMatmul(d->blas, m->what, &one, a, m->a, b, m->b, &zero, to, m->d, to, m->d, &m->algo,
                                     o->workspace, algorithm->workspace, d->compute),
                      "cublasLtMatmul"));
    if (algorithm->after)
        run_after(d, l, o);
    return LS_OK;
}

static void release(struct conv_algorithm *algorithm)
{
    if (algorithm->state)
        product_release(algorithm->state);
}

const struct conv_library ls_cuda_cublas = {.list = list, .build = build, .run = run, .fit = fit, .release = release};
